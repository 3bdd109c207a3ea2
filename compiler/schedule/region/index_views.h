// Positions pushed through views, for any kind of index: from where a view's result is read to where its operand
// is, and from where a value is stored to where the view of it is. `Math` does the arithmetic of one index type:
// split (by a divisor, of indices below an extent), join (its inverse), scale, shift by a constant, zero.
#pragma once

#include <vector>

#include "compiler/reshape_blocks.h"
#include "ir/graph/graph.h"
#include "ir/support/check.h"

namespace stepc {

// One index over dimensions [begin, end) of `shape`. From the outermost on: the reverse of split_dimensions, so that
// join recognises its parts.
template <class Math, class Lane>
Lane join_dimensions(Math& math, const std::vector<Lane>& at, const Shape& shape, size_t begin, size_t end) {
  if (begin == end) return math.zero();
  Lane whole = at[begin];
  for (size_t d = begin + 1; d < end; ++d) whole = math.join(whole, shape[d], at[d]);
  return whole;
}

template <class Math, class Lane>
void split_dimensions(Math& math, Lane whole, const Shape& shape, size_t begin, size_t end, std::vector<Lane>& result) {
  int64_t extent = 1;
  for (size_t d = begin; d < end; ++d) extent *= shape[d];
  for (size_t d = end; d-- > begin;) {
    auto [quotient, remainder] = math.split(whole, shape[d], extent);
    result[d] = remainder;
    whole = quotient;
    extent /= shape[d];
  }
}

// The same element, in row-major order, of a tensor of shape `to`.
template <class Math, class Lane>
std::vector<Lane> reshaped(Math& math, const std::vector<Lane>& at, const Shape& from, const Shape& to) {
  std::vector<Lane> result(to.size(), math.zero());
  if (numel(to) == 0) return result;
  for (const auto& [from_begin, from_end, to_begin, to_end] : reshape_blocks(from, to)) {
    if (from_end - from_begin == 1 && to_end - to_begin == 1) {
      result[to_begin] = at[from_begin];
    } else {
      split_dimensions(math, join_dimensions(math, at, from, from_begin, from_end), to, to_begin, to_end, result);
    }
  }
  return result;
}

// For the views that only move indices: reshape, transpose, broadcast, slice, reverse. `from` is the shape of the
// view's result, `to` that of its operand.
template <class Math, class Lane>
std::vector<Lane> before_view(Math& math, const Node& node, const std::vector<Lane>& at, const Shape& from,
                              const Shape& to) {
  if (node.op == Op::reshape) return reshaped(math, at, from, to);
  std::vector<Lane> result = at;
  if (node.op == Op::broadcast) {
    result.clear();
    for (int64_t axis : node.attrs.integers(AttrKey::axes)) result.push_back(at[static_cast<size_t>(axis)]);
  } else if (node.op == Op::transpose) {
    const std::vector<int64_t>& permutation = node.attrs.integers(AttrKey::permutation);
    for (size_t d = 0; d < at.size(); ++d) result[static_cast<size_t>(permutation[d])] = at[d];
  } else if (node.op == Op::slice) {
    const std::vector<int64_t>& start = node.attrs.integers(AttrKey::start);
    for (size_t d = 0; d < at.size(); ++d) result[d] = math.shift(at[d], start[d]);
  } else {
    STEPC_CHECK(node.op == Op::reverse, "{} moves more than indices", op_info(node.op).name);
    for (int64_t axis : node.attrs.integers(AttrKey::axes)) {
      const auto d = static_cast<size_t>(axis);
      result[d] = math.shift(math.scale(at[d], -1), from[d] - 1);
    }
  }
  return result;
}

// Where the element of a view's operand at `at` is in the view, for the one-to-one views.
template <class Math, class Lane>
std::vector<Lane> after_view(Math& math, const Program& program, const Node& node, const std::vector<Lane>& at) {
  const Shape& from = program.type(node.operands[0]).shape;
  const Shape& to = program.type(node.results[0]).shape;
  if (node.op == Op::reshape) return reshaped(math, at, from, to);
  if (node.op == Op::reverse) return before_view(math, node, at, to, from);  // its own inverse
  STEPC_CHECK(node.op == Op::transpose, "{} on the way to a result", op_info(node.op).name);
  std::vector<Lane> result = at;
  const std::vector<int64_t>& permutation = node.attrs.integers(AttrKey::permutation);
  for (size_t d = 0; d < at.size(); ++d) result[d] = at[static_cast<size_t>(permutation[d])];
  return result;
}

}  // namespace stepc
