// Gradient rules, named by the op table's column: grad_<rule> gives, for one node, what it contributes to
// the cotangent of each operand. A rule without a definition does not link (autodiff.cpp expands the table
// to these names). Rules say only the mathematics: adding contributions and their final dtype is the
// caller's (autodiff.cpp), and common subexpressions are left to cse.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph/builder.h"

namespace stepc {

// One contribution per operand, f32 or bf16, of the operand's shape; ValueId::none: nothing flows to it.
using Gradients = std::vector<ValueId>;

// The node under differentiation and where its gradient is appended.
struct GradInput {
  GraphBuilder& builder;
  Node node;                        // a copy: appending nodes moves the program's pool
  std::vector<ValueId> cotangents;  // one per result; none: the loss does not depend on it
  std::vector<bool> wanted;         // one per operand: a gradient is asked for
  std::vector<Dtype> dtypes;        // one per operand: of its cotangent (autodiff.h)

  ValueId x(size_t i = 0) const { return node.operands[i]; }
  ValueId y(size_t i = 0) const { return node.results[i]; }
  ValueId cotangent() const { return cotangents[0]; }
  const Shape& shape(size_t i = 0) const { return builder.shape(node.operands[i]); }

  // Calls the i-th function where operand i's gradient is wanted, naming what it appends after the operand.
  Gradients each(std::initializer_list<std::function<ValueId()>> contributions) const;
  // The cotangent of a single result, in f32.
  ValueId cotangent_f32() const { return builder.cast(cotangent(), Dtype::f32); }
  ValueId zeros(const Shape& like) const { return builder.constant(0.0, {Dtype::f32, like}); }
};
using GradRule = Gradients (*)(const GradInput&);

Gradients grad_none(const GradInput& in);    // no gradient flows: never called
Gradients grad_effect(const GradInput& in);  // no results: never called

// autodiff_rules_pointwise.cpp
Gradients grad_zero(const GradInput& in);
Gradients grad_neg(const GradInput& in);
Gradients grad_abs(const GradInput& in);
Gradients grad_exp(const GradInput& in);
Gradients grad_log(const GradInput& in);
Gradients grad_sqrt(const GradInput& in);
Gradients grad_rsqrt(const GradInput& in);
Gradients grad_sin(const GradInput& in);
Gradients grad_cos(const GradInput& in);
Gradients grad_tanh(const GradInput& in);
Gradients grad_logistic(const GradInput& in);
Gradients grad_cast(const GradInput& in);
Gradients grad_add(const GradInput& in);
Gradients grad_sub(const GradInput& in);
Gradients grad_mul(const GradInput& in);
Gradients grad_div(const GradInput& in);
Gradients grad_pow(const GradInput& in);
Gradients grad_max(const GradInput& in);
Gradients grad_min(const GradInput& in);
Gradients grad_fma(const GradInput& in);
Gradients grad_select(const GradInput& in);
// autodiff_rules_views.cpp
Gradients grad_reshape(const GradInput& in);
Gradients grad_transpose(const GradInput& in);
Gradients grad_broadcast(const GradInput& in);
Gradients grad_slice(const GradInput& in);
Gradients grad_pad(const GradInput& in);
Gradients grad_reverse(const GradInput& in);
Gradients grad_concat(const GradInput& in);
// autodiff_rules_reductions.cpp
Gradients grad_reduce_sum(const GradInput& in);
Gradients grad_reduce_max(const GradInput& in);
Gradients grad_reduce_min(const GradInput& in);
// autodiff_rules_contraction.cpp
Gradients grad_matmul(const GradInput& in);
// autodiff_rules_structured.cpp
Gradients grad_gather_rows(const GradInput& in);
Gradients grad_attention(const GradInput& in);

// A value taken apart by slices that cover it (gate and up; q, k and v) gets the gradients of its parts side by
// side, instead of the sum of as many padded ones: the concat of what is padded, each part first cast to
// `dtype`; none where the contributions are not of that kind. The pads are left to dce.
ValueId join_slices(GraphBuilder& builder, std::vector<ValueId> padded, Dtype dtype);

// The axes of a tensor of this rank that are not among `axes` (ascending).
std::vector<int64_t> other_axes(size_t rank, const std::vector<int64_t>& axes);

}  // namespace stepc
