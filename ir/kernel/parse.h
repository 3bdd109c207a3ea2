// Reads kernel IR from text and checks it with the verifier. Errors name file, line and column, what was
// found and what was expected. Index expressions are kept as they are written.
#pragma once

#include <string>
#include <string_view>

#include "ir/kernel/kernel.h"

namespace stepc::kernel {

Result<Kernel> parse_kernel(std::string_view text, std::string file_name);

}  // namespace stepc::kernel
