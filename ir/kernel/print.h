// Kernel IR as text, the form of docs/kernels. parse_kernel(print_kernel(k)) gives k again.
#pragma once

#include <string>

#include "ir/kernel/kernel.h"

namespace stepc::kernel {

std::string print_kernel(const Kernel& kernel);
// One op; of one with bodies, the line that opens the first.
std::string print_op(const Kernel& kernel, const KOp& op);
// An index expression with no more parentheses than it needs.
std::string expr_text(const Kernel& kernel, ExprId id);

}  // namespace stepc::kernel
