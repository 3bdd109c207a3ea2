// Results cut into boxes in which every concat and pad is on one side of its seam. A box is stored on its
// own; boxes of equal extents share a loop nest, so the two halves of a concatenation that come from common
// values are made side by side.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace stepc::host {

struct Box {
  ValueId result = ValueId::none;
  std::vector<int64_t> offset;  // one a dimension of the result
  Shape extents;
  bool whole = true;  // the box is the result
};

// An axis is cut only where the pieces leave runs of at least `min_run` elements that are neighbours in memory.
std::vector<Box> cut_into_boxes(const Program& program, const Group& group, ValueId result, int64_t min_run);

}  // namespace stepc::host
