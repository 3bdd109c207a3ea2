#include "compiler/schedule/region/views.h"

#include "compiler/reshape_blocks.h"
#include "ir/support/check.h"

namespace stepc::schedule {
namespace {

LaneIndex zero() { return {Index(0), {}, {}, {0, 0}}; }

// One index over dimensions [begin, end) of `shape`.
LaneIndex join_all(LaneMath& math, const Position& at, const Shape& shape, size_t begin, size_t end) {
  if (begin == end) return zero();
  LaneIndex whole = at[begin];
  // From the outermost on: the reverse of split_all, so that join recognises its parts.
  for (size_t d = begin + 1; d < end; ++d) whole = math.join(whole, shape[d], at[d]);
  return whole;
}

void split_all(LaneMath& math, LaneIndex whole, const Shape& shape, size_t begin, size_t end, Position& result) {
  int64_t extent = 1;
  for (size_t d = begin; d < end; ++d) extent *= shape[d];
  for (size_t d = end; d-- > begin;) {
    auto [quotient, remainder] = math.split(whole, shape[d], extent);
    result[d] = remainder;
    whole = quotient;
    extent /= shape[d];
  }
}

}  // namespace

Position reshape_position(LaneMath& math, const Position& at, const Shape& from, const Shape& to) {
  Position result(to.size(), zero());
  if (numel(to) == 0) return result;
  for (const auto& [from_begin, from_end, to_begin, to_end] : reshape_blocks(from, to)) {
    if (from_end - from_begin == 1 && to_end - to_begin == 1) {
      result[to_begin] = at[from_begin];
    } else {
      split_all(math, join_all(math, at, from, from_begin, from_end), to, to_begin, to_end, result);
    }
  }
  return result;
}

LaneIndex linear_position(LaneMath& math, const Position& at, const Shape& shape) {
  return join_all(math, at, shape, 0, shape.size());
}

Position view_position(LaneMath& math, const Node& node, const Position& at, const Shape& from, const Shape& to) {
  if (node.op == Op::reshape) return reshape_position(math, at, from, to);
  Position result = at;
  if (node.op == Op::broadcast) {
    result.clear();
    for (int64_t axis : node.attrs.integers(AttrKey::axes)) result.push_back(at[static_cast<size_t>(axis)]);
  } else if (node.op == Op::transpose) {
    const std::vector<int64_t>& permutation = node.attrs.integers(AttrKey::permutation);
    for (size_t d = 0; d < at.size(); ++d) result[static_cast<size_t>(permutation[d])] = at[d];
  } else if (node.op == Op::slice) {
    const std::vector<int64_t>& start = node.attrs.integers(AttrKey::start);
    for (size_t d = 0; d < at.size(); ++d) result[d].base = at[d].base + Index(start[d]);
  } else {
    STEPC_CHECK(node.op == Op::reverse, "{} moves more than indices", op_info(node.op).name);
    for (int64_t axis : node.attrs.integers(AttrKey::axes)) {
      const auto d = static_cast<size_t>(axis);
      result[d] = math.scale(at[d], -1);
      result[d].base = result[d].base + Index(from[d] - 1);
    }
  }
  return result;
}

}  // namespace stepc::schedule
