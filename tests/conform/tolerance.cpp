#include "tests/conform/tolerance.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace stepc::test {
namespace {

constexpr double kLeastNormal = 1.1754944e-38;  // below it results may be flushed to 0
constexpr double kF32 = 1.2e-7;                 // the evaluator rounds, too
constexpr double kSums = 1e-5;                  // of the largest result: another order
constexpr double kRounding = 1.0 / 128;         // one of bf16
constexpr double kAttention = 0.01;             // P is rounded before it is divided by its row's sum, not after

double largest(const Tensor& tensor) {
  double most = 0;
  for (double x : tensor.data)
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  return most;
}

bool sums(const Program& program, const Node& node) {
  if (node.op == Op::reduce_sum) return numel(program.type(node.operands[0]).shape) > 0;
  return node.op == Op::matmul || node.op == Op::scatter_add_rows || node.op == Op::attention ||
         node.op == Op::attention_grad;
}

// Is something rounded to bf16 that the group goes on computing with?
bool rounds_inside(const Program& program, const Group& group) {
  std::set<ValueId> rounded;
  for (NodeId id : group.nodes) {
    const Node& node = program.node(id);
    for (ValueId operand : node.operands)
      if (rounded.contains(operand)) return true;
    for (ValueId result : node.results)
      if (program.type(result).dtype == Dtype::bf16 && (node.op == Op::cast || node.op == Op::matmul))
        rounded.insert(result);
  }
  return false;
}

// How much of its argument's relative error a sine or cosine shows: as much as the argument is large. A group that has
// one (RoPE's tables) makes the argument from its own indices, times what is 1 at most.
double largest_angle(const Program& program, const Group& group) {
  int64_t most = 0;
  bool turns = false;
  for (NodeId id : group.nodes) {
    const Node& node = program.node(id);
    turns = turns || node.op == Op::sin || node.op == Op::cos;
    if (node.op == Op::iota)
      most =
          std::max(most, program.type(node.results[0]).shape[static_cast<size_t>(node.attrs.integer(AttrKey::axis))]);
  }
  return turns ? static_cast<double>(most) : 0;
}

}  // namespace

Tolerance tolerance_of(const Program& program, const Group& group, const Tensor& wanted) {
  if (wanted.type.dtype == Dtype::i32 || wanted.type.dtype == Dtype::pred) return {};
  double errors = 0;
  bool is_sum = false;
  for (NodeId id : group.nodes) {
    const Node& node = program.node(id);
    errors += op_info(node.op).relative_error;
    is_sum = is_sum || sums(program, node);
  }
  if (errors == 0 && !is_sum) return {};  // every op is correctly rounded: the same bits
  const double scale = largest(wanted);
  if (group.nodes.size() == 1 && !is_sum) {
    const Op op = program.node(group.nodes[0]).op;
    const bool is_absolute = op == Op::sin || op == Op::cos;
    return {errors + kF32, is_absolute ? errors + kF32 : kLeastNormal};
  }
  Tolerance tolerance{4 * (errors + kF32), kLeastNormal + 4 * errors * scale};
  tolerance.absolute += largest_angle(program, group) * (errors + kF32);
  if (is_sum) tolerance.absolute += kSums * scale;
  if (rounds_inside(program, group)) tolerance.absolute += kRounding * scale;
  const bool attends = group.schedule == Template::attention || group.schedule == Template::attention_grad;
  if (attends && wanted.type.dtype == Dtype::bf16) tolerance.absolute += kAttention * scale;
  return tolerance;
}

}  // namespace stepc::test
