// Where the time of profiled runs went, as a table by kernel.
#pragma once

#include <string>
#include <vector>

#include "runtime/executor.h"

namespace stepc {

// Kernels by falling time: share, time of a run, FLOP rate and byte rate.
std::string profile_text(const std::vector<StepTime>& times);

}  // namespace stepc
