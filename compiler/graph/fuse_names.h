// Names of kernels.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Names each group after what it makes: its phase and the name of its main result, the largest (of several, the last)
// without the numbers that made it unique; then a number of its own where that is taken.
void name_groups(Program& program);

}  // namespace stepc
