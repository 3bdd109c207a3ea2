#include "compiler/schedule/region/views.h"

#include "compiler/schedule/region/index_views.h"

namespace stepc::schedule {

Position reshape_position(LaneMath& math, const Position& at, const Shape& from, const Shape& to) {
  return reshaped(math, at, from, to);
}

LaneIndex linear_position(LaneMath& math, const Position& at, const Shape& shape) {
  return join_dimensions(math, at, shape, 0, shape.size());
}

Position view_position(LaneMath& math, const Node& node, const Position& at, const Shape& from, const Shape& to) {
  return before_view(math, node, at, from, to);
}

}  // namespace stepc::schedule
