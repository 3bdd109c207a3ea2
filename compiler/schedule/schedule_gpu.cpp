// Which template takes a group on a GPU: Hopper's own where the architecture has it and the group fits, else a
// portable one.
#include <optional>

#include "compiler/schedule/schedule.h"
#include "compiler/schedule/sm90/templates.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

Result<std::optional<ScheduledKernel>> schedule_hopper(const Program& program, const Group& group,
                                                       const GpuTarget& target) {
  switch (group.schedule) {
    case Template::matmul: return sm90::schedule_gemm(program, group, target);
    case Template::attention: return sm90::schedule_attention(program, group, target);
    case Template::attention_grad: return sm90::schedule_attention_grad(program, group, target);
    case Template::pointwise:
    case Template::row:
    case Template::column_sum:
    case Template::scatter:
    case Template::route: return std::optional<ScheduledKernel>();
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(group.schedule));
}

}  // namespace

Result<ScheduledKernel> schedule_gpu(const Program& program, const Group& group, const GpuTarget& target) {
  if (target.has_sm90()) {
    STEPC_ASSIGN(std::optional<ScheduledKernel> hopper, schedule_hopper(program, group, target));
    if (hopper) return std::move(*hopper);
  }
  STEPC_ASSIGN(const std::string problem, group_problem(program, group));
  return user_error("no template for {} takes {}", target.arch, problem);
}

}  // namespace stepc
