// One kernel to PTX: LLVM module, passes, text. Every call has an LLVMContext of its own, so kernels compile in
// parallel.
#include "compiler/emit/nvptx.h"

#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>

#include <mutex>

#include "compiler/emit/nvptx/context.h"
#include "compiler/emit/passes.h"
#include "ir/support/check.h"

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace llvm {
void clearAnnotationCache(const Module*);  // of the NVPTX back end, in no public header
}

namespace stepc {
namespace {

constexpr const char* kTriple = "nvptx64-nvidia-cuda";

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

std::unique_ptr<llvm::TargetMachine> make_machine(const GpuTarget& target) {
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(kTriple, error);
  STEPC_CHECK(found, "{}", error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      kTriple, target.arch, "+ptx80", options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

// The annotation cache must not outlive the module, whichever way the function is left.
struct AnnotationGuard {
  const llvm::Module& module;
  ~AnnotationGuard() { llvm::clearAnnotationCache(&module); }
};

Status check_target(const kernel::Kernel& kernel, const GpuTarget& target) {
  if (kernel.target == kernel::Target::host)
    return user_error("kernel @{} is for the host, not for a GPU", kernel.name);
  if (kernel.target == kernel::Target::sm90 && !target.has_sm90())
    return user_error("kernel @{} is for sm90, found {}", kernel.name, target.arch);
  if (target.arch == "sm_80" || target.arch == "sm_89" || target.arch == "sm_90a") return {};
  return user_error("unknown architecture {}, expected sm_80, sm_89 or sm_90a", target.arch);
}

}  // namespace

Result<PtxCode> emit_ptx(const kernel::Kernel& kernel, const GpuTarget& target, const PtxOptions& options) {
  STEPC_TRY(check_target(kernel, target));
  STEPC_ASSIGN(auto layouts, kernel::fragment_layouts(kernel));
  initialise_llvm();
  llvm::LLVMContext llvm_context;
  llvm::Module module(kernel.name, llvm_context);
  const AnnotationGuard guard{module};
  const auto machine = make_machine(target);
  module.setDataLayout(machine->createDataLayout());
  module.setTargetTriple(kTriple);
  emit::GpuContext context(kernel, target, module);
  context.layouts = std::move(layouts);
  emit::emit_entry(context);
  if (context.error) return tl::unexpected(*context.error);
  std::string problem;
  llvm::raw_string_ostream problem_stream(problem);
  STEPC_CHECK(!llvm::verifyModule(module, &problem_stream), "LLVM rejects kernel @{}: {}", kernel.name, problem);
  emit::optimise(module, *machine);

  PtxCode code;
  if (options.want_llvm_text) {
    llvm::raw_string_ostream text(code.llvm_text);
    module.print(text, nullptr);
  }
  code.ptx = emit::emit_file(module, *machine, llvm::CodeGenFileType::AssemblyFile);
  return code;
}

namespace emit {

void GpuContext::fail(const kernel::KOp& op, const std::string& message) {
  if (error) return;
  error = user_error_at(op.where, "kernel @{}: {}: {}", kernel.name, kernel::op_info(op.op).name, message).value();
}

}  // namespace emit

}  // namespace stepc
