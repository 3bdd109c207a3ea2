// The order in which the kernels of a fused program run.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Puts every kernel that reads the old value of a parameter or state before the one that makes its new value, where no
// circle forbids it, so that the new value can be written in place; otherwise keeps the order. Nodes are
// renumbered: groups and lone nodes run in the order of their nodes (unit_order in ir/graph/fused.h gives the same).
// Requires a fused program. Runs last.
void order(Program& program);

}  // namespace stepc
