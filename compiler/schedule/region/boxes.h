// What a group stores, as boxes. A result that is a reshape, transpose, reverse or concat of other values can
// be stored through it: the value before is evaluated in its own order, and its elements stored where the views
// put them. Values are cut into boxes in which every concat and pad is on one side of its seam; boxes of equal
// extents share a loop nest, so the two halves of a concatenation that come from common values are made side by side.
#pragma once

#include <vector>

#include "compiler/schedule/region/lanes.h"
#include "ir/graph/graph.h"

namespace stepc::schedule {

struct Box {
  // A view (reshape, transpose, reverse, concat) of which the value so far is operand number `operand`.
  struct Step {
    NodeId view = NodeId::none;
    size_t operand = 0;
  };

  ValueId result = ValueId::none;
  ValueId value = ValueId::none;  // what is evaluated
  std::vector<Step> path;         // from the value to the result
  std::vector<int64_t> offset;    // of the box in the value
  Shape extents;
  bool whole = true;  // the box is the value
};

// An axis is cut only where the pieces leave runs of at least `min_run` elements that are neighbours in memory.
// `through_views`: store through the views that end at the result; else the result itself is evaluated.
std::vector<Box> boxes_of(const Program& program, const Group& group, ValueId result, int64_t min_run,
                          bool through_views);
// Has any result of the group a view to be stored through?
bool ends_in_views(const Program& program, const Group& group, const std::vector<ValueId>& results);

// Where the element at `at` of the box's value is in the result.
Position stored_position(LaneMath& math, const Program& program, const Box& box, Position at);

}  // namespace stepc::schedule
