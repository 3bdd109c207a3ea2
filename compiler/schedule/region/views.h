// Positions pushed through views: from where a view's result is read to where its operand is.
#pragma once

#include "compiler/schedule/region/lanes.h"
#include "ir/graph/graph.h"

namespace stepc::schedule {

// The same element, in row-major order, of a tensor of shape `to`.
Position reshape_position(LaneMath& math, const Position& at, const Shape& from, const Shape& to);
// The element's number in row-major order.
LaneIndex linear_position(LaneMath& math, const Position& at, const Shape& shape);
// For the views that only move indices: reshape, transpose, broadcast, slice, reverse. `from` is the
// shape of the view's result, `to` that of its operand.
Position view_position(LaneMath& math, const Node& node, const Position& at, const Shape& from, const Shape& to);

}  // namespace stepc::schedule
