// Products of few k, written out where they are read.
#include <algorithm>

#include "compiler/schedule/region/region.h"

namespace stepc::schedule {

// Fused multiply-adds in ascending k, from zero.
Fragment Region::product(ValueId value, const Node& node, const Position& where) {
  const bool transpose_a = node.attrs.flag(AttrKey::transpose_a);
  const bool transpose_b = node.attrs.flag(AttrKey::transpose_b);
  const size_t rank = where.size();
  const int64_t depth = program_.type(node.operands[0]).shape[transpose_a ? rank - 2 : rank - 1];
  if (depth > kUnrolledReduction) return unsupported(value, "a product that the template does not make");
  const auto element = [&](size_t operand, size_t k_axis, size_t own_axis, const LaneIndex& own, int64_t k) {
    Position at = where;
    at[k_axis] = {Index(k)};
    at[own_axis] = own;
    const Fragment made = this->at(node.operands[operand], at);
    return builder_.dtype(made) == Dtype::f32 ? made : builder_.cast(made, Dtype::f32);
  };
  Fragment sum = constant(0, Dtype::f32);
  for (int64_t k = 0; k < depth; ++k) {
    std::vector<Fragment> terms{
        element(0, transpose_a ? rank - 2 : rank - 1, transpose_a ? rank - 1 : rank - 2, where[rank - 2], k),
        element(1, transpose_b ? rank - 1 : rank - 2, transpose_b ? rank - 2 : rank - 1, where[rank - 1], k), sum};
    const bool any_wide =
        std::any_of(terms.begin(), terms.end(), [&](Fragment term) { return !builder_.shape(term).empty(); });
    if (any_wide)
      for (Fragment& term : terms) term = wide(term);
    sum = builder_.pointwise(kernel::Op::fma, terms);
  }
  const Dtype dtype = program_.type(value).dtype;
  return dtype == Dtype::f32 ? sum : builder_.cast(sum, dtype);
}

}  // namespace stepc::schedule
