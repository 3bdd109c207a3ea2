// Tensor maps: how the copy engine sees a tensor in global memory, and the walk over a box of one. The 128 bytes of
// a CUtensorMap are opaque to programs, so the emulator's encoding is its own; what may be encoded is what the
// driver accepts, less what stepc never uses (interleaving, element strides).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/cuda/driver_types.h"

namespace stepc::emulator {

// How 16-byte chunks are permuted in shared memory: bits of the address's line number are xored onto its chunk
// number, so that a column of chunks meets all banks.
enum class Swizzle : uint8_t { none, b32, b64, b128 };

// Bytes of a row that swizzling permutes; 0 for none.
constexpr uint32_t swizzle_span(Swizzle s) { return s == Swizzle::none ? 0 : 16u << static_cast<int>(s); }
// The pattern repeats after so many bytes; a tile begins at a multiple of it.
constexpr uint32_t swizzle_pattern(Swizzle s) { return s == Swizzle::none ? 16 : 8 * swizzle_span(s); }
// Where the byte at `address` of the unswizzled tile really lies.
constexpr uint32_t swizzled(Swizzle s, uint32_t address) {
  const uint32_t chunks = s == Swizzle::none ? 1 : swizzle_span(s) / 16;
  return address ^ (((address >> 7) & (chunks - 1)) << 4);
}
const char* swizzle_name(Swizzle s);  // "none", "32", "64", "128"

inline constexpr int kMaxRank = 5;

struct TensorMap {
  uint64_t address = 0;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  Swizzle swizzle = Swizzle::none;
  int rank = 1;
  int element_bytes = 2;
  // Innermost dimension first; strides in bytes, strides[0] = element_bytes.
  std::array<uint64_t, kMaxRank> extents{1, 1, 1, 1, 1};
  std::array<uint64_t, kMaxRank> strides{};
  std::array<uint32_t, kMaxRank> box{1, 1, 1, 1, 1};

  uint32_t row_bytes() const { return box[0] * static_cast<uint32_t>(element_bytes); }
  uint32_t rows() const { return box[1] * box[2] * box[3] * box[4]; }
  uint32_t box_bytes() const { return row_bytes() * rows(); }
};

// What cuTensorMapEncodeTiled asks for, in its order.
struct TensorMapRequest {
  CUtensorMapDataType type;
  uint32_t rank;
  uint64_t address;
  const uint64_t* extents;
  const uint64_t* strides;  // rank - 1 of them, bytes
  const uint32_t* box;
  const uint32_t* element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapFloatOOBfill fill;
};

// The map, or nothing with `why` saying what the driver (or the emulator) refuses.
std::optional<TensorMap> check_tensor_map(const TensorMapRequest& request, std::string* why);
void encode_tensor_map(const TensorMap& map, CUtensorMap* out);
// Nothing if the bytes are no map that encode_tensor_map made.
std::optional<TensorMap> decode_tensor_map(const uint8_t* bytes);

// One row of a box: `bytes` at `box_offset` of the (unswizzled) tile. Bytes [begin, end) of it lie in the tensor,
// from `address` + begin on; the others read as zero and are not written.
struct BoxRow {
  uint32_t box_offset = 0;
  uint64_t address = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
};
// Row `row` of the box whose corner is at `corner` (which may lie outside the tensor).
BoxRow box_row(const TensorMap& map, const std::array<int32_t, kMaxRank>& corner, uint32_t row);

}  // namespace stepc::emulator
