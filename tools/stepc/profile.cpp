#include "tools/stepc/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/text/json.h"

namespace stepc {

std::string profile_text(const std::vector<StepTime>& times) {
  struct Row {
    StepTime sum;
    int64_t steps = 0;  // of one run that launch this kernel
  };
  std::map<std::pair<std::string, std::string>, Row> by_kernel;
  std::map<std::string, double> total;
  for (const StepTime& time : times) {
    Row& row = by_kernel[{time.program, time.kernel.empty() ? "copy, fill" : time.kernel}];
    if (row.steps == 0) row.sum = time, row.sum.milliseconds = 0, row.sum.flops = 0, row.sum.bytes = 0;
    ++row.steps;
    row.sum.milliseconds += time.milliseconds;
    row.sum.flops += time.flops;
    row.sum.bytes += time.bytes;
    total[time.program] += time.milliseconds;
  }
  std::vector<Row> rows;
  for (const auto& [key, row] : by_kernel) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.sum.program != b.sum.program ? a.sum.program < b.sum.program : a.sum.milliseconds > b.sum.milliseconds;
  });
  std::string text;
  std::string program;
  for (const Row& row : rows) {
    const double ms = row.sum.milliseconds / static_cast<double>(std::max<int64_t>(1, row.sum.runs));
    if (row.sum.program != program) {
      program = row.sum.program;
      text += fmt::format("\n{}: {:.3f} ms a run\n{:>7} {:>10} {:>8} {:>10} {:>9}  {}\n", program,
                          total[program] / static_cast<double>(std::max<int64_t>(1, row.sum.runs)), "share", "ms",
                          "launches", "GFLOP/s", "GB/s", "first of the steps");
    }
    text +=
        fmt::format("{:>6.1f}% {:>10.3f} {:>8} {:>10.1f} {:>9.1f}  {}\n", 100 * row.sum.milliseconds / total[program],
                    ms, row.steps, static_cast<double>(row.sum.flops) / ms / 1e6,
                    static_cast<double>(row.sum.bytes) / ms / 1e6, row.sum.step);
  }
  return text;
}

std::string trace_json(const std::vector<StepTime>& times) {
  JsonValue::Array events;
  std::map<std::string, int64_t> rows;
  std::map<std::string, double> ends;  // microseconds
  for (const StepTime& time : times) {
    if (time.runs == 0) continue;
    const double microseconds = 1e3 * time.milliseconds / static_cast<double>(time.runs);
    const auto row = rows.try_emplace(time.program, static_cast<int64_t>(rows.size())).first->second;
    double& end = ends[time.program];
    JsonValue args;
    args.add("kernel", time.kernel);
    args.add("GFLOP/s", static_cast<double>(time.flops) / microseconds / 1e3);
    args.add("GB/s", static_cast<double>(time.bytes) / microseconds / 1e3);
    JsonValue event;
    event.add("name", time.step);
    event.add("cat", phase_name(time.phase));
    event.add("ph", "X");
    event.add("pid", 0);
    event.add("tid", row);
    event.add("ts", end);
    event.add("dur", microseconds);
    event.add("args", std::move(args));
    events.push_back(std::move(event));
    end += microseconds;
  }
  for (const auto& [program, row] : rows) {
    JsonValue args, event;
    args.add("name", program);
    event.add("name", "thread_name");
    event.add("ph", "M");
    event.add("pid", 0);
    event.add("tid", row);
    event.add("args", std::move(args));
    events.push_back(std::move(event));
  }
  JsonValue trace;
  trace.add("traceEvents", std::move(events));
  trace.add("displayTimeUnit", "ms");
  return json_text(trace);
}

}  // namespace stepc
