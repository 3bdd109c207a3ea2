#include "compiler/plan/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "compiler/plan/liveness.h"
#include "ir/graph/print.h"
#include "ir/text/json.h"

namespace stepc {
namespace {

// A line of a list of buffers.
struct Sized {
  std::string name;
  std::string where;
  std::string type;
  int64_t bytes;
};

std::string lifetime(const Plan& plan, const PlanBuffer& buffer) {
  if (buffer.first_step < 0) return "never used";
  const auto name = [&](int step) { return plan.steps[static_cast<size_t>(step)].name; };
  if (buffer.first_step == buffer.last_step)
    return fmt::format("step {} ({})", buffer.first_step, name(buffer.first_step));
  return fmt::format("steps {}-{} ({} to {})", buffer.first_step, buffer.last_step, name(buffer.first_step),
                     name(buffer.last_step));
}

std::vector<Sized> all_sized(const Plan& plan, const ModuleLayout& layout) {
  std::vector<Sized> all;
  for (const PersistentPlacement& tensor : layout.tensors)
    all.push_back(
        {"@" + tensor.name, std::string(plan_arena_name(tensor.arena)), type_text(tensor.type), tensor.bytes});
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.alias_of >= 0 || buffer.arena < PlanArena::activations) continue;
    const bool io = buffer.arena == PlanArena::io;
    all.push_back(
        {buffer.name, io ? "io" : "activations, " + lifetime(plan, buffer), type_text(buffer.type), buffer.bytes});
  }
  std::stable_sort(all.begin(), all.end(), [](const Sized& a, const Sized& b) { return a.bytes > b.bytes; });
  return all;
}

std::vector<const PlanBuffer*> packed_buffers(const Plan& plan) {
  std::vector<const PlanBuffer*> buffers;
  for (const PlanBuffer& buffer : plan.buffers)
    if (buffer.arena == PlanArena::activations && buffer.alias_of < 0 && buffer.first_step >= 0 && buffer.bytes > 0)
      buffers.push_back(&buffer);
  return buffers;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

// One colour a phase of the step that makes the buffer.
std::string_view phase_colour(Phase phase) {
  switch (phase) {
    case Phase::forward: return "#4c78a8";
    case Phase::backward: return "#f58518";
    case Phase::optimizer: return "#54a24b";
  }
  return "#888";
}

struct BatchNeed {
  int64_t batch;
  int64_t bytes;
};

// The batch at which the line through two needs reaches `bytes`.
int64_t line_meets(const BatchNeed& a, const BatchNeed& b, int64_t bytes) {
  const double slope = static_cast<double>(b.bytes - a.bytes) / static_cast<double>(b.batch - a.batch);
  const double batch = static_cast<double>(b.batch) + static_cast<double>(bytes - b.bytes) / slope;
  constexpr double kFar = 1e15;  // a flat line: anywhere
  return static_cast<int64_t>(std::isfinite(batch) ? std::clamp(std::floor(batch), -kFar, kFar) : kFar);
}

}  // namespace

MemoryNeed memory_need(const Plan& plan, const ModuleLayout& layout) {
  MemoryNeed need;
  std::copy(layout.arena_bytes.begin(), layout.arena_bytes.end(), need.arena_bytes.begin());
  need.arena_bytes[static_cast<size_t>(PlanArena::activations)] = plan.activations_bytes;
  need.arena_bytes[static_cast<size_t>(PlanArena::io)] = plan.io_bytes;
  for (int64_t bytes : need.arena_bytes) need.total_bytes += bytes;
  return need;
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : (value < 100 ? 1 : 0), kUnits[unit]);
}

std::string largest_buffers(const Plan& plan, const ModuleLayout& layout, int count) {
  std::string text;
  for (const Sized& entry : all_sized(plan, layout)) {
    if (count-- <= 0) break;
    text += fmt::format("  {:>10}  {}: {}  ({})\n", bytes_text(entry.bytes), entry.name, entry.type, entry.where);
  }
  return text;
}

std::string memory_report(const Plan& plan, const ModuleLayout& layout) {
  const MemoryNeed need = memory_need(plan, layout);
  std::string text = fmt::format("memory of program @{}\n", plan.program);
  for (size_t arena = 0; arena < need.arena_bytes.size(); ++arena)
    text += fmt::format("  {:<12} {:>10}  {:>16} bytes\n", plan_arena_name(static_cast<PlanArena>(arena)),
                        bytes_text(need.arena_bytes[arena]), need.arena_bytes[arena]);
  text += fmt::format("  {:<12} {:>10}  {:>16} bytes\n", "peak", bytes_text(need.total_bytes), need.total_bytes);
  const double ratio = plan.lower_bound_bytes > 0
                           ? static_cast<double>(plan.activations_bytes) / static_cast<double>(plan.lower_bound_bytes)
                           : 1;
  text += fmt::format("  activations: {} packed {}, {:.3f} x the lower bound of {} bytes\n",
                      bytes_text(plan.activations_bytes), plan.packing, ratio, plan.lower_bound_bytes);
  return text + "largest buffers\n" + largest_buffers(plan, layout);
}

std::string live_chart_text(const Plan& plan, int rows) {
  const std::vector<int64_t> live = live_bytes_by_step(plan);
  if (live.empty()) return "no steps\n";
  const int64_t most = std::max<int64_t>(1, *std::max_element(live.begin(), live.end()));
  const size_t per_row = (live.size() + static_cast<size_t>(rows) - 1) / static_cast<size_t>(rows);
  std::string text;
  for (size_t first = 0; first < live.size(); first += per_row) {
    // A row stands for its fullest step.
    const auto end = live.begin() + static_cast<std::ptrdiff_t>(std::min(first + per_row, live.size()));
    const auto fullest = std::max_element(live.begin() + static_cast<std::ptrdiff_t>(first), end);
    const size_t step = static_cast<size_t>(fullest - live.begin());
    const auto bar = static_cast<size_t>(static_cast<double>(*fullest) / static_cast<double>(most) * 50 + 0.5);
    text += fmt::format("{:>5} {:<50} {:>10}  {}{}\n", step, std::string(bar, '#'), bytes_text(*fullest),
                        plan.steps[step].name, *fullest == most ? "  <- fullest" : "");
  }
  return text;
}

std::string live_chart_json(const Plan& plan) {
  JsonValue::Array buffers, steps;
  for (const PlanBuffer* buffer : packed_buffers(plan)) {
    JsonValue json;
    json.add("name", buffer->name);
    json.add("type", type_text(buffer->type));
    json.add("offset_bytes", buffer->offset_bytes);
    json.add("bytes", buffer->bytes);
    json.add("first_step", buffer->first_step);
    json.add("last_step", buffer->last_step);
    buffers.push_back(std::move(json));
  }
  const std::vector<int64_t> live = live_bytes_by_step(plan);
  for (size_t s = 0; s < live.size(); ++s)
    steps.push_back(JsonValue::Object{{"name", plan.steps[s].name}, {"live_bytes", live[s]}});
  JsonValue json;
  json.add("program", plan.program);
  json.add("activations_bytes", plan.activations_bytes);
  json.add("lower_bound_bytes", plan.lower_bound_bytes);
  json.add("buffers", std::move(buffers));
  json.add("steps", std::move(steps));
  return json_text(json) + "\n";
}

std::string live_chart_svg(const Plan& plan) {
  constexpr double kLeft = 80, kTop = 30, kWidth = 1100, kHeight = 600;
  const double steps = std::max<double>(1, static_cast<double>(plan.steps.size()));
  const double top_bytes = std::max<double>(1, static_cast<double>(plan.activations_bytes));
  const auto x = [&](double step) { return kLeft + step / steps * kWidth; };
  const auto y = [&](double bytes) { return kTop + kHeight - bytes / top_bytes * kHeight; };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"18\">Activations of @{3}: {4} over {5} steps (blue forward, orange backward, green "
      "optimizer)"
      "</text>\n",
      kLeft + kWidth + 20, kTop + kHeight + 40, kLeft, escaped(plan.program), bytes_text(plan.activations_bytes),
      plan.steps.size());
  for (const PlanBuffer* b : packed_buffers(plan)) {
    const double bottom = y(static_cast<double>(b->offset_bytes)),
                 top = y(static_cast<double>(b->offset_bytes + b->bytes));
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" fill-opacity=\"0.7\" "
        "stroke=\"white\" stroke-width=\"0.5\"><title>{} {}, {}, {}</title></rect>\n",
        x(b->first_step), top, x(b->last_step + 1) - x(b->first_step), bottom - top,
        phase_colour(plan.steps[static_cast<size_t>(b->first_step)].phase), escaped(b->name), type_text(b->type),
        bytes_text(b->bytes), escaped(lifetime(plan, *b)));
  }
  for (int i = 0; i <= 4; ++i) {
    const double bytes = static_cast<double>(plan.activations_bytes) * i / 4, step = steps * i / 4;
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 6, y(bytes) + 4,
                       bytes_text(static_cast<int64_t>(bytes)));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{:.0f}</text>\n", x(step),
                       kTop + kHeight + 16, step);
  }
  const double bound = y(static_cast<double>(plan.lower_bound_bytes));
  svg += fmt::format(
      "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.2f}\" y2=\"{2:.2f}\" stroke=\"#c00\" stroke-dasharray=\"4\"/>\n", kLeft,
      kLeft + kWidth, bound);
  svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">step; dashed: lower bound {}</text>\n</svg>\n", kLeft,
                     kTop + kHeight + 34, bytes_text(plan.lower_bound_bytes));
  return svg;
}

Status check_fits(const Plan& plan, const ModuleLayout& layout, int64_t available_bytes) {
  const int64_t needed = memory_need(plan, layout).total_bytes;
  if (needed <= available_bytes) return {};
  return user_error("program @{} needs {} ({} bytes), has {} ({} bytes); the largest buffers are\n{}", plan.program,
                    bytes_text(needed), needed, bytes_text(available_bytes), available_bytes,
                    largest_buffers(plan, layout));
}

// The need grows almost evenly with the batch, so the line through the last two batches tried says where to
// look next; after a few misses plain halving takes over, so that it ends whatever the need does.
Result<int64_t> largest_batch(int64_t available_bytes, int64_t limit,
                              const std::function<Result<int64_t>(int64_t batch)>& need, int64_t first) {
  constexpr int kInterpolations = 8;
  int64_t fits = 0, fails = limit + 1;
  std::optional<BatchNeed> before;
  for (int64_t batch = first, tries = 1; fits + 1 < fails; ++tries) {
    STEPC_ASSIGN(const int64_t bytes, need(batch));
    (bytes <= available_bytes ? fits : fails) = batch;
    const BatchNeed now{batch, bytes};
    if (tries > kInterpolations)
      batch = fits + (fails - fits) / 2;
    else
      batch = before ? line_meets(*before, now, available_bytes) : (fits > 0 ? 2 * batch : 1);
    before = now;
    batch = std::clamp(batch, fits + 1, std::max(fits + 1, fails - 1));
  }
  return fits;
}

}  // namespace stepc
