#include "runtime/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "ir/support/checked.h"
#include "ir/text/json.h"
#include "runtime/streamed_file.h"

namespace stepc {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr int64_t kLargestHeader = 100'000'000;

struct FileDtype {
  std::string_view name;
  int64_t bits;
  std::optional<Dtype> ours;
};
constexpr std::array kFileDtypes = {FileDtype{"F32", 32, Dtype::f32}, FileDtype{"BF16", 16, Dtype::bf16},
                                    FileDtype{"I32", 32, Dtype::i32}, FileDtype{"BOOL", 8, Dtype::pred},
                                    FileDtype{"F64", 64, {}},         FileDtype{"F16", 16, {}},
                                    FileDtype{"F8_E4M3", 8, {}},      FileDtype{"F8_E5M2", 8, {}},
                                    FileDtype{"F8_E8M0", 8, {}},      FileDtype{"F6_E2M3", 6, {}},
                                    FileDtype{"F6_E3M2", 6, {}},      FileDtype{"F4", 4, {}},
                                    FileDtype{"I64", 64, {}},         FileDtype{"I16", 16, {}},
                                    FileDtype{"I8", 8, {}},           FileDtype{"U64", 64, {}},
                                    FileDtype{"U32", 32, {}},         FileDtype{"U16", 16, {}},
                                    FileDtype{"U8", 8, {}},           FileDtype{"C64", 64, {}}};

const FileDtype* find_dtype(std::string_view name) {
  for (const FileDtype& dtype : kFileDtypes)
    if (dtype.name == name) return &dtype;
  return nullptr;
}

std::string_view file_dtype_name(Dtype dtype) {
  for (const FileDtype& candidate : kFileDtypes)
    if (candidate.ours == dtype) return candidate.name;
  return {};
}

// The bytes of a tensor of this shape; nullopt where they do not fit or are not whole.
std::optional<int64_t> tensor_bytes(const Shape& shape, int64_t bits) {
  const auto count = checked_numel(shape);
  const auto total = count ? checked_mul(*count, bits) : std::nullopt;
  if (!total || *total % 8 != 0) return std::nullopt;
  return *total / 8;
}

int64_t type_bytes(const TensorType& type) { return numel(type.shape) * dtype_bytes(type.dtype); }

Result<SafetensorsFile::Entry> read_entry(const std::string& name, const JsonCursor& item, int64_t data_start) {
  STEPC_TRY(item.expect_keys({"dtype", "shape", "data_offsets"}));
  SafetensorsFile::Entry entry;
  entry.name = name;
  STEPC_ASSIGN(entry.dtype, item.string("dtype"));
  const FileDtype* dtype = find_dtype(entry.dtype);
  if (!dtype) return item.error(fmt::format("unknown dtype {}", entry.dtype));
  STEPC_ASSIGN(const JsonCursor shape, item.member("shape"));
  STEPC_ASSIGN(entry.shape, shape.integers(0));
  STEPC_ASSIGN(const JsonCursor offsets, item.member("data_offsets"));
  STEPC_ASSIGN(const std::vector<int64_t> range, offsets.integers(0));
  if (range.size() != 2 || range[0] > range[1]) return offsets.mismatch("a begin and an end not before it");
  const auto expected = tensor_bytes(entry.shape, dtype->bits);
  if (!expected) return shape.mismatch("a shape whose size in bytes fits 63 bits and is whole");
  entry.bytes = range[1] - range[0];
  if (entry.bytes != *expected)
    return item.error(fmt::format("{} of shape {} takes {} bytes, but data_offsets span {}", entry.dtype,
                                  shape_text(entry.shape), *expected, entry.bytes));
  entry.offset = data_start + range[0];
  return entry;
}

// Tensors must follow each other without hole or overlap up to the end of the file.
Status check_contiguous(std::vector<SafetensorsFile::Entry> entries, int64_t data_start, int64_t file_bytes,
                        const std::string& path) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  int64_t position = data_start;
  for (const auto& entry : entries) {
    if (entry.offset != position)
      return user_error("{}: tensor {} starts at byte {}, expected {} (no holes, no overlap)", path, entry.name,
                        entry.offset, position);
    position += entry.bytes;
  }
  if (position != file_bytes)
    return user_error("{}: the tensors end at byte {}, but the file has {} bytes", path, position, file_bytes);
  return {};
}

JsonValue header_of(const std::vector<TensorStream>& tensors) {
  JsonValue header{JsonValue::Object{}};
  int64_t position = 0;
  for (const TensorStream& tensor : tensors) {
    const int64_t size = type_bytes(tensor.type);
    JsonValue entry;
    entry.add("dtype", file_dtype_name(tensor.type.dtype));
    entry.add("shape", JsonValue::list(tensor.type.shape));
    entry.add("data_offsets", JsonValue::list(std::vector<int64_t>{position, position + size}));
    header.add(tensor.name, std::move(entry));
    position += size;
  }
  return header;
}

// All bytes of a tensor to the file; its neighbours' places depend on there being as many as its type says.
Status write_tensor(StreamedFile& file, const TensorStream& tensor) {
  int64_t written = 0;
  STEPC_TRY(tensor.send([&](std::span<const char> piece) {
    written += static_cast<int64_t>(piece.size());
    return file.write({piece.data(), piece.size()});
  }));
  if (written == type_bytes(tensor.type)) return {};
  return user_error("tensor {} has {} bytes, but its type {}{} takes {}", tensor.name, written,
                    dtype_name(tensor.type.dtype), shape_text(tensor.type.shape), type_bytes(tensor.type));
}

}  // namespace

Status write_safetensors(const std::string& path, const std::vector<TensorStream>& tensors) {
  std::string header = json_text(header_of(tensors), INT32_MAX);
  while (!header.empty() && header.back() == '\n') header.pop_back();
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  STEPC_ASSIGN(StreamedFile file, StreamedFile::create(path));
  STEPC_TRY(file.write({reinterpret_cast<const char*>(&length), sizeof length}));
  STEPC_TRY(file.write(header));
  for (const TensorStream& tensor : tensors) STEPC_TRY(write_tensor(file, tensor));
  return file.commit();
}

Status write_safetensors(const std::string& path, const std::vector<TensorBytes>& tensors) {
  std::vector<TensorStream> streams;
  for (const TensorBytes& tensor : tensors)
    streams.push_back({tensor.name, tensor.type, [&tensor](const ByteSink& sink) { return sink(tensor.bytes); }});
  return write_safetensors(path, streams);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  STEPC_ASSIGN(MappedFile mapped, MappedFile::open(path));
  const auto all = mapped.bytes();
  const auto file_bytes = static_cast<int64_t>(all.size());
  if (file_bytes < 8) return user_error("{}: {} bytes are too few for a safetensors file", path, file_bytes);
  uint64_t length = 0;
  std::memcpy(&length, all.data(), sizeof length);
  if (length > static_cast<uint64_t>(kLargestHeader))
    return user_error("{}: a header of {} bytes, at most {} are allowed", path, length, kLargestHeader);
  const int64_t data_start = 8 + static_cast<int64_t>(length);
  if (data_start > file_bytes)
    return user_error("{}: the header should end at byte {}, but the file has {} bytes", path, data_start, file_bytes);
  STEPC_ASSIGN(const JsonValue header, parse_json({all.data() + 8, static_cast<size_t>(length)}, path));
  SafetensorsFile file(std::move(mapped));
  STEPC_ASSIGN(const auto members, JsonCursor(header, path).members());
  for (const auto& [name, item] : members) {
    if (name == "__metadata__") {
      STEPC_ASSIGN(const auto metadata, item.members());
      for (const auto& [key, text] : metadata) STEPC_TRY(text.string());
      continue;
    }
    STEPC_ASSIGN(Entry entry, read_entry(name, item, data_start));
    file.entries_.push_back(std::move(entry));
  }
  STEPC_TRY(check_contiguous(file.entries_, data_start, file_bytes, path));
  return file;
}

std::span<const char> SafetensorsFile::bytes(const Entry& entry) const {
  return file_.bytes().subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
}

Result<std::span<const char>> SafetensorsFile::tensor(std::string_view name, const TensorType& type) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  if (found == entries_.end()) return user_error("{}: no tensor named {}", path(), name);
  const std::string_view expected = file_dtype_name(type.dtype);
  if (found->dtype != expected || found->shape != type.shape)
    return user_error("{}: tensor {} is {}{}, expected {}{}", path(), name, found->dtype, shape_text(found->shape),
                      expected, shape_text(type.shape));
  return bytes(*found);
}

}  // namespace stepc
