// Gradients of row gathers and of attention.
#include "compiler/graph/autodiff_rules.h"
#include "ir/support/check.h"

namespace stepc {

// Rows may repeat, so their gradients add up: a scatter. With `inverse` each row of x is read by at most
// one row n, namely inverse[r], and the gradient is the gather that swaps the two maps.
Gradients grad_gather_rows(const GradInput& in) {
  GraphBuilder& b = in.builder;
  const auto nothing = [] { return ValueId::none; };
  if (in.node.operands.size() == 3)
    return in.each({[&] { return b.emit1(Op::gather_rows, {in.cotangent(), in.x(2), in.x(1)}); }, nothing, nothing});
  const auto scatter = [&] {
    return b.emit1(Op::scatter_add_rows, {in.cotangent(), in.x(1)}, {}, {Dtype::f32, in.shape()});
  };
  return in.each({scatter, nothing});
}

// The log-sum-exp result is there for this rule to read; a loss that depends on it has no rule.
Gradients grad_attention(const GradInput& in) {
  GraphBuilder& b = in.builder;
  STEPC_CHECK(in.cotangents[1] == ValueId::none, "no gradient flows through attention's log-sum-exp");
  const ValueId g = b.cast(in.cotangents[0], Dtype::bf16);
  return in.each({[&] { return b.emit1(Op::attention_grad, {in.x(), in.y(0), in.y(1), g}, in.node.attrs); }});
}

}  // namespace stepc
