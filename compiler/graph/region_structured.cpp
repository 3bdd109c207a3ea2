#include "compiler/graph/region_structured.h"

#include <algorithm>

#include "compiler/graph/region_walk.h"
#include "ir/graph/print.h"

namespace stepc {
namespace {

// Templates that run one op.
class LoneWalk : public RegionWalk {
 public:
  LoneWalk(const Program& program, const Region& region, Op op) : RegionWalk(program, region), op_(op) {}

  Result<RegionFacts> run() {
    for (ValueId result : region_.results) {
      if (!inside(result) || program_.producer(result).op != op_)
        return tl::unexpected(error(program_.producer(result), "not a result of this kernel's op"));
      STEPC_TRY(read(result, {}));
    }
    RegionFacts facts;
    facts.tasks = 1e6;
    return facts;
  }

 protected:
  Status anchor(NodeId id, const TensorIndex&) override {
    const Node& node = program_.node(id);
    if (node.op != op_) return tl::unexpected(error(node, "in a kernel of another op"));
    return read_operands(node);
  }

 private:
  Op op_;
};

// Attention's gradient, with what is done to it on its way to memory.
class GradientTailWalk : public RegionWalk {
 public:
  GradientTailWalk(const Program& program, const Region& region, const Node& gradient)
      : RegionWalk(program, region), gradient_(gradient) {}

  Result<RegionFacts> run() {
    for (NodeId id : region_.nodes) STEPC_TRY(check_node(program_.node(id)));
    const Shape& shape = program_.type(gradient_.results[0]).shape;
    column_ = math.variable(shape.back());
    row_ = math.variable(numel(shape) / std::max<int64_t>(shape.back(), 1));
    if (region_.results.size() != 1)
      return user_error("expected one result of attention's gradient, found {}", region_.results.size());
    ValueId from = region_.results[0];
    for (; inside(from) && program_.producer(from).op == Op::reshape; from = program_.producer(from).operands[0])
      visit(program_.value(from).producer);
    const TensorType& type = program_.type(from);
    if (type.dtype != Dtype::bf16 || numel(type.shape) != numel(shape))
      return tl::unexpected(error(program_.producer(from), fmt::format("expected bf16 of {} elements, found {}",
                                                                       numel(shape), type_text(type))));
    STEPC_TRY(read(from, math.at_linear(element(column_), type.shape)));
    RegionFacts facts;
    facts.tasks = 1e6;
    return facts;
  }

 protected:
  Status anchor(NodeId id, const TensorIndex& at) override {
    const Node& node = program_.node(id);
    if (&node != &gradient_) return tl::unexpected(error(node, "in a kernel of another op"));
    const Shape& shape = program_.type(node.results[0]).shape;
    const bool pairs = shape.back() % 2 == 0 && at == math.at_linear(element(neighbour(column_)), shape);
    if (at != math.at_linear(element(column_), shape) && !pairs)
      return tl::unexpected(error(node, "it is read at an element that is neither the current one nor in its pair"));
    return read_operands(node);
  }

 private:
  // Arithmetic and views of few operands: registers are scarce.
  Status check_node(const Node& node) const {
    const OpFamily family = op_info(node.op).family;
    const bool evaluated = node.op == Op::constant || node.op == Op::iota || family == OpFamily::pointwise ||
                           (family == OpFamily::view && node.op != Op::concat && node.op != Op::pad);
    if (&node == &gradient_ || evaluated) return {};
    return tl::unexpected(error(node, "not after attention's gradient in one kernel"));
  }

  AxisIndex element(const AxisIndex& column) const {
    return axis_add(axis_scale(row_, program_.type(gradient_.results[0]).shape.back()), column);
  }

  const Node& gradient_;
  AxisIndex row_;
  AxisIndex column_;
};

}  // namespace

Result<RegionFacts> analyse_lone(const Program& program, const Region& region, Op op) {
  return finish(LoneWalk(program, region, op));
}

Result<RegionFacts> analyse_attention_grad(const Program& program, const Region& region) {
  auto alone = analyse_lone(program, region, Op::attention_grad);
  for (NodeId id : region.nodes)
    if (!alone && program.node(id).op == Op::attention_grad)
      return finish(GradientTailWalk(program, region, program.node(id)));
  return alone;
}

}  // namespace stepc
