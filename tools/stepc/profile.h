// Where the time of profiled runs went, as a table by kernel.
#pragma once

#include <string>
#include <vector>

#include "runtime/executor.h"

namespace stepc {

// Kernels by falling time: share, time of a run, FLOP rate and byte rate.
std::string profile_text(const std::vector<StepTime>& times);
// The average run of each program as a trace for Chrome's or Perfetto's viewer: one event a step, one after another, a
// row a program. It stays small whatever the number of runs.
std::string trace_json(const std::vector<StepTime>& times);

}  // namespace stepc
