#include "ir/shape.h"

#include <fmt/ranges.h>

#include "ir/support/check.h"

namespace stepc {

std::optional<int64_t> checked_numel(const Shape& shape) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0)
      empty = true;
    else if (__builtin_mul_overflow(count, extent, &count))
      return std::nullopt;
  }
  return empty ? 0 : count;
}

int64_t numel(const Shape& shape) {
  const auto count = checked_numel(shape);
  STEPC_CHECK(count.has_value(), "shape {} has no element count", shape_text(shape));
  return *count;
}

std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace stepc
