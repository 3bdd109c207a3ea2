// What every kernel must satisfy: ids in range and defined before use, operands and types as the op table
// says, bodies that yield what they carry, barriers that exist, no op of another target, and no access that
// is provably out of bounds.
#pragma once

#include <string>
#include <vector>

#include "ir/kernel/kernel.h"

namespace stepc::kernel {

Status verify(const Kernel& kernel);

// Accesses of which ranges do not prove that they stay inside their buffers, as readers' text. The verifier
// lets these pass: they may be right by facts that the kernel does not state.
std::vector<std::string> unproved_accesses(const Kernel& kernel);

}  // namespace stepc::kernel
