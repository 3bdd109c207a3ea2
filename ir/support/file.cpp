#include "ir/support/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace stepc {
namespace {

tl::unexpected<Error> failed(std::string_view what, const std::string& path, int error) {
  return system_error("cannot {} '{}': {}", what, path, std::strerror(error));
}

// Closes the descriptor, and removes the file of that name unless it was renamed.
struct TemporaryFile {
  int descriptor = -1;
  std::string path;
  ~TemporaryFile() {
    if (descriptor >= 0) ::close(descriptor);
    if (!path.empty()) ::unlink(path.c_str());
  }
};

Status write_all(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status sync_folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return failed("open", folder, errno);
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (result != 0) return failed("sync", folder, error);
  return {};
}

// Unique among processes by the process id, among threads by a counter.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter.fetch_add(1));
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  // A file that cannot be opened is a mistake in its name; one that then cannot be read is not.
  if (descriptor < 0) return user_error("cannot read '{}': {}", path, std::strerror(errno));
  TemporaryFile closer{descriptor, ""};
  struct stat info = {};
  std::string bytes;
  if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode)) bytes.reserve(static_cast<size_t>(info.st_size));
  constexpr size_t kChunkBytes = 1 << 16;
  for (;;) {
    const size_t have = bytes.size();
    bytes.resize(have + kChunkBytes);
    const ssize_t got = ::read(descriptor, bytes.data() + have, kChunkBytes);
    const int error = errno;
    bytes.resize(have + static_cast<size_t>(got > 0 ? got : 0));
    if (got < 0 && error == EINTR) continue;
    if (got < 0) return failed("read", path, error);
    if (got == 0) return bytes;
  }
}

Status write_file_atomic(const std::string& path, std::string_view bytes, Durability durability) {
  std::string name = temporary_name(path);
  const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return failed("write", path, errno);
  TemporaryFile file{descriptor, name};
  STEPC_TRY(write_all(descriptor, bytes, path));
  if (durability == Durability::synced && ::fsync(descriptor) != 0) return failed("sync", path, errno);
  if (::close(std::exchange(file.descriptor, -1)) != 0) return failed("write", path, errno);
  if (::rename(name.c_str(), path.c_str()) != 0) return failed("write", path, errno);
  file.path.clear();
  return durability == Durability::synced ? sync_folder_of(path) : Status{};
}

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return failed("make folder", path, error.value());
  return {};
}

}  // namespace stepc
