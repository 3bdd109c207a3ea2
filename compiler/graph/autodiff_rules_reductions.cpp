// Gradients of reductions. Elements that tie for the largest or smallest share the gradient equally.
#include "compiler/graph/autodiff_rules.h"

namespace stepc {
namespace {

// A value of the reduced shape, repeated along the axes that the reduction took away.
ValueId spread(const GradInput& in, ValueId reduced) {
  const std::vector<int64_t> kept = other_axes(in.shape().size(), in.node.attrs.integers(AttrKey::axes));
  return in.builder.broadcast(reduced, Shape(in.shape()), kept);
}

Gradients grad_extremum(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] {
    const ValueId attained = b.binary(Op::equal, in.x(), spread(in, in.y()));
    const ValueId ties = b.reduce(Op::reduce_sum, b.cast(attained, Dtype::f32), in.node.attrs.integers(AttrKey::axes));
    const ValueId share = spread(in, b.div(in.cotangent(), ties));
    return b.select(attained, share, in.zeros(in.shape()));
  }});
}

}  // namespace

Gradients grad_reduce_sum(const GradInput& in) {
  return in.each({[&] { return spread(in, in.cotangent()); }});
}

Gradients grad_reduce_max(const GradInput& in) { return grad_extremum(in); }
Gradients grad_reduce_min(const GradInput& in) { return grad_extremum(in); }

}  // namespace stepc
