// Moves ops out of the loops that do not change them. Templates emit what they need where they need it, row
// scalars and wide constants among them; this puts each op in the outermost body where its operands are.
// Requires a verified kernel; the result verifies and means the same. Loads move past stores to other
// buffers: operands and results of a kernel share no memory, but for a result written over an operand, where
// each element is read only by what writes it. Runs last of the scheduler's steps.
#pragma once

#include "ir/kernel/kernel.h"

namespace stepc {

kernel::Kernel hoist_invariants(kernel::Kernel kernel);

}  // namespace stepc
