#include "runtime/safetensors.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <random>

#include "ir/support/file.h"
#include "tests/support/temp_dir.h"

namespace stepc {
namespace {

std::string with_length(uint64_t length, const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}
std::string file_of(const std::string& header, const std::string& data) {
  return with_length(header.size(), header, data);
}

Result<SafetensorsFile> open_bytes(const test::TempDir& folder, const std::string& bytes) {
  const std::string path = folder.file("x.safetensors");
  REQUIRE(write_file_atomic(path, bytes));
  return SafetensorsFile::open(path);
}

const std::string kGood = R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";

}  // namespace

TEST_CASE("safetensors: what is written is read back, odd shapes included") {
  test::TempDir folder;
  const std::vector<float> values = {1.5f, -0.0f, std::bit_cast<float>(0x7fc00001u)};
  const std::vector<TensorBytes> tensors = {
      {"b.weights", {Dtype::f32, {3}}, {reinterpret_cast<const char*>(values.data()), 12}},
      {"empty", {Dtype::bf16, {0, 7}}, {}},
      {"scalar", {Dtype::i32, {}}, {reinterpret_cast<const char*>(values.data()), 4}},
      {"flags", {Dtype::pred, {1}}, {"\1", 1}}};
  REQUIRE(write_safetensors(folder.file("t"), tensors));
  const auto file = SafetensorsFile::open(folder.file("t"));
  REQUIRE(file);
  CHECK(file->entries().size() == 4);
  for (const TensorBytes& tensor : tensors) {
    const auto bytes = file->tensor(tensor.name, tensor.type);
    REQUIRE(bytes);
    CHECK(std::string(bytes->begin(), bytes->end()) == std::string(tensor.bytes.begin(), tensor.bytes.end()));
  }
  const auto wrong = file->tensor("b.weights", {Dtype::bf16, {3}});
  REQUIRE(!wrong);
  CHECK(wrong.error().text() == folder.file("t") + ": tensor b.weights is F32[3], expected BF16[3]");
  CHECK(!file->tensor("missing", {Dtype::f32, {3}}));
}

TEST_CASE("safetensors: the format's own good cases") {
  test::TempDir folder;
  CHECK(open_bytes(folder, file_of("{}", "")));
  CHECK(open_bytes(folder, file_of(kGood, std::string(16, '\0'))));
  CHECK(open_bytes(folder, file_of("  " + kGood + "   ", std::string(16, '\0'))));
  CHECK(open_bytes(folder, file_of(R"({"a":{"shape":[],"data_offsets":[0,4],"dtype":"F32"}})", "abcd")));
  CHECK(open_bytes(folder, file_of(R"({"a":{"dtype":"F32","shape":[2,0],"data_offsets":[0,0]}})", "")));
  CHECK(open_bytes(folder,
                   file_of(R"({"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x")));
  // Tensors may stand in any order of offsets.
  CHECK(open_bytes(folder, file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                                   R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                   "xy")));
}

TEST_CASE("safetensors: tensors sent in pieces give the same bytes as whole ones; too few or many leave no file") {
  test::TempDir folder;
  const std::string numbers = "0123456789abcdef";
  const auto pieces = [&](size_t size) {
    return [&numbers, size](const ByteSink& sink) -> Status {
      for (size_t at = 0; at < numbers.size(); at += size) STEPC_TRY(sink({numbers.data() + at, size}));
      return {};
    };
  };
  const TensorType type{Dtype::f32, {2, 2}};
  REQUIRE(write_safetensors(folder.file("whole"), {TensorBytes{"a", type, numbers}, TensorBytes{"b", type, numbers}}));
  REQUIRE(write_safetensors(folder.file("pieces"), {TensorStream{"a", type, pieces(4)}, {"b", type, pieces(8)}}));
  CHECK(*read_file(folder.file("whole")) == *read_file(folder.file("pieces")));
  for (const Shape& shape : {Shape{3}, Shape{5}}) {
    const auto wrong = write_safetensors(folder.file("wrong"), {TensorStream{"a", {Dtype::f32, shape}, pieces(4)}});
    CHECK(wrong.error().text() ==
          fmt::format("tensor a has 16 bytes, but its type f32[{}] takes {}", shape[0], 4 * shape[0]));
  }
  CHECK(!read_file(folder.file("wrong")));
}

TEST_CASE("safetensors: the format's own bad cases are refused") {
  test::TempDir folder;
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::vector<std::string> bad = {
      "",
      std::string(8, '\0'),
      with_length(1000, "{}", ""),
      std::string(8, '\xff') + "{}",
      file_of("\xff\xfe", ""),
      file_of("{", ""),
      file_of(kGood, std::string(14, '\0')),
      file_of(kGood, std::string(17, '\0')),
      file_of(entry("I32", "[2,2]", "[0,4]"), "abcd"),
      file_of(entry("I32", "[2,18446744073709551614]", "[0,16]"), std::string(16, '\0')),
      file_of(entry("I32", "[2,9223372036854775806]", "[0,16]"), std::string(16, '\0')),
      file_of(entry("I32", "[-1]", "[0,4]"), "abcd"),
      file_of(entry("I32", "[1]", "[4,0]"), "abcd"),
      file_of(entry("X9", "[1]", "[0,4]"), "abcd"),
      file_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          "x"),
      file_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          "xy"),
      file_of(R"({"__metadata__":{"k":1}})", ""),
      file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy")};
  for (size_t i = 0; i < bad.size(); ++i) {
    CAPTURE(i);
    const auto file = open_bytes(folder, bad[i]);
    REQUIRE(!file);
    CHECK(file.error().exit_code() == 2);
    CHECK(file.error().text().find("x.safetensors") != std::string::npos);
  }
}

TEST_CASE("safetensors: mutated files never crash the reader") {
  test::TempDir folder;
  const std::string good = file_of(kGood, std::string(16, '\0'));
  std::mt19937 random(7);
  for (int turn = 0; turn < 400; ++turn) {
    std::string bytes = good;
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      const size_t at = random() % bytes.size();
      if (random() % 3 == 0)
        bytes.erase(at, 1 + random() % 4);
      else
        bytes[at] = static_cast<char>(random());
      if (bytes.empty()) bytes = "x";
    }
    (void)open_bytes(folder, bytes);
  }
}

}  // namespace stepc
