#include "compiler/schedule/host/views.h"

#include "ir/support/check.h"

namespace stepc::host {
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

// Dimensions are matched in the smallest blocks of equal size, so that what a reshape leaves alone stays as it is.
Position reshape_position(LaneMath& math, const Position& at, const Shape& from, const Shape& to) {
  Position result(to.size(), zero());
  if (numel(to) == 0) return result;
  size_t i = 0;
  size_t j = 0;
  while (i < from.size() || j < to.size()) {
    const size_t from_begin = i;
    const size_t to_begin = j;
    int64_t from_size = i < from.size() ? from[i++] : 1;
    int64_t to_size = j < to.size() ? to[j++] : 1;
    while (from_size != to_size) {
      if (from_size < to_size) {
        from_size *= from[i++];
      } else {
        to_size *= to[j++];
      }
    }
    if (i - from_begin == 1 && j - to_begin == 1) {
      result[to_begin] = at[from_begin];
    } else {
      split_all(math, join_all(math, at, from, from_begin, i), to, to_begin, j, result);
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

}  // namespace stepc::host
