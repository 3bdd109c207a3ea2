#include "runtime/emulator/units/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace stepc::emulator {
namespace {

// "stepcmap": what tells our bytes from any others.
constexpr uint64_t kMagic = 0x70616d6370657473ull;

int element_bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
  }
  return 0;
}

// Everything but the shape: the address and the modes.
std::string refuse_modes(const TensorMapRequest& r) {
  if (r.rank < 1 || r.rank > kMaxRank) return fmt::format("rank {}, expected 1 to 5", r.rank);
  if (element_bytes_of(r.type) == 0) return fmt::format("unknown element type {}", static_cast<int>(r.type));
  if (r.address == 0 || r.address % 16 != 0) return fmt::format("address {:#x} is not a multiple of 16", r.address);
  if (r.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return "interleaved maps are not modelled";
  if (r.swizzle < CU_TENSOR_MAP_SWIZZLE_NONE || r.swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
    return fmt::format("unknown swizzle {}", static_cast<int>(r.swizzle));
  if (r.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) return "a NaN fill out of bounds is not modelled";
  return "";
}

std::string refuse_dimension(const TensorMapRequest& r, uint32_t d) {
  if (r.extents[d] < 1 || r.extents[d] > uint64_t{1} << 32)
    return fmt::format("extent {} of dimension {}, expected 1 to 2^32", r.extents[d], d);
  if (r.box[d] < 1 || r.box[d] > 256)
    return fmt::format("box extent {} of dimension {}, expected 1 to 256", r.box[d], d);
  if (r.element_strides[d] != 1)
    return fmt::format("element stride {} of dimension {}, expected 1", r.element_strides[d], d);
  if (d == 0) return "";
  const uint64_t stride = r.strides[d - 1];
  if (stride == 0 || stride % 16 != 0 || stride >= uint64_t{1} << 40)
    return fmt::format("stride {} of dimension {}, expected a multiple of 16 below 2^40", stride, d);
  return "";
}

std::string refuse(const TensorMapRequest& r) {
  if (std::string why = refuse_modes(r); !why.empty()) return why;
  for (uint32_t d = 0; d < r.rank; ++d)
    if (std::string why = refuse_dimension(r, d); !why.empty()) return why;
  const uint32_t row = r.box[0] * static_cast<uint32_t>(element_bytes_of(r.type));
  if (row % 16 != 0) return fmt::format("{} bytes in a row of the box, expected a multiple of 16", row);
  const uint32_t span = swizzle_span(static_cast<Swizzle>(r.swizzle));
  if (span != 0 && row > span)
    return fmt::format("{} bytes in a row of the box, swizzle {} allows {}", row, span, span);
  // The driver allows a shorter row; how it then lies in shared memory is not documented well enough to be modelled.
  if (span != 0 && row < span)
    return fmt::format("{} bytes in a row of the box under swizzle {}: not modelled", row, span);
  return "";
}

}  // namespace

const char* swizzle_name(Swizzle s) {
  switch (s) {
    case Swizzle::none: return "none";
    case Swizzle::b32: return "32";
    case Swizzle::b64: return "64";
    case Swizzle::b128: return "128";
  }
  return "?";
}

std::optional<TensorMap> check_tensor_map(const TensorMapRequest& request, std::string* why) {
  *why = refuse(request);
  if (!why->empty()) return std::nullopt;
  TensorMap map;
  map.address = request.address;
  map.type = request.type;
  map.swizzle = static_cast<Swizzle>(request.swizzle);
  map.rank = static_cast<int>(request.rank);
  map.element_bytes = element_bytes_of(request.type);
  map.strides[0] = static_cast<uint64_t>(map.element_bytes);
  for (uint32_t d = 0; d < request.rank; ++d) {
    map.extents[d] = request.extents[d];
    map.box[d] = request.box[d];
    if (d > 0) map.strides[d] = request.strides[d - 1];
  }
  return map;
}

// Words: magic | address | extents less one (5 halves of 32 bits: 3 words) | strides / 16 (4) | box | modes | check.
void encode_tensor_map(const TensorMap& map, CUtensorMap* out) {
  uint64_t* w = out->opaque;
  std::fill_n(w, 16, 0);
  w[0] = kMagic;
  w[1] = map.address;
  for (int d = 0; d < kMaxRank; ++d) {
    w[2 + d / 2] |= (map.extents[d] - 1) << (32 * (d % 2));
    if (d > 0) w[4 + d] = map.strides[d];
    w[9] |= static_cast<uint64_t>(map.box[d] - 1) << (8 * d);
  }
  w[10] = static_cast<uint64_t>(map.type) | static_cast<uint64_t>(map.swizzle) << 8 |
          static_cast<uint64_t>(map.rank) << 16 | static_cast<uint64_t>(map.element_bytes) << 24;
  for (int i = 0; i < 15; ++i) w[15] = (w[15] ^ w[i]) * 0x9e3779b97f4a7c15ull;
}

std::optional<TensorMap> decode_tensor_map(const uint8_t* bytes) {
  uint64_t w[16];
  std::memcpy(w, bytes, sizeof w);
  uint64_t check = 0;
  for (int i = 0; i < 15; ++i) check = (check ^ w[i]) * 0x9e3779b97f4a7c15ull;
  if (w[0] != kMagic || w[15] != check) return std::nullopt;
  TensorMap map;
  map.address = w[1];
  map.type = static_cast<CUtensorMapDataType>(w[10] & 0xff);
  map.swizzle = static_cast<Swizzle>(w[10] >> 8 & 0xff);
  map.rank = static_cast<int>(w[10] >> 16 & 0xff);
  map.element_bytes = static_cast<int>(w[10] >> 24 & 0xff);
  map.strides[0] = static_cast<uint64_t>(map.element_bytes);
  for (int d = 0; d < kMaxRank; ++d) {
    map.extents[d] = (w[2 + d / 2] >> (32 * (d % 2)) & 0xffffffff) + 1;
    if (d > 0) map.strides[d] = w[4 + d];
    map.box[d] = static_cast<uint32_t>(w[9] >> (8 * d) & 0xff) + 1;
  }
  return map;
}

BoxRow box_row(const TensorMap& map, const std::array<int32_t, kMaxRank>& corner, uint32_t row) {
  BoxRow result;
  result.box_offset = row * map.row_bytes();
  bool inside = true;
  int64_t offset = 0;
  uint32_t rest = row;
  for (int d = 1; d < map.rank; ++d) {
    const int64_t at = int64_t{corner[d]} + rest % map.box[d];
    rest /= map.box[d];
    inside = inside && at >= 0 && at < static_cast<int64_t>(map.extents[d]);
    offset += at * static_cast<int64_t>(map.strides[d]);
  }
  const int64_t first = std::max<int64_t>(0, -int64_t{corner[0]});
  const int64_t last = std::min<int64_t>(map.box[0], static_cast<int64_t>(map.extents[0]) - corner[0]);
  // Where the row begins; below the tensor if the corner is, but never used there.
  result.address = map.address + static_cast<uint64_t>(offset + int64_t{corner[0]} * map.element_bytes);
  if (inside && first < last) {
    result.begin = static_cast<uint32_t>(first * map.element_bytes);
    result.end = static_cast<uint32_t>(last * map.element_bytes);
  }
  return result;
}

}  // namespace stepc::emulator
