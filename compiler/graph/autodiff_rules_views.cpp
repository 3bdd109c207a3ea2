// Gradients of views: each is the view that undoes it, of any dtype; only broadcast does arithmetic, and
// sums in f32. The gradients of slices that cover a value are put side by side.
#include <algorithm>

#include "compiler/graph/autodiff_rules.h"

namespace stepc {
namespace {

constexpr size_t kMaxParts = 64;  // of a concat

// The one axis along which `part` is shorter than `whole`; nullopt where there is not exactly one.
std::optional<size_t> cut_axis(const Shape& whole, const Shape& part) {
  std::optional<size_t> axis;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == part[i]) continue;
    if (axis) return std::nullopt;
    axis = i;
  }
  return axis;
}

}  // namespace

ValueId join_slices(GraphBuilder& builder, std::vector<ValueId> padded, Dtype dtype) {
  if (padded.size() < 2 || padded.size() > kMaxParts) return ValueId::none;
  const Program& program = builder.program();
  const auto part = [&](ValueId id) { return program.producer(id).operands[0]; };
  const auto low = [&](ValueId id) { return program.producer(id).attrs.integers(AttrKey::low); };
  for (ValueId id : padded)
    if (program.producer(id).op != Op::pad || program.type(id) != program.type(padded[0])) return ValueId::none;
  // By place; an empty part comes before the one that starts where it is.
  std::stable_sort(padded.begin(), padded.end(), [&](ValueId a, ValueId b) {
    return std::pair(low(a), program.type(part(a)).shape) < std::pair(low(b), program.type(part(b)).shape);
  });

  const Shape& whole = program.type(padded[0]).shape;
  const auto axis = cut_axis(whole, program.type(part(padded[0])).shape);
  if (!axis) return ValueId::none;
  std::vector<int64_t> reached(whole.size(), 0);
  std::vector<ValueId> parts;
  for (ValueId id : padded) {
    const Shape& shape = program.type(part(id)).shape;
    if (low(id) != reached || cut_axis(whole, shape) != axis) return ValueId::none;
    reached[*axis] += shape[*axis];
    parts.push_back(part(id));
  }
  if (reached[*axis] != whole[*axis]) return ValueId::none;
  for (ValueId& id : parts) id = builder.cast(id, dtype);
  return builder.emit1(Op::concat, parts, {{AttrKey::axis, static_cast<int64_t>(*axis)}});
}

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
