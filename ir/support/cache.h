// A store of bytes under keys in a folder, for what is dear to make and can be made again (compiled
// kernels). Entries are written atomically and carry a hash: one that does not match is removed and
// counts as absent. Several threads and processes may use one folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/support/result.h"

namespace stepc {

class CacheStore {
 public:
  explicit CacheStore(std::string folder) : folder_(std::move(folder)) {}

  // The bytes stored under `key` (any text), if they are there and whole.
  std::optional<std::string> find(std::string_view key) const;
  Status store(std::string_view key, std::string_view bytes) const;
  // The file of an entry, whether it exists or not.
  std::string path_of(std::string_view key) const;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace stepc
