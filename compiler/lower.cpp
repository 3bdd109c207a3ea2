#include "compiler/lower.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "compiler/lower_target.h"
#include "ir/kernel/print.h"
#include "ir/plan/verify.h"
#include "ir/support/cache.h"
#include "ir/support/check.h"
#include "ir/support/hash.h"
#include "ir/support/thread_pool.h"

namespace stepc {
namespace {

// Writes how long each part took, where somebody wants to know.
class Stopwatch {
 public:
  explicit Stopwatch(LowerReport* report) : report_(report) {}
  void lap(double LowerReport::* part) {
    const auto now = std::chrono::steady_clock::now();
    if (report_) report_->*part = std::chrono::duration<double>(now - start_).count();
    start_ = now;
  }

 private:
  LowerReport* report_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The distinct kernels of a module, in order of first use.
struct KernelSet {
  std::vector<BundleKernel> kernels;        // without code yet
  std::vector<kernel::Kernel> definitions;  // named by content
  std::map<std::string, int> index_of_key;

  // The group's kernels, in the order in which they run.
  std::vector<int> add(const ScheduledKernel& scheduled) {
    std::vector<int> added{add_one(scheduled, scheduled.kernel)};
    for (const LaterKernel& later : scheduled.later) added.push_back(add_one(scheduled, later.kernel));
    return added;
  }

  int add_one(const ScheduledKernel& scheduled, const kernel::Kernel& kernel) {
    std::string text = kernel::print_kernel(kernel);
    std::string key = content_hash(text);
    const auto [at, fresh] = index_of_key.try_emplace(key, static_cast<int>(kernels.size()));
    if (!fresh) return at->second;
    kernel::Kernel definition = kernel;
    definition.name = fmt::format("{}_{}", definition.name, key.substr(0, 12));
    const auto is_global = [](const kernel::Buffer& buffer) { return buffer.space == kernel::Space::global; };
    const auto buffers = std::count_if(definition.buffers.begin(), definition.buffers.end(), is_global);
    kernels.push_back({definition.name, std::move(key), std::move(text), "", scheduled.problem, scheduled.config,
                       static_cast<int>(buffers), static_cast<int>(definition.scalars.size()),
                       kernel::shared_layout(definition).total_bytes, kernel::gpu_launch(definition)});
    definitions.push_back(std::move(definition));
    return at->second;
  }
};

// Compiles the kernels in parallel, the longest texts first: they take longest, and one of them started last
// would be waited for.
class Compilation {
 public:
  Compilation(KernelSet& set, const LowerTarget& target, const LowerOptions& options)
      : set_(set), target_(target), options_(options), errors_(set.kernels.size()) {}

  Status run() {
    std::vector<size_t> order(set_.kernels.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return set_.kernels[a].text.size() > set_.kernels[b].text.size(); });
    ThreadPool pool(options_.threads);
    pool.parallel_for(static_cast<int64_t>(order.size()), [&](int64_t i) { compile(order[static_cast<size_t>(i)]); });
    for (std::optional<Error>& error : errors_)
      if (error) return tl::unexpected(std::move(*error));
    return {};
  }
  int cached() const { return cached_; }

 private:
  void compile(size_t index) {
    auto code = target_.compile(index, set_.definitions[index]);
    if (!code) {
      errors_[index] = std::move(code).error();
      return;
    }
    set_.kernels[index].object = std::move(code->code);
    cached_ += code->cached ? 1 : 0;
    report(set_.kernels[index].name);
  }

  void report(const std::string& name) {
    if (!options_.progress) return;
    const std::lock_guard lock(mutex_);
    options_.progress(++done_, static_cast<int>(set_.kernels.size()), name);
  }

  KernelSet& set_;
  const LowerTarget& target_;
  const LowerOptions& options_;
  std::vector<std::optional<Error>> errors_;  // by kernel, so that the first reported is always the same
  std::mutex mutex_;
  int done_ = 0;
  std::atomic<int> cached_{0};
};

GroupLaunch launch_of(const ScheduledKernel& scheduled, const std::vector<int>& kernels) {
  GroupLaunch launch{kernels[0],        scheduled.grid,    scheduled.operands,
                     scheduled.results, scheduled.scalars, scheduled.workspace_bytes};
  for (size_t i = 0; i < scheduled.later.size(); ++i)
    launch.later.push_back({kernels[i + 1], scheduled.later[i].grid, scheduled.later[i].scalars});
  return launch;
}

// By program and group.
using GroupKernels = std::vector<std::vector<std::vector<int>>>;

Status plan_programs(const std::vector<ScheduledProgram>& programs, const GroupKernels& kernels_of_group,
                     const LowerOptions& options, Bundle& bundle) {
  for (size_t p = 0; p < programs.size(); ++p) {
    const Program& program = *programs[p].program;
    std::vector<GroupLaunch> launches;
    for (size_t g = 0; g < program.groups.size(); ++g) {
      launches.push_back(launch_of(programs[p].kernels[g], kernels_of_group[p][g]));
      std::string names;
      for (int kernel : kernels_of_group[p][g])
        names += (names.empty() ? "" : ", ") + bundle.kernels[static_cast<size_t>(kernel)].name;
      bundle.choices.push_back(
          {fmt::format("{}/{}", program.name, program.groups[g].name),
           fmt::format("{}: {}; {}", programs[p].kernels[g].problem, programs[p].kernels[g].config, names)});
    }
    STEPC_ASSIGN(Plan plan, plan_program(program, bundle.persistents, launches, options.plan));
    bundle.choices.push_back({program.name + "/packing", plan.packing});
    bundle.plans.push_back(std::move(plan));
  }
  return {};
}

// Lets the module's programs fit the memory that the options name; those that change are scheduled anew. What was
// chosen, by program.
Result<std::vector<BundleChoice>> fit_scheduled(Module& module, std::vector<ScheduledProgram>& programs,
                                                const LowerTarget& target, const LowerOptions& options) {
  std::vector<BundleChoice> choices;
  if (options.fit.mode == Recompute::none) return choices;
  STEPC_ASSIGN(const ModuleLayout layout, layout_persistents(module, options.plan));
  for (size_t p = 0; p < programs.size(); ++p) {
    Program& program = module.programs[p];
    std::vector<int64_t> workspace_bytes;
    for (const ScheduledKernel& scheduled : programs[p].kernels) workspace_bytes.push_back(scheduled.workspace_bytes);
    STEPC_ASSIGN(const FitReport report, fit_memory(program, layout, workspace_bytes, options.plan, options.fit));
    if (report.candidates > 0) choices.push_back({program.name + "/recompute", fit_choice(report)});
    if (report.chosen.empty()) continue;
    if (options.report) options.report->recomputed.push_back(fmt::format("{}: {}", program.name, fit_choice(report)));
    programs[p].kernels.clear();
    for (const Group& group : program.groups) {
      STEPC_ASSIGN(ScheduledKernel kernel, target.schedule(program, group));
      programs[p].kernels.push_back(std::move(kernel));
    }
  }
  return choices;
}

}  // namespace

std::string content_name(const kernel::Kernel& kernel) {
  return fmt::format("{}_{}", kernel.name, content_hash(kernel::print_kernel(kernel)).substr(0, 12));
}

Result<CompiledCode> cached_code(const std::string& cache_folder, const std::string& key,
                                 const std::function<Result<std::string>()>& make) {
  const CacheStore cache(cache_folder);
  if (!cache_folder.empty())
    if (auto bytes = cache.find(key)) return CompiledCode{std::move(*bytes), true};
  STEPC_ASSIGN(std::string bytes, make());
  // A cache that cannot be written costs time, not the result.
  if (!cache_folder.empty()) (void)cache.store(key, bytes);
  return CompiledCode{std::move(bytes), false};
}

Result<std::vector<ScheduledProgram>> schedule_module(const Module& module, const LowerTarget& target, int threads) {
  struct Job {
    const Program* program;
    const Group* group;
    std::optional<Result<ScheduledKernel>> result;
  };
  std::vector<Job> jobs;
  for (const Program& program : module.programs)
    for (const Group& group : program.groups) jobs.push_back({&program, &group, {}});
  ThreadPool(threads).parallel_for(static_cast<int64_t>(jobs.size()), [&](int64_t i) {
    Job& job = jobs[static_cast<size_t>(i)];
    job.result = target.schedule(*job.program, *job.group);
  });
  std::vector<ScheduledProgram> programs;
  for (const Program& program : module.programs) programs.push_back({&program, {}});
  size_t at = 0;
  std::vector<Error> errors;
  std::string failures;
  for (Job& job : jobs) {
    while (programs[at].program != job.program) ++at;
    if (*job.result) {
      programs[at].kernels.push_back(std::move(**job.result));
      continue;
    }
    Error error = std::move(*job.result).error();
    failures += fmt::format("\n  kernel @{} of @{}: {}", job.group->name, job.program->name, error.message);
    errors.push_back(std::move(error));
  }
  if (errors.empty()) return programs;
  if (errors.size() == 1) return tl::unexpected(Error{errors[0].kind, errors[0].where, failures.substr(3)});
  return tl::unexpected(
      Error{errors[0].kind, {}, fmt::format("{} kernels have no template:{}", errors.size(), failures)});
}

Result<Bundle> lower_scheduled(const Module& module, const std::vector<ScheduledProgram>& programs,
                               const LowerTarget& target, const LowerOptions& options) {
  KernelSet set;
  GroupKernels kernels_of_group;
  for (const ScheduledProgram& program : programs) {
    std::vector<std::vector<int>>& kernels = kernels_of_group.emplace_back();
    for (const ScheduledKernel& scheduled : program.kernels) kernels.push_back(set.add(scheduled));
  }
  Stopwatch watch(options.report);
  Compilation compilation(set, target, options);
  STEPC_TRY(compilation.run());
  watch.lap(&LowerReport::compile_seconds);
  if (options.report) {
    options.report->kernels = static_cast<int>(set.kernels.size());
    options.report->cached = compilation.cached();
  }
  Bundle bundle;
  bundle.target = target.text;
  bundle.module_name = module.name;
  bundle.kernels = std::move(set.kernels);
  STEPC_ASSIGN(bundle.persistents, layout_persistents(module, options.plan));
  STEPC_TRY(plan_programs(programs, kernels_of_group, options, bundle));
  const Status status = verify_bundle(bundle);
  STEPC_CHECK(status.has_value(), "{}", status.error().text());
  watch.lap(&LowerReport::plan_seconds);
  return bundle;
}

Result<Bundle> lower_module(Module& module, const LowerTarget& target, const LowerOptions& options) {
  Stopwatch watch(options.report);
  if (options.run_passes) STEPC_TRY(run_passes(module, options.passes));
  watch.lap(&LowerReport::pass_seconds);
  STEPC_ASSIGN(std::vector<ScheduledProgram> programs, schedule_module(module, target, options.threads));
  STEPC_ASSIGN(std::vector<BundleChoice> fitted, fit_scheduled(module, programs, target, options));
  watch.lap(&LowerReport::schedule_seconds);
  STEPC_ASSIGN(Bundle bundle, lower_scheduled(module, programs, target, options));
  std::move(fitted.begin(), fitted.end(), std::back_inserter(bundle.choices));
  return bundle;
}

}  // namespace stepc
