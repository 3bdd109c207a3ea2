#include "compiler/graph/fuse_names.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

std::string_view phase_prefix(Phase phase) {
  switch (phase) {
    case Phase::forward: return "fwd";
    case Phase::backward: return "bwd";
    case Phase::optimizer: return "opt";
  }
  STEPC_UNREACHABLE("phase {}", static_cast<int>(phase));
}

// "b0.attn.12" -> "b0.attn".
std::string without_number(std::string name) {
  for (;;) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) return name;
    const bool number = std::all_of(name.begin() + static_cast<ptrdiff_t>(dot) + 1, name.end(),
                                    [](char c) { return c >= '0' && c <= '9'; });
    if (!number) return name;
    name.resize(dot);
  }
}

// "qkv" for a kernel that reads the one parameter @blocks.0.qkv, else the name of the op that it is about, if there is
// one; "" otherwise.
std::string subject(const Program& program, const Group& group) {
  std::set<std::string> parameters;
  for (ValueId operand : group_operands(program, group)) {
    const Node& leaf = program.producer(operand);
    if (leaf.op == Op::param) parameters.insert(leaf.attrs.text(AttrKey::name));
  }
  if (parameters.size() == 1) return parameters.begin()->substr(parameters.begin()->rfind('.') + 1);
  for (NodeId id : group.nodes) {
    const Op op = program.node(id).op;
    const bool structured = op_info(op).family == OpFamily::structured;
    if (structured || op == Op::scatter_add_rows) return std::string(op_info(op).name);
  }
  return "";
}

std::string base_name(const Program& program, const Group& group) {
  const std::vector<ValueId> results = group_results(program, group);
  STEPC_CHECK(!results.empty(), "program @{}: a kernel without results", program.name);
  ValueId main = results[0];
  for (ValueId result : results)
    if (numel(program.type(result).shape) >= numel(program.type(main).shape)) main = result;
  const std::string& full = program.value(main).name;
  const std::string name = without_number(full);
  const std::string base = fmt::format("{}.{}", phase_prefix(program.producer(main).phase), name);
  // A number was one of many values under one hint: say which.
  const std::string about = name == full ? "" : subject(program, group);
  const bool says_it = about.empty() || (base + ".").find("." + about + ".") != std::string::npos;
  return says_it ? base : base + "." + about;
}

}  // namespace

void name_groups(Program& program) {
  std::map<std::string, int> used;
  for (Group& group : program.groups) {
    const std::string base = base_name(program, group);
    const int count = used[base]++;
    group.name = count == 0 ? base : fmt::format("{}.{}", base, count);
  }
}

}  // namespace stepc
