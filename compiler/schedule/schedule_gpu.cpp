// Which template takes a group on a GPU: Hopper's own where the architecture has it and the group fits, else a
// portable one.
#include <optional>

#include "compiler/schedule/cuda/one_role.h"
#include "compiler/schedule/cuda/templates.h"
#include "compiler/schedule/overwritten.h"
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

Result<ScheduledKernel> schedule_any(const Program& program, const Group& group, const GpuTarget& target) {
  if (target.has_sm90()) {
    STEPC_ASSIGN(std::optional<ScheduledKernel> hopper, schedule_hopper(program, group, target));
    if (hopper) return std::move(*hopper);
  }
  switch (group.schedule) {
    case Template::matmul: return cuda::schedule_matmul(program, group, target);
    case Template::attention: return cuda::schedule_attention(program, group);
    case Template::attention_grad: return cuda::schedule_attention_grad(program, group);
    case Template::pointwise:
    case Template::row:
    case Template::column_sum:
    case Template::scatter:
    case Template::route: return cuda::schedule_one_role(program, group);
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(group.schedule));
}

}  // namespace

Result<ScheduledKernel> schedule_gpu(const Program& program, const Group& group, const GpuTarget& target) {
  STEPC_ASSIGN(ScheduledKernel scheduled, schedule_any(program, group, target));
  mark_overwritten(program, group, scheduled);
  return scheduled;
}

}  // namespace stepc
