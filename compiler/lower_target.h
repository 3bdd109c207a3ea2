// What lowering needs to know of a target; the rest is the same for all of them. Internal to lower*.cpp.
#pragma once

#include <functional>
#include <string>

#include "compiler/lower.h"

namespace stepc {

struct CompiledCode {
  std::string code;
  bool cached = false;  // nothing was compiled
};

struct LowerTarget {
  std::string text;  // of the bundle, and part of the keys of cached code
  std::function<Result<ScheduledKernel>(const Program&, const Group&)> schedule;
  // The code of the bundle's kernel `index`, whose definition carries its name. Called from several threads.
  std::function<Result<CompiledCode>(size_t index, const kernel::Kernel& definition)> compile;
};

// Of a fused module, which must outlive the result. Groups are scheduled in parallel (0 threads: as many as the machine
// has), all of them even where one fails: the error then lists all groups that no template takes.
Result<std::vector<ScheduledProgram>> schedule_module(const Module& module, const LowerTarget& target, int threads = 0);
Result<Bundle> lower_scheduled(const Module& module, const std::vector<ScheduledProgram>& programs,
                               const LowerTarget& target, const LowerOptions& options);

// The steps of lower_*: passes, if they are asked for, then schedules, then the rest.
Result<Bundle> lower_module(Module& module, const LowerTarget& target, const LowerOptions& options);

// The bytes cached for what `make` makes, which are made and stored if there are none. No folder: made.
Result<CompiledCode> cached_code(const std::string& cache_folder, const std::string& key,
                                 const std::function<Result<std::string>()>& make);

}  // namespace stepc
