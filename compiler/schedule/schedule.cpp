#include "compiler/schedule/schedule.h"

#include <algorithm>

#include "compiler/graph/fuse_check.h"
#include "compiler/schedule/host/templates.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

// Row groups whose reductions are all small enough to be written out make vectors across rows instead.
bool has_only_small_reductions(const Program& program, const Group& group) {
  return std::all_of(group.nodes.begin(), group.nodes.end(), [&](NodeId id) {
    const Node& node = program.node(id);
    return op_info(node.op).family != OpFamily::reduction || is_small_reduction(program, node);
  });
}

Result<host::Draft> build(const host::Problem& problem) {
  switch (problem.group.schedule) {
    case Template::pointwise: return host::build_pointwise(problem);
    case Template::row:
      if (has_only_small_reductions(problem.program, problem.group)) return host::build_pointwise(problem);
      return host::build_row(problem);
    case Template::column_sum: return host::build_column_sum(problem);
    case Template::scatter: return host::build_scatter(problem);
    case Template::route: return host::build_route(problem);
    case Template::matmul: return host::build_matmul(problem);
    case Template::attention: return host::build_attention(problem);
    case Template::attention_grad: return host::build_attention_grad(problem);
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(problem.group.schedule));
}

}  // namespace

Result<ScheduledKernel> schedule_host(const Program& program, const Group& group, const HostTarget& target) {
  const host::Problem problem{program, group, target, group_operands(program, group), group_results(program, group)};
  STEPC_ASSIGN(std::string text, group_problem(program, group));
  STEPC_ASSIGN(host::Draft draft, build(problem));
  ScheduledKernel scheduled;
  scheduled.kernel = std::move(draft.kernel);
  scheduled.operands = problem.operands;
  scheduled.results = problem.results;
  scheduled.grid = draft.built.grid;
  scheduled.problem = std::move(text);
  scheduled.config = std::move(draft.built.config);
  return scheduled;
}

}  // namespace stepc
