// The printer: the exact inverse of the parser. Programs with kernel groups print in unit order, so that
// a group's nodes stand together.
#include "ir/graph/print.h"

#include <cmath>

#include "ir/graph/fused.h"

namespace stepc {
namespace {

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{}", value);  // shortest text that reads back as the same double
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else if (c == '\n')
      result += "\\n";
    else if (byte < 0x20 || byte == 0x7f)
      result += fmt::format("\\x{:02x}", byte);
    else
      result += c;
  }
  return result + "\"";
}

bool names_persistent(Op op) { return op == Op::param || op == Op::state || op == Op::assign; }

std::string attr_text(Op op, const Attrs::Entry& entry) {
  const AttrValue& value = entry.second;
  switch (static_cast<AttrKind>(value.index())) {
    case AttrKind::flag: return std::get<bool>(value) ? "true" : "false";
    case AttrKind::integer: return fmt::format("{}", std::get<int64_t>(value));
    case AttrKind::real: return real_text(std::get<double>(value));
    case AttrKind::integers: return shape_text(std::get<std::vector<int64_t>>(value));
    case AttrKind::text: break;
  }
  const std::string& text = std::get<std::string>(value);
  return names_persistent(op) ? "@" + text : quoted(text);
}

std::string attrs_text(const Node& node) {
  if (node.attrs.entries().empty()) return "";
  std::string text;
  for (const Attrs::Entry& entry : node.attrs.entries())
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", attr_name(entry.first), attr_text(node.op, entry));
  return " {" + text + "}";
}

std::string values_text(const Program& program, const std::vector<ValueId>& values) {
  std::string text;
  for (ValueId id : values) text += (text.empty() ? "%" : ", %") + program.value(id).name;
  return "(" + text + ")";
}

std::string group_text(const Program& program, const Group& group) {
  const Result<std::string> problem = group_problem(program, group);
  std::string text = fmt::format("  kernel @{} {} {} -> {} {{  // {} FLOPs, {} bytes\n", group.name,
                                 problem ? *problem : std::string(template_name(group.schedule)),
                                 values_text(program, group_operands(program, group)),
                                 values_text(program, group_results(program, group)), group_flops(program, group),
                                 group_bytes(program, group));
  for (NodeId id : group.nodes) text += "    " + print_node(program, program.node(id)) + "\n";
  return text + "  }\n";
}

std::string persistent_text(const Persistent& persistent) {
  const std::string type = type_text(persistent.type);
  if (persistent.is_param) return fmt::format("param @{}: {}\n", persistent.name, type);
  return fmt::format("state @{}: {} {}\n", persistent.name, type, arena_name(persistent.arena));
}

}  // namespace

std::string type_text(const TensorType& type) { return std::string(dtype_name(type.dtype)) + shape_text(type.shape); }

std::string print_node(const Program& program, const Node& node) {
  std::string text;
  for (ValueId id : node.results)
    text += fmt::format("{}%{}: {}", text.empty() ? "" : ", ", program.value(id).name, type_text(program.type(id)));
  if (!text.empty()) text += " = ";
  text += op_info(node.op).name;
  if (!node.operands.empty()) text += values_text(program, node.operands);
  text += attrs_text(node);
  if (node.phase != Phase::forward) text += fmt::format(" !{}", phase_name(node.phase));
  return text;
}

std::string print_program(const Program& program) {
  std::string text = fmt::format("program @{} {{\n", program.name);
  const auto order = unit_order(program);
  // A program with a circle between groups is printed too, for the error that reports it.
  if (!order) text += "  // kernels depend on each other in a circle: ungrouped\n";
  if (order) {
    for (const Unit& unit : *order)
      text += unit.group >= 0 ? group_text(program, program.groups[static_cast<size_t>(unit.group)])
                              : "  " + print_node(program, program.node(unit.node)) + "\n";
  } else {
    for (const Node& node : program.nodes) text += "  " + print_node(program, node) + "\n";
  }
  return text + "}\n";
}

std::string print_module(const Module& module) {
  std::string text = fmt::format("module {}\n", quoted(module.name));
  if (!module.persistents.empty()) text += "\n";
  for (const Persistent& persistent : module.persistents) text += persistent_text(persistent);
  for (const Program& program : module.programs) text += "\n" + print_program(program);
  return text;
}

}  // namespace stepc
