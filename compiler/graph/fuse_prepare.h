// Readies a program for fusion.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Changes no result. Afterwards
// - no gather_rows has its `inverse`, which only its gradient needs,
// - the operands of a concat have equal shapes: others became pads and selections,
// - reductions that are not small are over adjacent axes: others get a transpose first,
// - a node that is free to evaluate (constant, iota, a view) is either read from memory (memory_base) or
//   evaluated inside kernels, and a reshape that an effect reads is read by effects only: of a node that would
//   be both there are two.
// Requires a program without groups. The first step of fuse.
void prepare_fusion(Program& program);

// Whether the node reads that operand from memory as a whole, rather than element by element where it needs it.
bool reads_memory(const Node& node, size_t operand);
// The value that must be in memory for such a read: before reshapes and, for a matmul, casts bf16 -> f32.
ValueId memory_base(const Program& program, const Node& node, size_t operand);
// constant, iota and views other than concat and reshape.
bool is_free(Op op);

}  // namespace stepc
