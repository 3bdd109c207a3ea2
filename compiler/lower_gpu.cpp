#include "compiler/lower_gpu.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "compiler/emit/emitter_id.h"
#include "compiler/emit/nvptx.h"
#include "compiler/lower_target.h"
#include "ir/kernel/print.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

constexpr std::string_view kArchitectures[] = {"sm_80", "sm_89", "sm_90a"};

// What code comes from: the same text gives the same PTX.
std::string code_source(const kernel::Kernel& definition, const GpuTarget& target) {
  return fmt::format("{}\n{}\n{}", emitter_id(), gpu_target_text(target), kernel::print_kernel(definition));
}

LowerTarget lower_target(const GpuTarget& target) {
  LowerTarget gpu;
  gpu.text = gpu_target_text(target);
  gpu.schedule = [target](const Program& program, const Group& group) { return schedule_gpu(program, group, target); };
  return gpu;
}

// Reports by kernel, written from several threads.
LowerTarget compiling_target(const GpuTarget& target, const GpuLowerOptions& options,
                             std::vector<PtxasReport>& reports) {
  const std::string& folder = options.common.cache_folder;
  LowerTarget gpu = lower_target(target);
  const auto mutex = std::make_shared<std::mutex>();
  gpu.compile = [&, mutex, target](size_t index, const kernel::Kernel& definition) -> Result<CompiledCode> {
    const std::string source = code_source(definition, target);
    const auto ptx = [&]() -> Result<CompiledCode> {
      return cached_code(folder, source, [&]() -> Result<std::string> {
        STEPC_ASSIGN(PtxCode code, emit_ptx(definition, target));
        return std::move(code.ptx);
      });
    };
    if (!options.ptxas) return ptx();
    const auto ptx_text = [&]() -> Result<std::string> {
      STEPC_ASSIGN(CompiledCode code, ptx());
      return std::move(code.code);
    };
    // A cubin that is there needs no PTX.
    STEPC_ASSIGN(Cubin cubin, assemble(*options.ptxas, {source, ptx_text}, target.arch, definition.name, folder));
    {
      const std::lock_guard lock(*mutex);
      if (reports.size() <= index) reports.resize(index + 1);
      reports[index] = std::move(cubin.report);
    }
    if (options.cubin) return CompiledCode{std::move(cubin.code), cubin.cached};
    STEPC_ASSIGN(CompiledCode text, ptx());
    return CompiledCode{std::move(text.code), text.cached && cubin.cached};
  };
  return gpu;
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
  common.passes.has_sm90 = target.has_sm90();
  GpuLowered lowered;
  const LowerTarget gpu = compiling_target(target, options, lowered.reports);
  STEPC_ASSIGN(lowered.bundle, lower_module(module, gpu, common));
  if (options.ptxas) lowered.reports.resize(lowered.bundle.kernels.size());
  return lowered;
}

}  // namespace stepc
