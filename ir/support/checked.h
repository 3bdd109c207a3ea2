// Arithmetic on int64 sizes that cannot wrap: nullopt on overflow where it must be noticed, saturation
// where a count is only reported.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace stepc {

constexpr std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

constexpr std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// For counts of at least 0.
constexpr int64_t saturating_add(int64_t a, int64_t b) {
  return checked_add(a, b).value_or(std::numeric_limits<int64_t>::max());
}
constexpr int64_t saturating_mul(int64_t a, int64_t b) {
  return checked_mul(a, b).value_or(std::numeric_limits<int64_t>::max());
}

// `value` rounded up to a multiple of `multiple` (at least 1).
constexpr std::optional<int64_t> checked_align_up(int64_t value, int64_t multiple) {
  const auto raised = checked_add(value, multiple - 1);
  if (!raised) return std::nullopt;
  return *raised / multiple * multiple;
}

}  // namespace stepc
