#include "tools/stepc/target.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "compiler/emit/host.h"
#include "compiler/emit/nvptx.h"
#include "compiler/lower_gpu.h"
#include "compiler/plan/roofline.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

constexpr std::string_view kHostStages[] = {"llvm", "asm"};
constexpr std::string_view kGpuStages[] = {"llvm", "ptx"};

std::vector<std::string_view> architectures() {
  std::vector<std::string_view> names = {"host"};
  const auto gpus = gpu_architectures();
  names.insert(names.end(), gpus.begin(), gpus.end());
  return names;
}

}  // namespace

std::string architectures_text() { return fmt::format("{}", fmt::join(architectures(), ", ")); }

Result<CodeTarget> code_target(const std::string& arch, bool baseline) {
  const auto names = architectures();
  if (std::find(names.begin(), names.end(), arch) == names.end())
    return user_error("--arch {}: unknown{}; known are {}", arch, did_you_mean(arch, names), architectures_text());
  CodeTarget target;
  if (arch == "host") {
    target.host = baseline ? baseline_host_target() : detect_host_target();
    return target;
  }
  STEPC_ASSIGN(target.gpu, gpu_target(arch));
  return target;
}

PassOptions pass_options(const CodeTarget& target) {
  return {.for_gpu = target.gpu.has_value(), .has_sm90 = target.gpu && target.gpu->has_sm90()};
}

void add_updates_apart(CLI::App& command, bool& updates_apart) {
  command.add_flag("--updates-apart", updates_apart, "Keep optimizer updates out of the products of their gradients");
}

PlanOptions plan_options(const CodeTarget& target) {
  PlanOptions options;
  if (target.gpu) options.alignment_bytes = kGpuAlignmentBytes;
  return options;
}

Result<ScheduledKernel> schedule_group(const Program& program, const Group& group, const CodeTarget& target) {
  return target.gpu ? schedule_gpu(program, group, *target.gpu) : schedule_host(program, group, target.host);
}

void RecomputeChoice::add_to(CLI::App& command) {
  command.add_option("--recompute", name,
                     "What forward does not keep but backward makes again: none, auto (what the memory asks for), all");
}

Result<Recompute> RecomputeChoice::mode() const {
  if (const auto mode = recompute_from_name(name)) return *mode;
  const auto names = recompute_names();
  return user_error("--recompute {}: unknown{}; known are {}", name, did_you_mean(name, {names.begin(), names.end()}),
                    fmt::join(names, ", "));
}

int64_t memory_bytes(const std::string& arch) {
  if (const auto peaks = device_peaks(arch)) return peaks->memory_bytes;
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

std::vector<const kernel::Kernel*> kernels_of(const ScheduledKernel& scheduled) {
  std::vector<const kernel::Kernel*> kernels = {&scheduled.kernel};
  for (const LaterKernel& later : scheduled.later) kernels.push_back(&later.kernel);
  return kernels;
}

std::span<const std::string_view> code_stages(const CodeTarget& target) {
  if (target.gpu) return kGpuStages;
  return kHostStages;
}

Result<std::vector<CodeText>> code_texts(const kernel::Kernel& kernel, const CodeTarget& target) {
  std::vector<CodeText> texts;
  if (target.gpu) {
    STEPC_ASSIGN(PtxCode code, emit_ptx(kernel, *target.gpu, {.want_llvm_text = true}));
    texts = {{"llvm", "ll", std::move(code.llvm_text)}, {"ptx", "ptx", std::move(code.ptx)}};
  } else {
    STEPC_ASSIGN(HostCode code, emit_host(kernel, target.host, {.want_llvm_text = true, .want_assembly = true}));
    texts = {{"llvm", "ll", std::move(code.llvm_text)}, {"asm", "s", std::move(code.assembly)}};
  }
  return texts;
}

}  // namespace stepc
