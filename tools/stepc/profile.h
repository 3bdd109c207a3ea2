// Where the time of profiled runs went, by kernel, beside the least that it could have taken.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/plan/roofline.h"
#include "runtime/executor.h"

namespace stepc {

// All launches of one kernel in a phase of a program. A kernel that goes on with what another began (the second of
// attention's gradient) counts with the one that began: the plan states the work of both there.
struct ProfileRow {
  std::string program;
  std::string step;  // the first that launches it
  std::string kernel;
  Phase phase = Phase::forward;
  int64_t launches = 0;  // of one run
  double flops = 0;      // of one run
  double bytes = 0;
  double ms = 0;
  double floor_ms = 0;  // 0 where the device's peaks are not known
  double lost_ms() const { return ms - floor_ms; }
};

// By program in the order in which they ran, the most time lost first; without peaks the most time.
std::vector<ProfileRow> profile_rows(const std::vector<StepTime>& times, const std::optional<DevicePeaks>& peaks);
// The rows as a table: time, floor, rates; and totals by phase.
std::string profile_text(const std::vector<ProfileRow>& rows, const std::optional<DevicePeaks>& peaks);
// The same as JSON.
std::string profile_json(const std::vector<ProfileRow>& rows, const std::optional<DevicePeaks>& peaks);
// The average run of each program as a trace for Chrome's or Perfetto's viewer: one event a step, one after another, a
// row a program. It stays small whatever the number of runs.
std::string trace_json(const std::vector<StepTime>& times);

}  // namespace stepc
