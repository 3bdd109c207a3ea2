// Folding: constants are computed, and operations that change nothing or undo each other go.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Every rule is exact to the bit, signed zeros included, and never costs more than what it replaces; the rules
// are listed in fold.cpp. Constants are computed by the reference evaluator in f32, so they are what the
// program would have computed. Idempotent. Requires a program without kernel groups whose gradients are taken
// (stop_gradient disappears). Runs first: it gives constants and views one spelling, for cse to find equal ones. Leaves
// dead nodes to dce.
void fold(Program& program);

}  // namespace stepc
