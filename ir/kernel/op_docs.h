// docs/kernel_ops.md, made from the op table. A test keeps the file up to date.
#pragma once

#include <string>

namespace stepc::kernel {

std::string op_table_markdown();

}  // namespace stepc::kernel
