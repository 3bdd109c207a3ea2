#include "compiler/graph/fuse_names.h"

#include <algorithm>
#include <map>

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

std::string base_name(const Program& program, const Group& group) {
  const std::vector<ValueId> results = group_results(program, group);
  STEPC_CHECK(!results.empty(), "program @{}: a kernel without results", program.name);
  ValueId main = results[0];
  for (ValueId result : results)
    if (numel(program.type(result).shape) >= numel(program.type(main).shape)) main = result;
  return fmt::format("{}.{}", phase_prefix(program.producer(main).phase), without_number(program.value(main).name));
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
