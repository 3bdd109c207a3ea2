// Hopper's templates. Each says nothing (nullopt) where a group is not for it: the portable one takes it then.
#pragma once

#include <optional>

#include "compiler/schedule/schedule.h"

namespace stepc::sm90 {

Result<std::optional<ScheduledKernel>> schedule_gemm(const Program& program, const Group& group,
                                                     const GpuTarget& target);
Result<std::optional<ScheduledKernel>> schedule_attention(const Program& program, const Group& group,
                                                          const GpuTarget& target);
Result<std::optional<ScheduledKernel>> schedule_attention_grad(const Program& program, const Group& group,
                                                               const GpuTarget& target);
// Whether the template makes what follows an attention_grad in its group (fuse_check.h) as it stores the gradient.
bool attention_grad_takes_tail(const Program& program, const Node& gradient);

}  // namespace stepc::sm90
