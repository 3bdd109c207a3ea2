#include "compiler/lower.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "compiler/emit/emitter_id.h"
#include "compiler/emit/host.h"
#include "ir/kernel/print.h"
#include "ir/plan/verify.h"
#include "ir/support/cache.h"
#include "ir/support/check.h"
#include "ir/support/hash.h"
#include "ir/support/thread_pool.h"

namespace stepc {
namespace {

// The distinct kernels of a module, in order of first use.
struct KernelSet {
  std::vector<BundleKernel> kernels;        // without code yet
  std::vector<kernel::Kernel> definitions;  // named by content
  std::map<std::string, int> index_of_key;

  int add(const ScheduledKernel& scheduled) {
    std::string text = kernel::print_kernel(scheduled.kernel);
    std::string key = content_hash(text);
    const auto [at, fresh] = index_of_key.try_emplace(key, static_cast<int>(kernels.size()));
    if (!fresh) return at->second;
    kernel::Kernel definition = scheduled.kernel;
    definition.name = fmt::format("{}_{}", definition.name, key.substr(0, 12));
    const auto is_global = [](const kernel::Buffer& buffer) { return buffer.space == kernel::Space::global; };
    const auto buffers = std::count_if(definition.buffers.begin(), definition.buffers.end(), is_global);
    kernels.push_back({definition.name, std::move(key), std::move(text), "", scheduled.problem, scheduled.config,
                       static_cast<int>(buffers), static_cast<int>(definition.scalars.size()),
                       kernel::shared_layout(definition).total_bytes});
    definitions.push_back(std::move(definition));
    return at->second;
  }
};

// Compiles the kernels in parallel, the longest texts first: they take longest, and one of them started last
// would be waited for.
class Compilation {
 public:
  Compilation(KernelSet& set, const HostTarget& target, const LowerOptions& options)
      : set_(set), target_(target), options_(options), cache_(options.cache_folder), errors_(set.kernels.size()) {}

  Status run() {
    std::vector<size_t> order(set_.kernels.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return set_.kernels[a].text.size() > set_.kernels[b].text.size(); });
    (void)detect_host_target();  // LLVM registers its target on first use, before threads share it
    ThreadPool pool(options_.threads);
    pool.parallel_for(static_cast<int64_t>(order.size()), [&](int64_t i) { compile(order[static_cast<size_t>(i)]); });
    for (std::optional<Error>& error : errors_)
      if (error) return tl::unexpected(std::move(*error));
    return {};
  }

 private:
  void compile(size_t index) {
    BundleKernel& kernel = set_.kernels[index];
    const std::string key = fmt::format("{}\n{}\n{}", emitter_id(), host_target_text(target_), kernel.text);
    const bool cached = !options_.cache_folder.empty();
    std::optional<std::string> object = cached ? cache_.find(key) : std::nullopt;
    if (!object) {
      auto code = emit_host(set_.definitions[index], target_);
      if (!code) {
        errors_[index] = std::move(code).error();
        return;
      }
      object = std::move(code->object);
      // A cache that cannot be written costs time, not the result.
      if (cached) (void)cache_.store(key, *object);
    }
    kernel.object = std::move(*object);
    report(kernel.name);
  }

  void report(const std::string& name) {
    if (!options_.progress) return;
    const std::lock_guard lock(mutex_);
    options_.progress(++done_, static_cast<int>(set_.kernels.size()), name);
  }

  KernelSet& set_;
  const HostTarget& target_;
  const LowerOptions& options_;
  CacheStore cache_;
  std::vector<std::optional<Error>> errors_;  // by kernel, so that the first reported is always the same
  std::mutex mutex_;
  int done_ = 0;
};

GroupLaunch launch_of(const ScheduledKernel& scheduled, int kernel) {
  return {kernel, scheduled.grid, scheduled.operands, scheduled.results, scheduled.scalars, scheduled.workspace_bytes};
}

Status plan_programs(const std::vector<ScheduledProgram>& programs,
                     const std::vector<std::vector<int>>& kernel_of_group, const LowerOptions& options,
                     Bundle& bundle) {
  for (size_t p = 0; p < programs.size(); ++p) {
    const Program& program = *programs[p].program;
    std::vector<GroupLaunch> launches;
    for (size_t g = 0; g < program.groups.size(); ++g) {
      const int kernel = kernel_of_group[p][g];
      launches.push_back(launch_of(programs[p].kernels[g], kernel));
      const std::string& name = bundle.kernels[static_cast<size_t>(kernel)].name;
      bundle.choices.push_back(
          {fmt::format("{}/{}", program.name, program.groups[g].name),
           fmt::format("{}: {}; {}", programs[p].kernels[g].problem, programs[p].kernels[g].config, name)});
    }
    STEPC_ASSIGN(Plan plan, plan_program(program, bundle.persistents, launches, options.plan));
    bundle.choices.push_back({program.name + "/packing", plan.packing});
    bundle.plans.push_back(std::move(plan));
  }
  return {};
}

}  // namespace

std::string content_name(const kernel::Kernel& kernel) {
  return fmt::format("{}_{}", kernel.name, content_hash(kernel::print_kernel(kernel)).substr(0, 12));
}

std::string host_target_text(const HostTarget& target) {
  return fmt::format("host x86-64, cpu {}, vector bytes {}, bf16 dot {}, features {}", target.cpu, target.vector_bytes,
                     target.bf16_dot ? "yes" : "no", target.features);
}

Result<std::vector<ScheduledProgram>> schedule_module_host(const Module& module, const HostTarget& target) {
  std::vector<ScheduledProgram> programs;
  for (const Program& program : module.programs) {
    ScheduledProgram& scheduled = programs.emplace_back(ScheduledProgram{&program, {}});
    for (const Group& group : program.groups) {
      STEPC_ASSIGN(ScheduledKernel kernel, schedule_host(program, group, target));
      scheduled.kernels.push_back(std::move(kernel));
    }
  }
  return programs;
}

Result<Bundle> lower_host(Module module, const HostTarget& target, const LowerOptions& options) {
  if (options.run_passes) STEPC_TRY(run_passes(module, options.passes));
  STEPC_ASSIGN(const std::vector<ScheduledProgram> programs, schedule_module_host(module, target));
  KernelSet set;
  std::vector<std::vector<int>> kernel_of_group;
  for (const ScheduledProgram& program : programs) {
    std::vector<int>& kernels = kernel_of_group.emplace_back();
    for (const ScheduledKernel& scheduled : program.kernels) kernels.push_back(set.add(scheduled));
  }
  STEPC_TRY(Compilation(set, target, options).run());
  Bundle bundle;
  bundle.target = host_target_text(target);
  bundle.module_name = module.name;
  bundle.kernels = std::move(set.kernels);
  STEPC_ASSIGN(bundle.persistents, layout_persistents(module, options.plan));
  STEPC_TRY(plan_programs(programs, kernel_of_group, options, bundle));
  const Status status = verify_bundle(bundle);
  STEPC_CHECK(status.has_value(), "{}", status.error().text());
  return bundle;
}

}  // namespace stepc
