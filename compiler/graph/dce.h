// Dead code elimination.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Drops the nodes from which no output and no assign can be reached. Inputs stay: they are the program's
// interface. Requires a program without kernel groups. Runs after cse and fold, which leave dead nodes behind, and
// before fusion, which makes code for every node that it finds.
void dce(Program& program);

}  // namespace stepc
