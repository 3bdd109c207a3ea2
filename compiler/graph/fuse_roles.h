// Decides what fusion may evaluate more than once.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

enum class Role : uint8_t {
  outside,   // input, param, state, effects: no code
  alias,     // a reshape that only effects read: the same memory under another shape
  dead,      // nothing needs it
  repeated,  // evaluated again in every kernel that reads it; never in memory
  kernel,    // in exactly one kernel
};

// One role a node. Views, constants and iota are repeated, but for those that are read from memory. So are casts
// bf16 -> f32, scalars that depend on scalars alone, masks made of iota and constants, and other
// pointwise ops and gathers where evaluating them in each of their k readers costs no more than writing the result once
// and reading it k times:
//
//   work * (evaluations - 1) + source_bytes * (k - 1) <= result_bytes * k
//
// `evaluations` counts how often an element is evaluated in all: a broadcast multiplies it, so a table of
// sines that every row of a batch reads is made once. Where a source would itself have been needed nowhere else, or
// another phase reads the result (and the sources would have to live until then), source_bytes must not exceed
// result_bytes.
// Requires prepare_fusion.
std::vector<Role> fusion_roles(const Program& program);

}  // namespace stepc
