// How the axes of two shapes of equal element count correspond: in the smallest runs of axes with equal products,
// so that an axis which a reshape leaves alone is a block of its own and keeps its index, whatever that is.
#pragma once

#include <vector>

#include "ir/shape.h"

namespace stepc {

// Axes [from_begin, from_end) hold the same elements as axes [to_begin, to_end).
struct ReshapeBlock {
  size_t from_begin = 0;
  size_t from_end = 0;
  size_t to_begin = 0;
  size_t to_end = 0;
};

// In order; together they cover both shapes. Neither shape may be empty of elements.
std::vector<ReshapeBlock> reshape_blocks(const Shape& from, const Shape& to);

}  // namespace stepc
