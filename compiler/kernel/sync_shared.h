// Puts a barrier (sync_task) where threads of a CTA hand data to one another through memory: between two accesses to
// the same elements of which one writes, unless the same thread makes both. For kernels of one role from the
// templates of core ops, which know nothing of threads. Requires a verified kernel with as many warps as it will run
// with; runs last of the scheduler's steps, since moving ops would undo it.
#pragma once

#include "ir/kernel/kernel.h"

namespace stepc {

kernel::Kernel sync_shared(kernel::Kernel kernel);

}  // namespace stepc
