// Reads graph IR from text, checks it with the verifier. Errors name file, line and column, what was
// found and what was expected.
#pragma once

#include <string_view>

#include "ir/graph/graph.h"

namespace stepc {

Result<Module> parse_module(std::string_view text, std::string file_name);

}  // namespace stepc
