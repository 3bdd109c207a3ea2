// The portable templates of matrix products (sm_80 and later). Each builds the kernel of one group, or says why it
// cannot.
#pragma once

#include "compiler/schedule/region/matmul_group.h"
#include "compiler/schedule/schedule.h"

namespace stepc::cuda {

Result<ScheduledKernel> schedule_matmul(const Program& program, const Group& group, const GpuTarget& target);
// Products of few k have a template of their own, which is tried first.
bool is_short(const Program& program, const Group& group, const MatmulGroup& matmul);
Result<ScheduledKernel> schedule_short_matmul(const Program& program, const Group& group, const MatmulGroup& matmul);
// So have products of few columns and many k.
bool is_narrow(const MatmulGroup& matmul);
Result<ScheduledKernel> schedule_narrow_matmul(const Program& program, const Group& group, const MatmulGroup& matmul);
// And products of a long bf16 operand with few columns of f32.
bool is_of_parts(const MatmulGroup& matmul);
Result<ScheduledKernel> schedule_matmul_of_parts(const Program& program, const Group& group, const MatmulGroup& matmul);
Result<ScheduledKernel> schedule_attention(const Program& program, const Group& group);
Result<ScheduledKernel> schedule_attention_grad(const Program& program, const Group& group);

}  // namespace stepc::cuda
