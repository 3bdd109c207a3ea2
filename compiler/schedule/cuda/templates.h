// The portable templates of matrix products (sm_80 and later). Each builds the kernel of one group, or says why it
// cannot.
#pragma once

#include "compiler/schedule/schedule.h"

namespace stepc::cuda {

Result<ScheduledKernel> schedule_matmul(const Program& program, const Group& group, const GpuTarget& target);
Result<ScheduledKernel> schedule_attention(const Program& program, const Group& group);
Result<ScheduledKernel> schedule_attention_grad(const Program& program, const Group& group);

}  // namespace stepc::cuda
