// From a module of graph IR to a bundle for the host: passes, a schedule for every kernel group, code for
// every distinct kernel (compiled in parallel, or found in the cache), a plan for every program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/pipeline.h"
#include "compiler/plan/fit.h"
#include "compiler/plan/plan.h"
#include "compiler/schedule/schedule.h"
#include "ir/graph/graph.h"
#include "ir/plan/plan.h"

namespace stepc {

// Where the time of lowering went, and how many kernels did not have to be compiled.
struct LowerReport {
  double pass_seconds = 0;
  double schedule_seconds = 0;
  double compile_seconds = 0;
  double plan_seconds = 0;
  int kernels = 0;
  int cached = 0;                       // of them, found in the cache
  std::vector<std::string> recomputed;  // by program that changed: what backward makes again
};

struct LowerOptions {
  bool run_passes = true;  // false: the module is fused
  PassOptions passes;
  PlanOptions plan;
  FitOptions fit;            // what may be made again to fit how much memory
  std::string cache_folder;  // of compiled kernels; empty: none
  int threads = 0;           // that compile; 0: as many as the machine has
  // Called after each kernel is there: so many of so many, this one. One call at a time, from any thread.
  std::function<void(int done, int total, const std::string& kernel)> progress;
  LowerReport* report = nullptr;  // filled in where it is set
};

Result<Bundle> lower_host(Module module, const HostTarget& target, const LowerOptions& options = {});

// ---- the parts, for dumps ----------------------------------------------------------------------------

struct ScheduledProgram {
  const Program* program = nullptr;
  std::vector<ScheduledKernel> kernels;  // by group
};
// Of a fused module, which must outlive the result.
Result<std::vector<ScheduledProgram>> schedule_module_host(const Module& module, const HostTarget& target);

// The name that a scheduled kernel gets in a bundle: its own, and the start of its text's hash.
std::string content_name(const kernel::Kernel& kernel);

// "host x86-64, cpu znver4, ...": bundles carry it and run only where it is the same.
std::string host_target_text(const HostTarget& target);

}  // namespace stepc
