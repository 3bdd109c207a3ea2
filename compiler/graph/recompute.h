// Recomputation: a value that forward would keep in memory for backward is made again there.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

// A value that a forward kernel leaves in memory for kernels of backward or the optimizer, and that one pointwise
// kernel can make again: from leaves and from values that those phases read anyway (but for small ones).
struct RecomputeCandidate {
  ValueId value = ValueId::none;
  std::vector<NodeId> nodes;     // of the forward kernel that make it, ascending
  std::vector<ValueId> sources;  // in memory; some of them may be candidates too
  int64_t saved_bytes = 0;       // the value's, less those of sources that nothing else reads so late
  int64_t moved_bytes = 0;       // by the kernel that makes it again
  int64_t flops = 0;             // of the same
};

// In the order of the program. Pointwise ops, views, row gathers and small reductions are repeated: each gives the
// same bits in any kernel. Sums over many elements, products and structured ops are not.
// Requires a fused program.
std::vector<RecomputeCandidate> recompute_candidates(const Program& program);

// Makes these values again in kernels of their own, each before the first backward or optimizer kernel that reads
// it (or that makes another of them again from it); those kernels then read the copy, forward ones the original. All
// other kernels stay as they are, so every result has the same bits as before.
//
// Requires candidates of this fused program. Runs after fuse: only then it is known what is in memory, and nothing can
// merge the second making with the first any more. `order` runs once more after it: kernels that read a parameter's
// old value have been added.
void recompute(Program& program, const std::vector<RecomputeCandidate>& chosen);

}  // namespace stepc
