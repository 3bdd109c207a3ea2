// An entry's file: "stepc-cache 1 <hash>\n" and the bytes. The hash covers key and bytes, so that a file
// under another entry's name does not pass for it.
#include "ir/support/cache.h"

#include <unistd.h>

#include "ir/support/file.h"
#include "ir/support/hash.h"

namespace stepc {
namespace {

std::string header(std::string_view key, std::string_view bytes) {
  Sha256 hash;
  hash.update(fmt::format("{}:", key.size()));
  hash.update(key);
  hash.update(bytes);
  return fmt::format("stepc-cache 1 {}\n", hash.hex());
}

}  // namespace

std::string CacheStore::path_of(std::string_view key) const { return fmt::format("{}/{}", folder_, content_hash(key)); }

std::optional<std::string> CacheStore::find(std::string_view key) const {
  const std::string path = path_of(key);
  Result<std::string> file = read_file(path);
  if (!file) return std::nullopt;
  const size_t line_end = file->find('\n');
  if (line_end != std::string::npos) {
    const std::string_view bytes = std::string_view(*file).substr(line_end + 1);
    if (file->compare(0, line_end + 1, header(key, bytes)) == 0) return std::string(bytes);
  }
  ::unlink(path.c_str());
  return std::nullopt;
}

Status CacheStore::store(std::string_view key, std::string_view bytes) const {
  STEPC_TRY(make_folder(folder_));
  std::string file = header(key, bytes);
  file += bytes;
  return write_file_atomic(path_of(key), file, Durability::unsynced);
}

}  // namespace stepc
