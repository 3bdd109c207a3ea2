// Static tensor shapes: the extent of each dimension, outermost first. Rank 0 is a scalar; an
// extent may be 0. Tensors are dense and row-major unless a plan's access map says otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stepc {

using Shape = std::vector<int64_t>;

// The number of elements; nullopt when it does not fit int64 or an extent is negative.
std::optional<int64_t> checked_numel(const Shape& shape);
// The same for shapes already verified; CHECKs.
int64_t numel(const Shape& shape);
// Elements from one index of a dimension to the next, dense row-major.
std::vector<int64_t> row_major_strides(const Shape& shape);
// "[8, 256]"; a scalar is "[]".
std::string shape_text(const Shape& shape);

}  // namespace stepc
