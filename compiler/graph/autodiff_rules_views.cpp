// Gradients of views: each is the view that undoes it, of any dtype; only broadcast does arithmetic, and
// sums in f32.
#include "compiler/graph/autodiff_rules.h"

namespace stepc {

Gradients grad_reshape(const GradInput& in) {
  return in.each({[&] { return in.builder.reshape(in.cotangent(), in.shape()); }});
}

Gradients grad_transpose(const GradInput& in) {
  return in.each({[&] {
    const std::vector<int64_t>& permutation = in.node.attrs.integers(AttrKey::permutation);
    std::vector<int64_t> inverse(permutation.size());
    for (size_t i = 0; i < permutation.size(); ++i)
      inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
    return in.builder.transpose(in.cotangent(), inverse);
  }});
}

Gradients grad_broadcast(const GradInput& in) {
  return in.each({[&] {
    const ValueId g = in.cotangent_f32();
    const size_t rank = in.builder.shape(g).size();
    const std::vector<int64_t> added = other_axes(rank, in.node.attrs.integers(AttrKey::axes));
    return added.empty() ? g : in.builder.reduce(Op::reduce_sum, g, added);
  }});
}

Gradients grad_slice(const GradInput& in) {
  return in.each({[&] {
    const std::vector<int64_t>& limit = in.node.attrs.integers(AttrKey::limit);
    std::vector<int64_t> after(limit.size());
    for (size_t i = 0; i < limit.size(); ++i) after[i] = in.shape()[i] - limit[i];
    const Attrs attrs = {{AttrKey::low, in.node.attrs.integers(AttrKey::start)}, {AttrKey::high, after}};
    return in.builder.emit1(Op::pad, {in.cotangent()}, attrs);
  }});
}

Gradients grad_pad(const GradInput& in) {
  return in.each({[&] {
    const std::vector<int64_t>& low = in.node.attrs.integers(AttrKey::low);
    std::vector<int64_t> limit(low.size());
    for (size_t i = 0; i < low.size(); ++i) limit[i] = low[i] + in.shape()[i];
    return in.builder.emit1(Op::slice, {in.cotangent()}, {{AttrKey::start, low}, {AttrKey::limit, limit}});
  }});
}

Gradients grad_reverse(const GradInput& in) {
  return in.each({[&] { return in.builder.emit1(Op::reverse, {in.cotangent()}, in.node.attrs); }});
}

Gradients grad_concat(const GradInput& in) {
  const int64_t axis = in.node.attrs.integer(AttrKey::axis);
  Gradients gradients;
  int64_t start = 0;
  for (size_t i = 0; i < in.node.operands.size(); ++i) {
    const int64_t limit = start + in.shape(i)[static_cast<size_t>(axis)];
    in.builder.set_name_hint("d_" + in.builder.program().value(in.x(i)).name);
    gradients.push_back(in.wanted[i] ? in.builder.slice(in.cotangent(), axis, start, limit) : ValueId::none);
    start = limit;
  }
  return gradients;
}

}  // namespace stepc
