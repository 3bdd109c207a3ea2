#include "compiler/plan/overwrite.h"

#include <algorithm>

#include "compiler/graph/fuse_check.h"
#include "ir/graph/fused.h"

namespace stepc {
namespace {

bool is_row_sum(const Program& program, const Group& group, const Node& node) {
  return group.schedule == Template::row && op_info(node.op).family == OpFamily::reduction &&
         !is_small_reduction(program, node) && reduction_axes(program, node) == ReductionAxes::trailing;
}

// Rows are summed in vectors of a power of two and a shorter one. Where that is one element, every thread of a GPU
// reads it for itself and none waits for the others, one of which will store over it.
bool has_lone_element(const Program& program, const Node& sum) {
  const int64_t elements = numel(program.type(sum.operands[0]).shape);
  const int64_t rows = numel(program.type(sum.results[0]).shape);
  return rows > 0 && elements / rows % 2 != 0;
}

}  // namespace

bool can_overwrite(const Program& program, const Group& group, ValueId old, ValueId result) {
  if (group.schedule != Template::pointwise && group.schedule != Template::row) return false;
  const TensorType &from = program.type(old), &to = program.type(result);
  if (from.shape != to.shape || dtype_bytes(from.dtype) != dtype_bytes(to.dtype)) return false;
  std::vector<bool> depends(program.values.size(), false);  // element by element
  depends[index_of(old)] = true;
  for (NodeId id : group.nodes) {
    const Node& node = program.node(id);
    const auto reads = [&](ValueId operand) { return depends[index_of(operand)]; };
    if (std::none_of(node.operands.begin(), node.operands.end(), reads)) continue;
    if (is_row_sum(program, group, node)) {
      if (has_lone_element(program, node)) return false;
      continue;
    }
    if (op_info(node.op).family != OpFamily::pointwise) return false;
    for (ValueId made : node.results) depends[index_of(made)] = true;
  }
  if (!depends[index_of(result)]) return false;
  const std::vector<ValueId> results = group_results(program, group);
  return std::none_of(results.begin(), results.end(),
                      [&](ValueId other) { return other != result && depends[index_of(other)]; });
}

}  // namespace stepc
