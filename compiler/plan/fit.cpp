#include "compiler/plan/fit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "compiler/graph/order.h"
#include "compiler/graph/recompute.h"
#include "compiler/plan/report.h"
#include "ir/graph/print.h"

namespace stepc {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"none", "auto", "all"};

// The price of a kernel of its own: what memory could move meanwhile.
constexpr double kKernelBytes = 16e6;

// Cheapest first: the bytes saved for each byte moved, earlier ones first where that is the same. What the first
// layers keep is made again last, when backward has freed most.
void sort_by_price(std::vector<RecomputeCandidate>& candidates) {
  const auto price = [](const RecomputeCandidate& c) {
    return (static_cast<double>(c.moved_bytes) + kKernelBytes) / static_cast<double>(c.saved_bytes);
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const RecomputeCandidate& a, const RecomputeCandidate& b) { return price(a) < price(b); });
}

class Fitter {
 public:
  Fitter(const Program& program, const ModuleLayout& layout, const std::vector<int64_t>& workspace_bytes,
         const PlanOptions& plan)
      : program_(program), layout_(layout), plan_options_(plan) {
    for (size_t g = 0; g < workspace_bytes.size(); ++g) workspaces_[program.groups[g].name] = workspace_bytes[g];
  }

  struct Trial {
    Program program;
    int64_t bytes = 0;
  };

  Result<Trial> with(const std::vector<RecomputeCandidate>& chosen) const {
    Trial trial{program_};
    if (!chosen.empty()) {
      recompute(trial.program, chosen);
      order(trial.program);
    }
    std::vector<GroupLaunch> launches = unscheduled_launches(trial.program);
    for (size_t g = 0; g < launches.size(); ++g)
      if (const auto known = workspaces_.find(trial.program.groups[g].name); known != workspaces_.end())
        launches[g].workspace_bytes = known->second;
    STEPC_ASSIGN(const Plan plan, plan_program(trial.program, layout_, launches, plan_options_));
    trial.bytes = memory_need(plan, layout_).total_bytes;
    return trial;
  }

 private:
  const Program& program_;
  const ModuleLayout& layout_;
  const PlanOptions& plan_options_;
  std::map<std::string, int64_t> workspaces_;  // by group
};

struct Choice {
  std::vector<RecomputeCandidate> chosen;
  Fitter::Trial trial;
};

// The first candidates that make the program fit, as few as possible; all where none do.
Result<Choice> smallest_choice(const Fitter& fitter, const std::vector<RecomputeCandidate>& sorted, int64_t available) {
  const auto first = [&](size_t count) {
    return std::vector<RecomputeCandidate>(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(count));
  };
  size_t fails = 0, enough = sorted.size();
  STEPC_ASSIGN(Fitter::Trial best, fitter.with(sorted));
  while (best.bytes <= available && fails + 1 < enough) {
    const size_t middle = fails + (enough - fails) / 2;
    STEPC_ASSIGN(Fitter::Trial trial, fitter.with(first(middle)));
    if (trial.bytes > available) {
      fails = middle;
      continue;
    }
    enough = middle;
    best = std::move(trial);
  }
  return Choice{first(enough), std::move(best)};
}

RecomputedValue described(const Program& program, const RecomputeCandidate& candidate) {
  RecomputedValue value{program.value(candidate.value).name,
                        program.type(candidate.value),
                        {},
                        candidate.saved_bytes,
                        candidate.moved_bytes,
                        candidate.flops};
  for (ValueId source : candidate.sources) value.sources.push_back(program.value(source).name);
  return value;
}

RecomputedValue sum_of(const FitReport& report) {
  RecomputedValue sum;
  for (const RecomputedValue& value : report.chosen) {
    sum.saved_bytes += value.saved_bytes;
    sum.moved_bytes += value.moved_bytes;
    sum.flops += value.flops;
  }
  return sum;
}

std::string cost_text(const FitReport& report) {
  const RecomputedValue sum = sum_of(report);
  return fmt::format("{} less at the peak, {} moved, {:.2f} GFLOP",
                     bytes_text(report.bytes_before - report.bytes_after), bytes_text(sum.moved_bytes),
                     static_cast<double>(sum.flops) / 1e9);
}

}  // namespace

std::string_view recompute_name(Recompute mode) { return kNames[static_cast<size_t>(mode)]; }
std::span<const std::string_view> recompute_names() { return kNames; }
std::optional<Recompute> recompute_from_name(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Recompute>(found - kNames.begin());
}

Result<FitReport> fit_memory(Program& program, const ModuleLayout& layout, const std::vector<int64_t>& workspace_bytes,
                             const PlanOptions& plan, const FitOptions& options) {
  FitReport report{options.mode, 0, {}, 0, 0};
  if (options.mode == Recompute::none) return report;
  const Fitter fitter(program, layout, workspace_bytes, plan);
  STEPC_ASSIGN(const Fitter::Trial before, fitter.with({}));
  report.bytes_before = report.bytes_after = before.bytes;
  std::vector<RecomputeCandidate> candidates = recompute_candidates(program);
  report.candidates = static_cast<int64_t>(candidates.size());
  const bool fits = options.mode == Recompute::automatic && before.bytes <= options.available_bytes;
  if (fits || candidates.empty()) return report;
  sort_by_price(candidates);
  const int64_t available = options.mode == Recompute::all ? 0 : options.available_bytes;
  STEPC_ASSIGN(Choice choice, smallest_choice(fitter, candidates, available));
  if (options.mode == Recompute::automatic && choice.trial.bytes >= before.bytes) return report;
  for (const RecomputeCandidate& candidate : choice.chosen) report.chosen.push_back(described(program, candidate));
  report.bytes_after = choice.trial.bytes;
  program = std::move(choice.trial.program);
  return report;
}

std::string fit_choice(const FitReport& report) {
  if (report.mode == Recompute::none) return "none";
  if (report.chosen.empty())
    return fmt::format("{}: nothing, needs {}", recompute_name(report.mode), bytes_text(report.bytes_before));
  std::vector<std::string_view> names;
  for (const RecomputedValue& value : report.chosen) names.push_back(value.name);
  return fmt::format("{}: {} of {} values made again in backward: {}; {}", recompute_name(report.mode),
                     report.chosen.size(), report.candidates, fmt::join(names, ", "), cost_text(report));
}

std::string fit_text(const FitReport& report, std::optional<double> bytes_per_s) {
  if (report.chosen.empty()) return fmt::format("recompute {}\n", fit_choice(report));
  std::string text =
      fmt::format("recompute {}: {} of {} values made again in backward, {}", recompute_name(report.mode),
                  report.chosen.size(), report.candidates, cost_text(report));
  if (bytes_per_s)
    text += fmt::format(", {:.2f} ms", static_cast<double>(sum_of(report).moved_bytes) / *bytes_per_s * 1e3);
  text += "\n";
  for (const RecomputedValue& value : report.chosen)
    text += fmt::format("  {:>10} saved {:>10} moved  {}: {}{}{}\n", bytes_text(value.saved_bytes),
                        bytes_text(value.moved_bytes), value.name, type_text(value.type),
                        value.sources.empty() ? "" : " from ", fmt::join(value.sources, ", "));
  return text;
}

}  // namespace stepc
