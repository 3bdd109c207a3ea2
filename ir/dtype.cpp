#include "ir/dtype.h"

#include <array>

namespace stepc {
namespace {

constexpr std::array kNames = {std::string_view("f32"), std::string_view("bf16"), std::string_view("i32"),
                               std::string_view("pred")};

// The f32 neighbour of `value` towards which truncation goes, with its last bit set if inexact.
// Rounding this to a narrower format gives the same as rounding `value` once.
float round_to_odd(double value) {
  float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) nearest = std::nextafter(nearest, 0.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(nearest) | 1u);
}

}  // namespace

std::string_view dtype_name(Dtype dtype) { return kNames[static_cast<size_t>(dtype)]; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Dtype>(i);
  return std::nullopt;
}

float round_to_bf16(double value) { return f32_from_bf16(bf16_from_f32(round_to_odd(value))); }

}  // namespace stepc
