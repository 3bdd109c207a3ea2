// Sums of pads that are concatenations.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// The gradient of slices that cover a tensor is a sum of pads: add(pad(a), pad(b), ..). Where the pads lie side by side
// along one axis and fill it, each element has one addend that is not a pad's zero: the sum becomes concat(a, b, ..),
// which a kernel stores piece by piece and no kernel ever adds. A cast of it goes to the pieces. So the gradient of
// SwiGLU's two halves is two stores, in the epilogue of the product before it.
//
// Exact but for the sign of zeros: -0 + 0 is +0, the concat keeps -0. Requires a program without groups; leaves dead
// nodes. Runs after fold and cse, right before fusion.
void concat_pads(Program& program);

}  // namespace stepc
