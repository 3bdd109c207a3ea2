#include "ir/graph/verify_groups.h"

#include <set>

#include "ir/graph/fused.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

bool needs_no_code(const Node& node) {
  return node.op == Op::input || node.op == Op::param || node.op == Op::state ||
         op_info(node.op).family == OpFamily::effect;
}

Status check_nodes(const Program& program, const Group& group, std::vector<bool>& taken) {
  if (group.nodes.empty()) return user_error("kernel @{}: expected at least one op, found none", group.name);
  NodeId last = NodeId::none;
  for (NodeId id : group.nodes) {
    if (index_of(id) >= program.nodes.size()) return user_error("kernel @{}: no node {}", group.name, index_of(id));
    const Node& node = program.node(id);
    const std::string_view op = op_info(node.op).name;
    if (id <= last) return user_error_at(node.where, "kernel @{}: its nodes are out of order at {}", group.name, op);
    if (needs_no_code(node)) return user_error_at(node.where, "kernel @{}: {} cannot be in a kernel", group.name, op);
    if (taken[index_of(id)]) return user_error_at(node.where, "kernel @{}: {} is in another kernel", group.name, op);
    taken[index_of(id)] = true;
    last = id;
  }
  return {};
}

}  // namespace

Status verify_groups(const Program& program) {
  std::set<std::string_view> names;
  std::vector<bool> taken(program.nodes.size(), false);
  for (const Group& group : program.groups) {
    if (!is_name(group.name)) return user_error("program @{}: '{}' is no name of a kernel", program.name, group.name);
    if (!names.insert(group.name).second)
      return user_error("program @{}: kernel @{} is defined twice", program.name, group.name);
    STEPC_TRY(check_nodes(program, group, taken));
    STEPC_TRY(group_problem(program, group));
  }
  if (!unit_order(program)) return user_error("program @{}: kernels depend on each other in a circle", program.name);
  return {};
}

}  // namespace stepc
