// Graph IR as text. parse_module(print_module(m)) gives m again.
#pragma once

#include <string>

#include "ir/graph/graph.h"

namespace stepc {

std::string type_text(const TensorType& type);  // "f32[8, 256]"
std::string print_module(const Module& module);
std::string print_program(const Program& program);
std::string print_node(const Program& program, const Node& node);

}  // namespace stepc
