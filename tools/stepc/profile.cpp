#include "tools/stepc/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "ir/text/json.h"

namespace stepc {
namespace {

double a_run(double sum, int64_t runs) { return sum / static_cast<double>(std::max<int64_t>(1, runs)); }

double floor_of(const StepTime& time, const std::optional<DevicePeaks>& peaks) {
  if (!peaks) return 0;
  return kernel_floor(static_cast<double>(time.flops), static_cast<double>(time.matrix_flops),
                      static_cast<double>(time.bytes), *peaks)
      .ms();
}

// Does the step go on with the group that `begun` started? Such steps are named after it and state no work.
bool goes_on(const StepTime& time, const StepTime& begun) {
  return !time.kernel.empty() && time.flops == 0 && time.bytes == 0 && time.program == begun.program &&
         time.step.starts_with(begun.step + ".");
}

ProfileRow sum_of(const std::vector<const ProfileRow*>& rows) {
  ProfileRow sum;
  for (const ProfileRow* row : rows) {
    sum.launches += row->launches;
    sum.flops += row->flops;
    sum.bytes += row->bytes;
    sum.ms += row->ms;
    sum.floor_ms += row->floor_ms;
  }
  return sum;
}

std::string line(const ProfileRow& row, double total_ms, bool has_floor, std::string_view name) {
  std::string text = fmt::format("{:>6.1f}% {:>10.3f} ", total_ms > 0 ? 100 * row.ms / total_ms : 0, row.ms);
  if (has_floor)
    text += fmt::format("{:>10.3f} {:>10.3f} {:>8} ", row.floor_ms, row.lost_ms(),
                        row.floor_ms > 0 ? fmt::format("{:.2f}", row.ms / row.floor_ms) : "-");
  const double ms = std::max(row.ms, 1e-9);
  return text +
         fmt::format("{:>8} {:>10.1f} {:>9.1f}  {}\n", row.launches, row.flops / ms / 1e6, row.bytes / ms / 1e6, name);
}

std::string heading(bool has_floor) {
  std::string text = fmt::format("{:>7} {:>10} ", "share", "ms");
  if (has_floor) text += fmt::format("{:>10} {:>10} {:>8} ", "floor ms", "lost ms", "x floor");
  return text + fmt::format("{:>8} {:>10} {:>9}  {}\n", "launches", "GFLOP/s", "GB/s", "first of the steps");
}

// The rows of one program, in a table of their own.
std::string program_text(const std::vector<const ProfileRow*>& rows, bool has_floor) {
  const ProfileRow total = sum_of(rows);
  std::string text = fmt::format("\n{}: {:.3f} ms a run\n{}", rows[0]->program, total.ms, heading(has_floor));
  for (const ProfileRow* row : rows) text += line(*row, total.ms, has_floor, row->step);
  for (Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    std::vector<const ProfileRow*> of_phase;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(of_phase),
                 [&](const ProfileRow* row) { return row->phase == phase; });
    if (!of_phase.empty())
      text += line(sum_of(of_phase), total.ms, has_floor, fmt::format("all {}", phase_name(phase)));
  }
  return text + line(total, total.ms, has_floor, "total");
}

std::vector<std::vector<const ProfileRow*>> by_program(const std::vector<ProfileRow>& rows) {
  std::vector<std::vector<const ProfileRow*>> programs;
  for (const ProfileRow& row : rows) {
    if (programs.empty() || programs.back()[0]->program != row.program) programs.emplace_back();
    programs.back().push_back(&row);
  }
  return programs;
}

}  // namespace

std::vector<ProfileRow> profile_rows(const std::vector<StepTime>& times, const std::optional<DevicePeaks>& peaks) {
  std::vector<ProfileRow> rows;
  std::map<std::tuple<std::string, std::string, Phase>, size_t> row_of;
  const StepTime* begun = nullptr;
  size_t begun_row = 0;
  for (const StepTime& time : times) {
    if (begun && goes_on(time, *begun)) {
      rows[begun_row].ms += a_run(time.milliseconds, time.runs);
      continue;
    }
    const std::string kernel = time.kernel.empty() ? "copy, fill" : time.kernel;
    const auto [found, is_new] = row_of.try_emplace({time.program, kernel, time.phase}, rows.size());
    if (is_new)
      rows.push_back({.program = time.program, .step = time.step, .kernel = time.kernel, .phase = time.phase});
    ProfileRow& row = rows[found->second];
    ++row.launches;
    row.flops += static_cast<double>(time.flops);
    row.bytes += static_cast<double>(time.bytes);
    row.ms += a_run(time.milliseconds, time.runs);
    row.floor_ms += floor_of(time, peaks);
    begun = &time;
    begun_row = found->second;
  }
  std::map<std::string, size_t> place;  // programs in the order in which they ran
  for (const StepTime& time : times) place.try_emplace(time.program, place.size());
  std::stable_sort(rows.begin(), rows.end(), [&](const ProfileRow& a, const ProfileRow& b) {
    const size_t first = place.at(a.program), second = place.at(b.program);
    return first != second ? first < second : a.lost_ms() > b.lost_ms();
  });
  return rows;
}

std::string profile_text(const std::vector<ProfileRow>& rows, const std::optional<DevicePeaks>& peaks) {
  std::string text;
  if (peaks)
    text = fmt::format("floors by {}: {:.1f} TFLOP/s bf16, {:.1f} TFLOP/s f32, {:.2f} TB/s\n", peaks->name,
                       peaks->matrix_flops_per_s / 1e12, peaks->vector_flops_per_s / 1e12, peaks->bytes_per_s / 1e12);
  for (const auto& program : by_program(rows)) text += program_text(program, peaks.has_value());
  return text;
}

std::string profile_json(const std::vector<ProfileRow>& rows, const std::optional<DevicePeaks>& peaks) {
  JsonValue::Array items;
  for (const ProfileRow& row : rows) {
    JsonValue item;
    item.add("program", row.program);
    item.add("first_step", row.step);
    item.add("kernel", row.kernel);
    item.add("phase", phase_name(row.phase));
    item.add("launches", row.launches);
    item.add("ms", row.ms);
    if (peaks) item.add("floor_ms", row.floor_ms);
    item.add("flops", row.flops);
    item.add("bytes", row.bytes);
    items.push_back(std::move(item));
  }
  JsonValue json;
  if (peaks) json.add("device", peaks->name);
  json.add("kernels", std::move(items));
  return json_text(json) + "\n";
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
