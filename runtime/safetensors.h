// The safetensors file format: a length, a JSON header, then the tensors' bytes. Written strictly, read as the
// format's own reader does: header of at most 100,000,000 bytes, offsets contiguous and complete, sizes that
// match shapes, no duplicate names.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/support/result.h"
#include "runtime/mapped_file.h"

namespace stepc {

// A tensor to write: its bytes are row-major, little-endian, and stay the caller's.
struct TensorBytes {
  std::string name;
  TensorType type;
  std::span<const char> bytes;
};

using ByteSink = std::function<Status(std::span<const char>)>;
// A tensor to write whose bytes are asked for when it is its turn: `send` gives all of them to the sink, in order, in
// pieces of any size. So a file may be larger than the memory there is.
struct TensorStream {
  std::string name;
  TensorType type;
  std::function<Status(const ByteSink& sink)> send;
};

// Written beside `path` under a temporary name, synced, then renamed. pred tensors are stored as BOOL.
Status write_safetensors(const std::string& path, const std::vector<TensorStream>& tensors);
Status write_safetensors(const std::string& path, const std::vector<TensorBytes>& tensors);

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    std::string dtype;  // the format's name: F32, BF16, I32, BOOL, F64, ...
    Shape shape;
    int64_t offset = 0;  // from the start of the file
    int64_t bytes = 0;
  };

  static Result<SafetensorsFile> open(const std::string& path);
  const std::vector<Entry>& entries() const { return entries_; }
  // The bytes of `name`, which must have this type; the error says what is there instead.
  Result<std::span<const char>> tensor(std::string_view name, const TensorType& type) const;
  std::span<const char> bytes(const Entry& entry) const;
  const std::string& path() const { return file_.path(); }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::vector<Entry> entries_;
};

}  // namespace stepc
