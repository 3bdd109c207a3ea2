// Fusion: groups a program's nodes into kernels.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Whether ops of the optimizer join the products that make their gradients, which then are never in memory. On a GPU a
// product's epilogue has to stream the moments to gain by it: where none does, updates stay apart
// (docs/performance.md).
enum class Updates : uint8_t { in_products, in_bf16_products, apart };

struct FuseOptions {
  Updates updates = Updates::in_products;
  // Does the template of this attention_grad also take what is done to its result? None does if not set.
  bool (*takes_tail)(const Program& program, const Node& gradient) = nullptr;
};

// Afterwards Program::groups holds every node that needs code, each group as fuse_check.h promises; the nodes of a
// group stand together, and groups and lone nodes in an order in which they can run. Nodes that are cheap to
// repeat (fuse_roles.h) were copied into every group that needs them; dead ones are gone. A reshape that only effects
// read stays outside of groups: it is the same memory.
//
// Three steps: give every node a role (fuse_prepare.h, fuse_roles.h), merge single ops into kernels as long as
// that saves traffic (fuse_merge.h), write the program anew.
// Requires a program without groups. Runs last but for `order`; dce, cse and fold should have run.
void fuse(Program& program, const FuseOptions& options = {});

}  // namespace stepc
