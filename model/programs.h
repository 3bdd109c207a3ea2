// The model as a module of graph IR: parameters and states, and the programs over them.
//
//   init         seed i32[] -> every parameter and state
//   step         one update of one batch, gradients never stored (accumulation = 1)
//   gradients    the gradients of one batch by parameter (build_gradient_module)
//   micro_step   adds a batch's gradients into states; update: applies and clears them (accumulation > 1)
//   eval         the loss of a batch
//   sample       the logits after a position of one sequence, every expert taking all its tokens
//
// Inputs and outputs by name; scalars are f32[]:
//   tokens, targets   i32[B, T]; sample: tokens i32[1, T], position i32[1]
//   lr, inv_bias1, inv_bias2, aux_coefficient (unless dense): step_scalars of schedule.h
//   loss, aux (unless dense), count.<layer> i32[E] (assignments before dropping), grad_norm (where clipped),
//   logits f32[vocab], choices.<layer> i32[B T, K] (where told, and in gradients; the experts of each token),
//   in gradients every parameter's by its name
#pragma once

#include <functional>

#include "ir/graph/builder.h"
#include "model/config.h"

namespace stepc {

// Appends the gradient of `loss` by each of `wrt` to the builder's program; gradients are f32. Passed in,
// since automatic differentiation belongs to the compiler.
using Differentiate = std::function<std::vector<ValueId>(GraphBuilder&, ValueId loss, const std::vector<ValueId>& wrt)>;

// Without `differentiate` the training programs are left out. CHECKs that the configuration is valid. Told to, training
// programs also put out which experts each token was sent to.
Module build_module(const Config& config, const Differentiate& differentiate, bool tells_choices = false);

// Parameters alone, with the programs `init` and `gradients`.
Module build_gradient_module(const Config& config, const Differentiate& differentiate);

// The share of assignments that found a slot, from a layer's counts.
double kept_share(const std::vector<int64_t>& counts, int64_t capacity);

}  // namespace stepc
