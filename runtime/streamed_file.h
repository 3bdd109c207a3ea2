// A large file written piece by piece: under a temporary name until commit() has synced and renamed it. Without
// commit the temporary is removed.
#pragma once

#include <string>
#include <string_view>

#include "ir/support/result.h"

namespace stepc {

class StreamedFile {
 public:
  static Result<StreamedFile> create(const std::string& path);
  StreamedFile(StreamedFile&& other) noexcept;
  StreamedFile& operator=(StreamedFile&&) = delete;
  ~StreamedFile();

  Status write(std::string_view bytes);
  Status commit();

 private:
  StreamedFile(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace stepc
