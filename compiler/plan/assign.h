// Which assignments can write straight into their parameter or state. Safe means that nobody can see the
// difference to "every reader sees the old value, the new one is committed at the end":
//  - the assigned value is made by a group (directly, or reshaped outside of groups afterwards) and is no
//    other assignment's in-place value;
//  - every other group that reads the old value runs before that group;
//  - the group itself is pointwise, or a contraction or column sum that ends in pointwise ops, and reads the old
//    value only through pointwise ops: at the very index that it then writes.
#pragma once

#include "ir/graph/fused.h"
#include "ir/graph/graph.h"

namespace stepc {

// The value that holds the bytes of each value: itself, or what a chain of reshapes outside of groups starts
// from.
std::vector<ValueId> root_values(const Program& program);

// Whether a kernel of the group's template may write the new value over the one that it reads: where it reads an
// element by pointwise ops alone, it writes it afterwards and in the same task.
bool can_assign_in_place(const Group& group);

// For every node: true if it is an assign that can be done in place. `order` is the order of execution.
std::vector<bool> in_place_assigns(const Program& program, const std::vector<Unit>& order);

}  // namespace stepc
