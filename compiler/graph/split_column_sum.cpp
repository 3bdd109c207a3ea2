#include "compiler/graph/split_column_sum.h"

#include <algorithm>

#include "compiler/graph/rewrite.h"

namespace stepc {
namespace {

constexpr int64_t kMaxParts = 64;    // of short sums; long ones have as many more as leave kLongPart rows each
constexpr int64_t kMostParts = 512;  // enough tasks for a GPU; the second sum stays short
constexpr int64_t kLongPart = 64;
constexpr int64_t kMinRowsPerPart = 8;
constexpr int64_t kMinTotalElements = 4096;  // of a sum to a scalar: below, a second kernel costs more than it saves

int64_t largest_parts(int64_t rows, int64_t most) {
  for (int64_t parts = most; parts > 1; --parts)
    if (rows % parts == 0 && rows / parts >= kMinRowsPerPart) return parts;
  return 1;
}

bool leading_axes(const std::vector<int64_t>& axes) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != static_cast<int64_t>(i)) return false;
  return !axes.empty();
}

// Is x what this pass made of a sum before?
bool is_partial(const Program& program, ValueId x) {
  const Node& node = program.producer(x);
  return node.op == Op::reduce_sum && node.attrs.integers(AttrKey::axes) == std::vector<int64_t>{1} &&
         program.producer(node.operands[0]).op == Op::reshape && program.type(x).shape[0] <= kMostParts;
}

// In how many parts to split the sum; 1: leave it, as the sum of partial sums is left.
int64_t parts_of(const Program& program, const Node& node) {
  if (node.op != Op::reduce_sum || !leading_axes(node.attrs.integers(AttrKey::axes))) return 1;
  const Shape& shape = program.type(node.operands[0]).shape;
  const size_t summed = node.attrs.integers(AttrKey::axes).size();
  const int64_t rows = numel(Shape(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(summed)));
  const bool to_scalar = summed == shape.size();
  if (rows <= kMaxParts || (to_scalar && rows < kMinTotalElements)) return 1;
  if (is_partial(program, node.operands[0])) return 1;
  return largest_parts(rows, to_scalar ? kMaxParts : std::clamp(rows / kLongPart, kMaxParts, kMostParts));
}

// Appends the first of the two sums.
ValueId partial_sum(Rewriter& rewriter, const Node& node, const Value& result, int64_t parts) {
  const ValueId x = node.operands[0];
  const Shape& kept = result.type.shape;
  const size_t summed = node.attrs.integers(AttrKey::axes).size();
  const Shape from = rewriter.program().type(x).shape;
  Shape split_shape = {parts, numel(Shape(from.begin(), from.begin() + static_cast<ptrdiff_t>(summed))) / parts};
  split_shape.insert(split_shape.end(), kept.begin(), kept.end());
  Shape partial_shape = {parts};
  partial_shape.insert(partial_shape.end(), kept.begin(), kept.end());
  const ValueId rows = rewriter.emit(Op::reshape, {x}, {}, {Dtype::f32, split_shape}, node, result.name + ".rows");
  return rewriter.emit(Op::reduce_sum, {rows}, {{AttrKey::axes, std::vector<int64_t>{1}}}, {Dtype::f32, partial_shape},
                       node, result.name + ".partial");
}

}  // namespace

void split_column_sum(Program& program) {
  Rewriter rewriter(program);
  for (const Node& old : program.nodes) {
    Node node = rewriter.mapped(old);
    const int64_t parts = parts_of(program, old);
    if (parts > 1) {
      node.operands[0] = partial_sum(rewriter, node, program.value(old.results[0]), parts);
      node.attrs.set(AttrKey::axes, std::vector<int64_t>{0});
    }
    rewriter.keep(node);
  }
  program = rewriter.finish();
}

}  // namespace stepc
