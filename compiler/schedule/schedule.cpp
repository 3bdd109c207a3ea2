#include "compiler/schedule/schedule.h"

#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/overwritten.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

Result<host::Draft> build(const host::Problem& problem) {
  switch (problem.group.schedule) {
    case Template::pointwise:
    case Template::row:
    case Template::column_sum:
    case Template::scatter:
    case Template::route: return host::build_one_role(problem);
    case Template::matmul: return host::build_matmul(problem);
    case Template::attention: return host::build_attention(problem);
    case Template::attention_grad: return host::build_attention_grad(problem);
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(problem.group.schedule));
}

}  // namespace

Result<ScheduledKernel> schedule_host(const Program& program, const Group& group, const HostTarget& target) {
  const host::Problem problem{program,
                              group,
                              target,
                              schedule::host_widths(target),
                              group_operands(program, group),
                              group_results(program, group)};
  STEPC_ASSIGN(std::string text, group_problem(program, group));
  STEPC_ASSIGN(host::Draft draft, build(problem));
  ScheduledKernel scheduled;
  scheduled.kernel = std::move(draft.kernel);
  scheduled.operands = problem.operands;
  scheduled.results = problem.results;
  scheduled.grid = draft.built.grid;
  scheduled.problem = std::move(text);
  scheduled.config = std::move(draft.built.config);
  mark_overwritten(program, group, scheduled);
  return scheduled;
}

}  // namespace stepc
