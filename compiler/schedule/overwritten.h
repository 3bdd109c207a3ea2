// Tells a kernel which of its operands may be overwritten by its results while it runs, so that its code does not take
// their memory for constant: on a GPU they must not be read by ld.global.nc.
#pragma once

#include "compiler/schedule/schedule.h"

namespace stepc {

// Marks the operands that a plan of the program may place where one of the group's results is written, whatever its
// order of kernels: it has not been made yet.
void mark_overwritten(const Program& program, const Group& group, ScheduledKernel& scheduled);

}  // namespace stepc
