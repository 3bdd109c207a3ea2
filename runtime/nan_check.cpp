#include "runtime/nan_check.h"

#include <cmath>
#include <cstring>

namespace stepc {
namespace {

template <class Bits, class ToFloat>
std::optional<int64_t> first_nan(std::span<const char> bytes, ToFloat to_float) {
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    if (std::isnan(to_float(bits))) return static_cast<int64_t>(at / sizeof(Bits));
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> find_nan(Dtype dtype, std::span<const char> bytes) {
  switch (dtype) {
    case Dtype::f32: return first_nan<float>(bytes, [](float value) { return value; });
    case Dtype::bf16: return first_nan<uint16_t>(bytes, f32_from_bf16);
    case Dtype::i32:
    case Dtype::pred: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace stepc
