// Groups that need no products: the templates of core ops, which the host shares, with the widths of a GPU.
#pragma once

#include "compiler/schedule/schedule.h"

namespace stepc::cuda {

Result<ScheduledKernel> schedule_one_role(const Program& program, const Group& group);

}  // namespace stepc::cuda
