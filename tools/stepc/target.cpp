#include "tools/stepc/target.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/emit/host.h"
#include "compiler/emit/nvptx.h"
#include "compiler/lower_gpu.h"
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

Result<ScheduledKernel> schedule_group(const Program& program, const Group& group, const CodeTarget& target) {
  return target.gpu ? schedule_gpu(program, group, *target.gpu) : schedule_host(program, group, target.host);
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
