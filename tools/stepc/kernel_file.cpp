#include "tools/stepc/kernel_file.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/lower_gpu.h"
#include "ir/kernel/parse.h"
#include "ir/support/check.h"
#include "ir/support/file.h"
#include "ir/text/names.h"
#include "tools/stepc/reports.h"
#include "tools/stepc/target.h"

namespace stepc {
namespace {

std::string own_arch(const kernel::Kernel& kernel) {
  switch (kernel.target) {
    case kernel::Target::host: return "host";
    case kernel::Target::cuda: return "sm_80";
    case kernel::Target::sm90: return "sm_90a";
  }
  STEPC_UNREACHABLE("target {}", static_cast<int>(kernel.target));
}

Status check_arch(const kernel::Kernel& kernel, const std::string& arch, const CodeTarget& target) {
  const bool fits = kernel.target == kernel::Target::host   ? !target.gpu
                    : kernel.target == kernel::Target::cuda ? target.gpu.has_value()
                                                            : target.gpu && target.gpu->has_sm90();
  if (fits) return {};
  return user_error("--arch {}: kernel @{} is for {}; expected {}", arch, kernel.name,
                    kernel::target_name(kernel.target), own_arch(kernel));
}

// The text or cubin that was asked for; a report on the way.
Result<std::string> chosen_code(const kernel::Kernel& kernel, const std::string& file, const CodeTarget& target,
                                const std::string& wanted) {
  STEPC_ASSIGN(std::vector<CodeText> texts, code_texts(kernel, target));
  if (target.gpu) {
    STEPC_ASSIGN(const std::optional<Ptxas> ptxas, find_ptxas());
    if (wanted == "cubin" && !ptxas) return user_error("--emit cubin needs ptxas: put it in PATH or set STEPC_PTXAS");
    if (ptxas) {
      STEPC_ASSIGN(Cubin cubin, assemble(*ptxas, texts.back().text, target.gpu->arch, kernel.name));
      BundleKernel row;
      row.name = kernel.name, row.problem = file, row.config = target.gpu->arch;
      row.shared_bytes = kernel::shared_layout(kernel).total_bytes, row.launch = kernel::gpu_launch(kernel);
      fmt::print(stderr, "{}", kernel_table({&row, 1}, {&cubin.report, 1}));
      STEPC_TRY(check_reports({&row, 1}, {&cubin.report, 1}));
      if (wanted == "cubin") return std::move(cubin.code);
    }
  }
  const auto at = std::find_if(texts.begin(), texts.end(), [&](const CodeText& text) { return text.stage == wanted; });
  return std::move(at->text);
}

}  // namespace

bool is_kernel_file(const std::string& path) { return path.ends_with(".kir"); }

Status compile_kernel_file(const KernelFileOptions& options) {
  STEPC_ASSIGN(const std::string text, read_file(options.file));
  STEPC_ASSIGN(const kernel::Kernel kernel, kernel::parse_kernel(text, options.file));
  const std::string arch = options.arch.empty() ? own_arch(kernel) : options.arch;
  STEPC_ASSIGN(const CodeTarget target, code_target(arch, options.baseline));
  STEPC_TRY(check_arch(kernel, arch, target));
  const auto stages = code_stages(target);
  std::vector<std::string_view> forms(stages.begin(), stages.end());
  if (target.gpu) forms.push_back("cubin");
  const std::string wanted = options.emit.empty() ? std::string(stages.back()) : options.emit;
  if (std::find(forms.begin(), forms.end(), wanted) == forms.end())
    return user_error("--emit {}: unknown{}; expected {}", wanted, did_you_mean(wanted, forms), fmt::join(forms, ", "));
  STEPC_ASSIGN(const std::string code, chosen_code(kernel, options.file, target, wanted));
  if (!options.out.empty()) return write_file_atomic(options.out, code, Durability::unsynced);
  std::fwrite(code.data(), 1, code.size(), stdout);
  return {};
}

}  // namespace stepc
