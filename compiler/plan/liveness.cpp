#include "compiler/plan/liveness.h"

#include <algorithm>

namespace stepc {

void mark_live_steps(Plan& plan) {
  const auto use = [&](int index, int step) {
    PlanBuffer& buffer = plan.buffers[static_cast<size_t>(index)];
    if (buffer.first_step < 0) buffer.first_step = step;
    buffer.last_step = step;
  };
  for (PlanBuffer& buffer : plan.buffers) buffer.first_step = buffer.last_step = -1;
  for (int s = 0; s < static_cast<int>(plan.steps.size()); ++s) {
    const PlanStep& step = plan.steps[static_cast<size_t>(s)];
    for (const std::vector<int>& uses : {step_reads(step), step_writes(step)})
      for (int index : uses) {
        use(index, s);
        if (const int root = root_buffer(plan, index); root != index) use(root, s);
      }
  }
}

std::vector<int64_t> live_bytes_by_step(const Plan& plan) {
  std::vector<int64_t> live(plan.steps.size(), 0);
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.arena != PlanArena::activations || buffer.alias_of >= 0 || buffer.first_step < 0) continue;
    for (int s = buffer.first_step; s <= buffer.last_step; ++s) live[static_cast<size_t>(s)] += buffer.bytes;
  }
  return live;
}

}  // namespace stepc
