// Gradients of matmul: two products of the same kind. With C = op(A) op(B), where op transposes or not,
// dA = dC op(B)^T and dB = op(A)^T dC; where A is stored transposed its gradient is the transpose of that,
// (XY)^T = Y^T X^T, so flags alone say it and nothing is transposed in memory.
//
// The cotangent joins the products in the operands' dtype: one cast, which both share. A bf16 operand gets
// a bf16 product, rounded once, unless it is a parameter's view, whose gradient is f32.
//
// A count speaks of the rows of A and, where they are M, of dC. It goes to the products that have one of them first, as
// it is stored: there its rows are M or K again.
#include "compiler/graph/autodiff_rules.h"

namespace stepc {

Gradients grad_matmul(const GradInput& in) {
  GraphBuilder& b = in.builder;
  const bool a_transposed = in.node.attrs.flag(AttrKey::transpose_a);
  const bool b_transposed = in.node.attrs.flag(AttrKey::transpose_b);
  const ValueId lhs = in.x(0);
  const ValueId rhs = in.x(1);
  const bool counted = in.node.operands.size() == 3;
  const ValueId count_m = counted && !a_transposed ? in.x(2) : ValueId::none;
  b.set_name_hint("d_" + b.program().value(in.y()).name);
  const ValueId g = b.cast(in.cotangent(), b.type(lhs).dtype);
  const auto for_lhs = [&] {
    return a_transposed ? b.matmul(rhs, g, in.dtypes[0], b_transposed, true)
                        : b.matmul(g, rhs, in.dtypes[0], false, !b_transposed, count_m);
  };
  const auto for_rhs = [&] {
    const ValueId count = counted && !b_transposed ? in.x(2) : count_m;
    return b_transposed ? b.matmul(g, lhs, in.dtypes[1], true, a_transposed, count)
                        : b.matmul(lhs, g, in.dtypes[1], !a_transposed, false, count);
  };
  if (!counted) return in.each({for_lhs, for_rhs});
  return in.each({for_lhs, for_rhs, [] { return ValueId::none; }});
}

}  // namespace stepc
