// The order in which a program's kernels run, chosen for memory.
#pragma once

#include "ir/graph/fused.h"
#include "ir/graph/graph.h"

namespace stepc {

// The program's own order, with every kernel that frees more activation bytes than it needs moved to the
// earliest place where it can run: weight gradients and the optimizer's updates then follow the backward
// kernel that completes them, instead of keeping its results alive to the end of the step. An assignment
// that can be in place in the program's order still can. Requires a program without circles.
std::vector<Unit> memory_order(const Program& program);

}  // namespace stepc
