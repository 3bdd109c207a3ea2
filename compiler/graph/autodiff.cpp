// The reverse sweep: mark what depends on `wrt`, then visit the nodes from the loss backwards, so that a
// value's cotangent is complete (all its readers have been visited) before its producer is.
#include "compiler/graph/autodiff.h"

#include <algorithm>
#include <array>

#include "compiler/graph/autodiff_rules.h"
#include "ir/graph/print.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

constexpr std::array<GradRule, kOpCount> kRules = {
#define OP(name, family, operands, results, attrs, shape_rule, gradient_rule, error, doc) &grad_##gradient_rule,
#include "ir/graph/graph_ops.def"
#undef OP
};

GradRule rule_of(Op op) { return kRules[static_cast<size_t>(op)]; }
bool lets_gradient_through(Op op) { return rule_of(op) != &grad_none && rule_of(op) != &grad_effect; }
bool is_real(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::bf16; }

class ReverseSweep {
 public:
  ReverseSweep(GraphBuilder& builder, const std::vector<ValueId>& wrt);
  std::vector<ValueId> run(ValueId loss, const std::vector<ValueId>& wrt);

 private:
  struct Flow {
    bool active = false;        // depends on `wrt`
    bool of_parameter = false;  // a parameter of `wrt`, or a view of one
    bool complete = false;      // `cotangent` is final
    ValueId cotangent = ValueId::none;
    std::vector<ValueId> contributions;
  };

  Flow& flow(ValueId id) { return flows_[index_of(id)]; }
  Dtype cotangent_dtype(ValueId id) { return flow(id).of_parameter ? Dtype::f32 : builder_.type(id).dtype; }
  void mark_active(const Node& node);
  void visit(const Node& node);
  ValueId complete(ValueId id);
  ValueId added(const std::vector<ValueId>& contributions);
  ValueId zeros(ValueId like);

  GraphBuilder& builder_;
  std::vector<Flow> flows_;  // of the values that exist before the sweep
};

ReverseSweep::ReverseSweep(GraphBuilder& builder, const std::vector<ValueId>& wrt)
    : builder_(builder), flows_(builder.program().values.size()) {
  const Program& program = builder_.program();
  for (ValueId id : wrt) {
    STEPC_CHECK(is_real(program.type(id).dtype), "gradient with respect to %{}: {}", program.value(id).name,
                type_text(program.type(id)));
    flow(id).active = true;
    flow(id).of_parameter = program.producer(id).op == Op::param;
  }
  for (const Node& node : program.nodes) mark_active(node);
}

void ReverseSweep::mark_active(const Node& node) {
  if (!lets_gradient_through(node.op)) return;
  const auto active = [&](ValueId id) { return flow(id).active; };
  const auto of_parameter = [&](ValueId id) { return flow(id).of_parameter; };
  if (std::none_of(node.operands.begin(), node.operands.end(), active)) return;
  const bool is_view = op_info(node.op).family == OpFamily::view;
  for (ValueId id : node.results) {
    if (!is_real(builder_.type(id).dtype)) continue;
    flow(id).active = true;
    if (is_view && std::any_of(node.operands.begin(), node.operands.end(), of_parameter)) flow(id).of_parameter = true;
  }
}

std::vector<ValueId> ReverseSweep::run(ValueId loss, const std::vector<ValueId>& wrt) {
  STEPC_CHECK(builder_.type(loss) == (TensorType{Dtype::f32, {}}), "the loss is {}, not f32[]",
              type_text(builder_.type(loss)));
  if (flow(loss).active) {
    builder_.set_name_hint("d_" + builder_.program().value(loss).name);
    flow(loss).contributions.push_back(builder_.constant(1.0, {Dtype::f32, {}}));
    const Program& program = builder_.program();
    for (size_t i = index_of(program.value(loss).producer) + 1; i-- > 0;) visit(Node(program.nodes[i]));
  }
  std::vector<ValueId> gradients;
  for (ValueId id : wrt) {
    const ValueId gradient = complete(id);
    gradients.push_back(gradient == ValueId::none ? zeros(id) : gradient);
  }
  return gradients;
}

void ReverseSweep::visit(const Node& node) {
  if (!lets_gradient_through(node.op)) return;
  GradInput in{builder_, node, {}, {}, {}};
  bool any_wanted = false;
  for (ValueId id : node.operands) {
    in.wanted.push_back(flow(id).active);
    in.dtypes.push_back(cotangent_dtype(id));
    any_wanted |= flow(id).active;
  }
  if (!any_wanted) return;
  bool any_cotangent = false;
  for (ValueId id : node.results) {
    in.cotangents.push_back(complete(id));
    any_cotangent |= in.cotangents.back() != ValueId::none;
  }
  if (!any_cotangent) return;
  const Gradients gradients = rule_of(node.op)(in);
  STEPC_CHECK(gradients.size() == node.operands.size(), "gradient rule of {}: {} gradients for {} operands",
              op_info(node.op).name, gradients.size(), node.operands.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] == ValueId::none || !in.wanted[i]) continue;
    const TensorType& type = builder_.type(gradients[i]);
    STEPC_CHECK(is_real(type.dtype) && type.shape == in.shape(i), "gradient rule of {}, operand {}: {} for {}",
                op_info(node.op).name, i + 1, type_text(type), type_text(builder_.type(node.operands[i])));
    flow(node.operands[i]).contributions.push_back(gradients[i]);
  }
}

// The cotangent of a value whose readers have all been visited; none where nothing flowed back to it.
ValueId ReverseSweep::complete(ValueId id) {
  Flow& at = flow(id);
  if (at.complete) return at.cotangent;
  at.complete = true;
  if (at.contributions.empty()) return ValueId::none;
  builder_.set_name_hint("d_" + builder_.program().value(id).name);
  ValueId sum = join_slices(builder_, at.contributions, cotangent_dtype(id));
  if (sum == ValueId::none) sum = added(at.contributions);
  at.cotangent = builder_.cast(sum, cotangent_dtype(id));
  return at.cotangent;
}

ValueId ReverseSweep::added(const std::vector<ValueId>& contributions) {
  ValueId sum = contributions[0];
  for (size_t i = 1; i < contributions.size(); ++i) {
    const ValueId left = builder_.cast(sum, Dtype::f32);
    sum = builder_.add(left, builder_.cast(contributions[i], Dtype::f32));
  }
  return sum;
}

ValueId ReverseSweep::zeros(ValueId like) {
  builder_.set_name_hint("d_" + builder_.program().value(like).name);
  return builder_.cast(builder_.constant(0.0, {Dtype::f32, builder_.shape(like)}), cotangent_dtype(like));
}

}  // namespace

Gradients GradInput::each(std::initializer_list<std::function<ValueId()>> contributions) const {
  STEPC_CHECK(contributions.size() == node.operands.size(), "{} contributions for {} operands of {}",
              contributions.size(), node.operands.size(), op_info(node.op).name);
  Gradients gradients;
  for (const auto& contribution : contributions) {
    const size_t i = gradients.size();
    if (wanted[i]) builder.set_name_hint("d_" + builder.program().value(x(i)).name);
    gradients.push_back(wanted[i] ? contribution() : ValueId::none);
  }
  return gradients;
}

Gradients grad_none(const GradInput& in) { STEPC_UNREACHABLE("no gradient through {}", op_info(in.node.op).name); }
Gradients grad_effect(const GradInput& in) { STEPC_UNREACHABLE("no gradient through {}", op_info(in.node.op).name); }

std::vector<int64_t> other_axes(size_t rank, const std::vector<int64_t>& axes) {
  std::vector<int64_t> others;
  for (int64_t axis = 0; axis < static_cast<int64_t>(rank); ++axis)
    if (!std::binary_search(axes.begin(), axes.end(), axis)) others.push_back(axis);
  return others;
}

std::vector<ValueId> differentiate(GraphBuilder& builder, ValueId loss, const std::vector<ValueId>& wrt) {
  const Phase phase = builder.phase();
  const std::string hint = builder.name_hint();
  builder.set_phase(Phase::backward);
  std::vector<ValueId> gradients = ReverseSweep(builder, wrt).run(loss, wrt);
  builder.set_phase(phase);
  builder.set_name_hint(hint);
  return gradients;
}

}  // namespace stepc
