// The element types of tensors and the exact rounding between them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stepc {

enum class Dtype : uint8_t {
  f32,   // IEEE binary32: all pointwise arithmetic
  bf16,  // upper half of binary32: storage only
  i32,   // two's complement: ids, indices, random bits
  pred,  // one byte, 0 or 1: comparisons
};

constexpr int64_t dtype_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::i32: return 4;
    case Dtype::bf16: return 2;
    case Dtype::pred: return 1;
  }
  return 0;
}

std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

// Round to nearest, ties to even; NaN stays NaN (quiet), infinities stay.
inline uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f32_from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// The bf16 value nearest to a double. Goes by round-to-odd through f32, so it rounds only once.
float round_to_bf16(double value);

}  // namespace stepc
