// Reverse-mode differentiation. It runs while a program is being built, before any pass: it needs the
// forward nodes as their builder left them (stop_gradient included) and appends the backward ones.
#pragma once

#include <vector>

#include "ir/graph/builder.h"

namespace stepc {

// Appends nodes of phase backward to the builder's program that compute the gradient of `loss` (f32[]) with
// respect to each of `wrt` (f32 or bf16 values), and returns these; zeros where there is no path. Only what
// lies between `wrt` and `loss` is walked; attention's log-sum-exp must not. The builder's phase and name hint
// are as before afterwards.
//
// The gradient of a bf16 value is bf16: several contributions are added in f32, then rounded once. The
// gradient of a parameter is always f32, and so is that of any view of one: a product whose operand is a
// parameter gives its weight gradient in f32 without a rounding.
std::vector<ValueId> differentiate(GraphBuilder& builder, ValueId loss, const std::vector<ValueId>& wrt);

}  // namespace stepc
