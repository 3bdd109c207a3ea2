// Names of kernels.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Names each group after what it makes: its phase and the name of its main result, the largest (of several, the last).
// Where that is one of many under one hint ("b0.attn.7"), the number gives way to the parameter that the group reads
// or the structured op in it: "fwd.b0.attn.qkv". Then a number of its own where the name is taken.
void name_groups(Program& program);

}  // namespace stepc
