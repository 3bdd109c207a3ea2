#include "tests/support/tensor_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "ir/support/file.h"

namespace stepc::test {
namespace {

template <class T>
void append(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

}  // namespace

void write_tensor_file(const std::string& path, const TensorMap& tensors) {
  nlohmann::json header;
  std::string body;
  for (const auto& [name, tensor] : tensors) {
    const bool ints = tensor.type.dtype == Dtype::i32;
    const size_t begin = body.size();
    for (double x : tensor.data) ints ? append(body, static_cast<int32_t>(x)) : append(body, static_cast<float>(x));
    header[name] = {
        {"dtype", ints ? "I32" : "F32"}, {"shape", tensor.type.shape}, {"data_offsets", {begin, body.size()}}};
  }
  const std::string text = header.dump();
  std::string file;
  append(file, static_cast<uint64_t>(text.size()));
  REQUIRE(write_file_atomic(path, file + text + body, Durability::unsynced).has_value());
}

TensorMap read_tensor_file(const std::string& path) {
  const Result<std::string> file = read_file(path);
  REQUIRE(file.has_value());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file->data(), sizeof(header_bytes));
  const nlohmann::json header = nlohmann::json::parse(file->substr(8, header_bytes));
  TensorMap tensors;
  for (const auto& [name, entry] : header.items()) {
    const bool ints = entry["dtype"] == "I32";
    const bool halves = entry["dtype"] == "BF16";
    REQUIRE((ints || halves || entry["dtype"] == "F32"));
    Tensor tensor{{ints ? Dtype::i32 : halves ? Dtype::bf16 : Dtype::f32, entry["shape"].get<Shape>()}, {}};
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    for (size_t at = begin; at < end; at += halves ? 2 : 4) {
      const char* from = file->data() + 8 + header_bytes + at;
      int32_t integer = 0;
      float real = 0;
      // A bf16 is the upper half of an f32, and the upper half comes last.
      if (halves) std::memcpy(reinterpret_cast<char*>(&real) + 2, from, 2);
      if (!halves) std::memcpy(&real, from, 4);
      std::memcpy(&integer, &real, 4);
      tensor.data.push_back(ints ? static_cast<double>(integer) : static_cast<double>(real));
    }
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

}  // namespace stepc::test
