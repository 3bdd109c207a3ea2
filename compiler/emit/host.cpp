// One kernel to one object file: LLVM module, passes, code. Every call has an LLVMContext of its own, so
// kernels compile in parallel.
#include "compiler/emit/host.h"

#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <mutex>

#include "compiler/emit/host_context.h"
#include "compiler/emit/passes.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

using emit::HostContext;
using kernel::index_of;

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
  });
}

std::unique_ptr<llvm::TargetMachine> make_machine(const HostTarget& target) {
  const std::string triple = llvm::sys::getProcessTriple();
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  STEPC_CHECK(found, "{}", error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(triple, target.cpu, target.features, options,
                                                                         llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                                         llvm::CodeGenOptLevel::Aggressive));
}

// A result may be the same memory as an operand that it overwrites, of as many bytes.
bool may_overlap(const kernel::Buffer& a, const kernel::Buffer& b) {
  const auto bytes = [](const kernel::Buffer& buffer) { return numel(buffer.shape) * dtype_bytes(buffer.dtype); };
  const bool both_global = a.space == kernel::Space::global && b.space == kernel::Space::global;
  return both_global && (a.overwritten || b.overwritten) && bytes(a) == bytes(b);
}

// A scope a buffer, so that stores to one do not hold back loads from another.
void make_alias_scopes(HostContext& context) {
  llvm::MDBuilder metadata(context.module.getContext());
  llvm::MDNode* domain = metadata.createAnonymousAliasScopeDomain("buffers");
  std::vector<llvm::Metadata*> scopes;
  for (const auto& buffer : context.kernel.buffers)
    scopes.push_back(metadata.createAnonymousAliasScope(domain, buffer.name));
  for (size_t i = 0; i < scopes.size(); ++i) {
    std::vector<llvm::Metadata*> others;
    for (size_t j = 0; j < scopes.size(); ++j)
      if (j != i && !may_overlap(context.kernel.buffers[i], context.kernel.buffers[j])) others.push_back(scopes[j]);
    context.alias_scope[i] = llvm::MDNode::get(context.module.getContext(), {scopes[i]});
    context.noalias_scopes[i] = llvm::MDNode::get(context.module.getContext(), others);
  }
}

// Binds buffers and scalars to what the caller passes.
void emit_prologue(HostContext& context) {
  auto& builder = context.builder;
  const auto layout = kernel::shared_layout(context.kernel);
  llvm::Value* buffers = context.function->getArg(0);
  llvm::Value* scalars = context.function->getArg(1);
  context.task = context.function->getArg(2);
  uint64_t position = 0;
  for (size_t i = 0; i < context.kernel.buffers.size(); ++i) {
    if (context.kernel.buffers[i].space == kernel::Space::global)
      context.buffer_base[i] =
          builder.CreateLoad(builder.getPtrTy(), builder.CreateConstGEP1_64(builder.getPtrTy(), buffers, position++));
    else
      context.buffer_base[i] = builder.CreateConstGEP1_64(builder.getInt8Ty(), context.function->getArg(3),
                                                          static_cast<uint64_t>(layout.offset_bytes[i]));
  }
  for (size_t i = 0; i < context.kernel.scalars.size(); ++i)
    context.variables[index_of(context.kernel.scalars[i])] =
        builder.CreateLoad(builder.getInt64Ty(), builder.CreateConstGEP1_64(builder.getInt64Ty(), scalars, i));
}

void emit_function(HostContext& context) {
  auto& builder = context.builder;
  auto* type = llvm::FunctionType::get(
      builder.getVoidTy(), {builder.getPtrTy(), builder.getPtrTy(), builder.getInt64Ty(), builder.getPtrTy()}, false);
  context.function =
      llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, context.kernel.name, context.module);
  context.function->addFnAttr("prefer-vector-width", std::to_string(context.target.vector_bytes * 8));
  context.function->addFnAttr("min-legal-vector-width", std::to_string(context.target.vector_bytes * 8));
  context.function->addFnAttr("target-cpu", context.target.cpu);
  context.function->addFnAttr("target-features", context.target.features);
  context.function->addFnAttr("no-builtins");
  context.function->addFnAttr(llvm::Attribute::NoUnwind);
  context.function->addParamAttr(3, llvm::Attribute::getWithAlignment(context.module.getContext(), llvm::Align(64)));
  builder.SetInsertPoint(context.block("entry"));
  make_alias_scopes(context);
  emit_prologue(context);
  std::vector<emit::Rows> nothing;
  for (const auto& role : context.kernel.roles) emit::emit_body(context, role.body, nothing);
  builder.CreateRetVoid();
}

}  // namespace

Result<HostCode> emit_host(const kernel::Kernel& kernel, const HostTarget& target, const HostEmitOptions& options) {
  if (kernel.target != kernel::Target::host)
    return user_error("kernel @{} is for {}, not for the host", kernel.name, kernel::target_name(kernel.target));
  initialise_llvm();
  llvm::LLVMContext llvm_context;
  llvm::Module module(kernel.name, llvm_context);
  const auto machine = make_machine(target);
  module.setDataLayout(machine->createDataLayout());
  module.setTargetTriple(machine->getTargetTriple().str());
  HostContext context(kernel, target, module);
  emit_function(context);
  std::string problem;
  llvm::raw_string_ostream problem_stream(problem);
  STEPC_CHECK(!llvm::verifyModule(module, &problem_stream), "LLVM rejects kernel @{}: {}", kernel.name, problem);
  emit::optimise(module, *machine);

  HostCode code;
  if (options.want_llvm_text) {
    llvm::raw_string_ostream text(code.llvm_text);
    module.print(text, nullptr);
  }
  if (options.want_assembly) {
    const auto copy = llvm::CloneModule(module);
    code.assembly = emit::emit_file(*copy, *machine, llvm::CodeGenFileType::AssemblyFile);
  }
  code.object = emit::emit_file(module, *machine, llvm::CodeGenFileType::ObjectFile);
  return code;
}

HostTarget detect_host_target() {
  initialise_llvm();
  HostTarget target;
  target.cpu = llvm::sys::getHostCPUName().str();
  for (const auto& [name, present] : llvm::sys::getHostCPUFeatures())
    target.features += fmt::format("{}{}{}", target.features.empty() ? "" : ",", present ? "+" : "-", name.str());
  const auto has = [&](std::string_view feature) {
    return ("," + target.features + ",").find(fmt::format(",+{},", feature)) != std::string::npos;
  };
  target.vector_bytes = has("avx512f") && has("avx512bw") && has("avx512vl") ? 64 : has("avx2") && has("fma") ? 32 : 16;
  target.bf16_dot = target.vector_bytes == 64 && has("avx512bf16");
  return target;
}

HostTarget baseline_host_target() { return {.cpu = "haswell", .features = "", .vector_bytes = 32, .bf16_dot = false}; }

}  // namespace stepc
