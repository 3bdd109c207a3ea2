#include "runtime/streamed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace stepc {

Result<StreamedFile> StreamedFile::create(const std::string& path) {
  std::string temporary = fmt::format("{}.tmp-{}", path, getpid());
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return system_error("cannot write {}: {}", temporary, std::strerror(errno));
  return StreamedFile(path, std::move(temporary), descriptor);
}

StreamedFile::StreamedFile(StreamedFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

StreamedFile::~StreamedFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Status StreamedFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write {}: {}", temporary_, std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status StreamedFile::commit() {
  const bool synced = ::fsync(descriptor_) == 0;
  const int reason = errno;
  ::close(std::exchange(descriptor_, -1));
  if (!synced || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int why = synced ? errno : reason;
    ::unlink(temporary_.c_str());
    return system_error("cannot write {}: {}", path_, std::strerror(why));
  }
  return {};
}

}  // namespace stepc
