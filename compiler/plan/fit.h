// Makes programs fit a device's memory: what forward keeps for backward is made again there (graph/recompute.h), as
// little as will do.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/plan/plan.h"
#include "ir/graph/graph.h"
#include "ir/plan/plan.h"

namespace stepc {

// nothing; what is needed to fit, cheapest first; everything that can be made again cheaply.
enum class Recompute : uint8_t { none, automatic, all };
std::string_view recompute_name(Recompute mode);  // "none", "auto", "all"
std::span<const std::string_view> recompute_names();
std::optional<Recompute> recompute_from_name(std::string_view name);

struct FitOptions {
  Recompute mode = Recompute::none;
  int64_t available_bytes = INT64_MAX;  // for all arenas together
};

// A value that is made again, and what that costs and gains in a step.
struct RecomputedValue {
  std::string name;
  TensorType type;
  std::vector<std::string> sources;
  int64_t saved_bytes = 0;
  int64_t moved_bytes = 0;
  int64_t flops = 0;
};
struct FitReport {
  Recompute mode = Recompute::none;
  int64_t candidates = 0;
  std::vector<RecomputedValue> chosen;  // in the order in which they were chosen
  int64_t bytes_before = 0;             // that running the program needs, all arenas; not asked for with none
  int64_t bytes_after = 0;
};

// Changes the program, which is fused and ordered, by the choice, and finds its order anew. `workspace_bytes` is what
// its kernels need beside their results, by group; empty where that is not known yet. Where nothing makes the program
// fit, everything that can be made again is.
Result<FitReport> fit_memory(Program& program, const ModuleLayout& layout, const std::vector<int64_t>& workspace_bytes,
                             const PlanOptions& plan, const FitOptions& options);

// "auto: 2 of 60 values made again in backward: b0.moe.2, b1.moe.2; 1.50 GiB less at the peak, 2.25 GiB moved,
// 0.00 GFLOP".
std::string fit_choice(const FitReport& report);
// The same for people, a value a line; seconds where the device's memory moves `bytes_per_s`.
std::string fit_text(const FitReport& report, std::optional<double> bytes_per_s);

}  // namespace stepc
