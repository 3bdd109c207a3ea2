// Common subexpression elimination.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Nodes of the same op, operands, attributes (to the bit) and result types become one: the first of them, under the
// earliest of their phases. Inputs and effects stay as they are. Requires a program without kernel groups. Runs after
// fold, which gives equal things one spelling; gradient rules count on it (they repeat what they need).
void cse(Program& program);

}  // namespace stepc
