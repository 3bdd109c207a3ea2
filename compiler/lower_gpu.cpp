#include "compiler/lower_gpu.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/emit/emitter_id.h"
#include "compiler/emit/nvptx.h"
#include "compiler/lower_target.h"
#include "ir/kernel/print.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

constexpr std::string_view kArchitectures[] = {"sm_80", "sm_89", "sm_90a"};

Result<std::string> cached_ptx(const kernel::Kernel& definition, const GpuTarget& target, const std::string& folder) {
  const std::string key =
      fmt::format("{}\n{}\n{}", emitter_id(), gpu_target_text(target), kernel::print_kernel(definition));
  return cached_code(folder, key, [&]() -> Result<std::string> {
    STEPC_ASSIGN(PtxCode code, emit_ptx(definition, target));
    return std::move(code.ptx);
  });
}

LowerTarget lower_target(const GpuTarget& target) {
  LowerTarget gpu;
  gpu.text = gpu_target_text(target);
  gpu.schedule = [target](const Program& program, const Group& group) { return schedule_gpu(program, group, target); };
  return gpu;
}

size_t launches(const std::vector<ScheduledProgram>& programs) {
  size_t count = 0;
  for (const ScheduledProgram& program : programs)
    for (const ScheduledKernel& scheduled : program.kernels) count += 1 + scheduled.later.size();
  return count;
}

}  // namespace

std::span<const std::string_view> gpu_architectures() { return kArchitectures; }

Result<GpuTarget> gpu_target(std::string_view arch) {
  const std::vector<std::string_view> known(std::begin(kArchitectures), std::end(kArchitectures));
  if (std::find(known.begin(), known.end(), arch) != known.end()) return GpuTarget{std::string(arch)};
  return user_error("unknown architecture '{}'{}; there are templates for {}", arch, did_you_mean(arch, known),
                    fmt::join(known, ", "));
}

std::string gpu_target_text(const GpuTarget& target) { return "cuda " + target.arch; }

Result<std::vector<ScheduledProgram>> schedule_module_gpu(const Module& module, const GpuTarget& target) {
  return schedule_module(module, lower_target(target));
}

Result<GpuLowered> lower_gpu(Module module, const GpuTarget& target, const GpuLowerOptions& options) {
  if (options.cubin && !options.ptxas)
    return user_error("cubins need ptxas: put it in PATH or set STEPC_PTXAS; without it the driver compiles PTX");
  LowerOptions common = options.common;
  common.plan.alignment_bytes = std::max(common.plan.alignment_bytes, kGpuAlignmentBytes);
  common.passes.for_gpu = true;
  if (common.run_passes) STEPC_TRY(run_passes(module, common.passes));
  LowerTarget gpu = lower_target(target);
  STEPC_ASSIGN(const std::vector<ScheduledProgram> programs, schedule_module(module, gpu));
  std::vector<PtxasReport> reports(options.ptxas ? launches(programs) : 0);  // no fewer than kernels
  gpu.compile = [&](size_t index, const kernel::Kernel& definition) -> Result<std::string> {
    STEPC_ASSIGN(std::string ptx, cached_ptx(definition, target, common.cache_folder));
    if (!options.ptxas) return ptx;
    STEPC_ASSIGN(Cubin cubin, assemble(*options.ptxas, ptx, target.arch, definition.name, common.cache_folder));
    reports[index] = std::move(cubin.report);
    return options.cubin ? std::move(cubin.code) : std::move(ptx);
  };
  GpuLowered lowered;
  STEPC_ASSIGN(lowered.bundle, lower_scheduled(module, programs, gpu, common));
  if (options.ptxas) reports.resize(lowered.bundle.kernels.size());
  lowered.reports = std::move(reports);
  return lowered;
}

}  // namespace stepc
