// A file's bytes, mapped read-only into memory for as long as the object lives.
#pragma once

#include <span>
#include <string>

#include "ir/support/result.h"

namespace stepc {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const char> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, std::span<const char> bytes) : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const char> bytes_;
};

}  // namespace stepc
