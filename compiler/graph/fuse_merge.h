// Merges single ops into kernels.
#pragma once

#include <vector>

#include "compiler/graph/fuse.h"
#include "compiler/graph/fuse_graph.h"
#include "compiler/graph/region.h"

namespace stepc {

struct FusedKernel {
  Template schedule = Template::pointwise;
  std::vector<NodeId> nodes;  // with Role::kernel, ascending
};

// Starts with one kernel a node and merges two where the contract of the merged template holds (`analyse` is asked),
// no circle of kernels arises, and the merged kernel costs less than the two: bytes to and from memory, arithmetic
// as bytes, and a fixed price a kernel. Of the pairs of which one reads the other's result the one that saves most
// comes first; then kernels that only share operands; again until nothing changes.
//
std::vector<FusedKernel> merge_kernels(const FuseGraph& graph, const FuseOptions& options);

}  // namespace stepc
