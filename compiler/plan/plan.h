// From a fused program to its Plan: one launch step a group in unit order, copies where a value must move,
// every buffer at its offset. A pure function that needs no kernel's code, only each group's workspace, so
// memory can be planned for any target and size before anything is compiled.
//
// Where values go
//   persistent tensors  where the module's layout has them, the same for all programs
//   inputs, outputs     arena io; an output is written there by the kernel that makes it
//   reshape outside     an alias of its operand
//   last read           a result may overwrite an operand that nothing reads any more (overwrite.h)
//   assign              in place where that is safe (assign.h), else a buffer of its own and a copy at the end
//   everything else     arena activations, packed (pack.h)
#pragma once

#include "ir/graph/graph.h"
#include "ir/plan/plan.h"

namespace stepc {

struct LaterLaunch {
  int kernel = -1;
  int64_t grid = 0;
  std::vector<int64_t> scalars;
};
// What the planner needs to know of a group's kernel, and of those that run after it on the same buffers.
struct GroupLaunch {
  int kernel = -1;  // in the bundle; -1 before there is one
  int64_t grid = 0;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  std::vector<int64_t> scalars;
  int64_t workspace_bytes = 0;
  std::vector<LaterLaunch> later;
};

struct PlanOptions {
  int64_t alignment_bytes = 64;
  bool reorder = true;  // take memory_order (order.h) where it needs less than the program's own order
};

// For planning before kernels exist: operands and results from the groups, no workspace.
std::vector<GroupLaunch> unscheduled_launches(const Program& program);

// Persistent tensors one after the other in their arenas, in order of declaration.
Result<ModuleLayout> layout_persistents(const Module& module, const PlanOptions& options = {});

// `launches` has one entry per group. The plan is verified. An error names an op that is in no group.
Result<Plan> plan_program(const Program& program, const ModuleLayout& layout, const std::vector<GroupLaunch>& launches,
                          const PlanOptions& options = {});

}  // namespace stepc
