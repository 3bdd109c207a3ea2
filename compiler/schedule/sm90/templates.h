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

}  // namespace stepc::sm90
