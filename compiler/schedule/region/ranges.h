// Arithmetic on the ranges of what lanes and tiles hold of an index. Bounds saturate, as in ir/kernel/index_facts.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ir/kernel/index_facts.h"
#include "ir/support/checked.h"

namespace stepc {

inline kernel::Range add_ranges(kernel::Range a, kernel::Range b) {
  return {checked_add(a.low, b.low).value_or(INT64_MIN), checked_add(a.high, b.high).value_or(INT64_MAX)};
}

inline kernel::Range scale_range(kernel::Range range, int64_t factor) {
  const auto [low, high] = std::minmax(
      {checked_mul(range.low, factor).value_or(INT64_MIN), checked_mul(range.high, factor).value_or(INT64_MAX)});
  return {low, high};
}

inline bool fits_i32(kernel::Range range) { return range.low >= INT32_MIN && range.high <= INT32_MAX; }

}  // namespace stepc
