// The entry: parameters as docs/kernel_abi.md has them, and one branch per role on the warp's number.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/emit/nvptx/context.h"
#include "compiler/emit/nvptx/hopper.h"
#include "compiler/emit/nvptx/leaf.h"
#include "compiler/emit/nvptx/registers.h"
#include "ir/kernel/launch.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::index_of;
using kernel::Space;

constexpr unsigned kGlobal = 1;  // LLVM's address spaces of NVPTX
constexpr unsigned kShared = 3;
constexpr int64_t kMapBytes = 128;
constexpr int64_t kMapAlignment = 64;
constexpr int64_t kSharedAlignment = 1024;

bool is_written(const kernel::Kernel& kernel, kernel::BufferId id) {
  // Whatever names the buffer in any other way than a plain read may write it.
  for (const kernel::KOp& op : kernel.ops)
    for (size_t i = 0; i < op.refs.size(); ++i) {
      const kernel::Ref& ref = op.refs[i];
      const bool same = ref.buffer == id || kernel.buffer(ref.buffer).map_of == id;
      const bool reads = op.op == kernel::Op::load || op.op == kernel::Op::gather || op.op == kernel::Op::load_index ||
                         op.op == kernel::Op::tma_load ||
                         ((op.op == kernel::Op::copy_async || op.op == kernel::Op::bulk_load) && i == 0);
      if (same && !reads) return true;
    }
  return false;
}

std::vector<llvm::Type*> parameter_types(GpuContext& context) {
  auto& builder = context.builder;
  std::vector<llvm::Type*> types;
  const auto of_space = [&](Space space) {
    return std::count_if(context.kernel.buffers.begin(), context.kernel.buffers.end(),
                         [&](const kernel::Buffer& buffer) { return buffer.space == space; });
  };
  types.insert(types.end(), static_cast<size_t>(of_space(Space::global)), builder.getPtrTy(kGlobal));
  types.insert(types.end(), context.kernel.scalars.size(), builder.getInt64Ty());
  types.insert(types.end(), static_cast<size_t>(of_space(Space::map)), builder.getPtrTy());
  return types;
}

void bind_global(GpuContext& context, kernel::BufferId id, llvm::Argument* argument) {
  argument->setName(context.kernel.buffer(id).name);
  context.buffer_base[index_of(id)] = argument;
  auto& llvm = context.module.getContext();
  argument->addAttr(llvm::Attribute::getWithAlignment(llvm, llvm::Align(16)));
  if (context.kernel.buffer(id).overwritten || is_written(context.kernel, id)) return;
  // Both together let loads go by ld.global.nc, which is for memory that nothing writes while the kernel runs.
  argument->addAttr(llvm::Attribute::NoAlias);
  argument->addAttr(llvm::Attribute::ReadOnly);
}

void bind_map(GpuContext& context, kernel::BufferId id, llvm::Argument* argument) {
  auto& llvm = context.module.getContext();
  argument->setName(context.kernel.buffer(id).name);
  context.buffer_base[index_of(id)] = argument;
  auto* bytes = llvm::ArrayType::get(context.builder.getInt8Ty(), kMapBytes);
  argument->addAttr(llvm::Attribute::getWithByValType(llvm, bytes));
  argument->addAttr(llvm::Attribute::getWithAlignment(llvm, llvm::Align(kMapAlignment)));
}

void bind_parameters(GpuContext& context) {
  const kernel::Kernel& kernel = context.kernel;
  unsigned next = 0;
  const auto each = [&](Space space, const auto& bind) {
    for (size_t i = 0; i < kernel.buffers.size(); ++i)
      if (kernel.buffers[i].space == space)
        bind(context, static_cast<kernel::BufferId>(i), context.function->getArg(next++));
  };
  each(Space::global, bind_global);
  for (kernel::VarId id : kernel.scalars) {
    llvm::Argument* argument = context.function->getArg(next++);
    argument->setName(kernel.variables[index_of(id)].name);
    const bool narrow = fits_i32(kernel.variables[index_of(id)].range);
    context.variables[index_of(id)] =
        narrow ? context.builder.CreateTrunc(argument, context.builder.getInt32Ty()) : argument;
  }
  each(Space::map, bind_map);
}

void bind_shared(GpuContext& context) {
  const auto layout = kernel::shared_layout(context.kernel);
  if (layout.total_bytes == 0) return;
  auto* type = llvm::ArrayType::get(context.builder.getInt8Ty(), 0);
  auto* base = new llvm::GlobalVariable(context.module, type, false, llvm::GlobalValue::ExternalLinkage, nullptr,
                                        "shared_memory", nullptr, llvm::GlobalValue::NotThreadLocal, kShared);
  base->setAlignment(llvm::Align(kSharedAlignment));
  context.shared_base = context.builder.CreatePtrToInt(base, context.builder.getInt32Ty());
  for (size_t i = 0; i < context.kernel.buffers.size(); ++i)
    if (layout.offset_bytes[i] >= 0)
      context.buffer_base[i] = context.builder.CreateAdd(context.shared_base, context.i32(layout.offset_bytes[i]));
  context.exchange_offset = layout.exchange_offset;
}

// The warp's number in the task, the same value in all its lanes as far as ptxas can see.
llvm::Value* uniform_warp(GpuContext& context, llvm::Value* thread) {
  auto& builder = context.builder;
  llvm::Value* warp = builder.CreateLShr(thread, 5);
  return builder.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {},
                                 {context.i32(-1), warp, context.i32(0), context.i32(31)});
}

// setmaxnreg: warp groups that need few registers give theirs to those that need many.
void set_registers(GpuContext& context, const kernel::Role& role) {
  if (role.registers == 0 || context.role.alone) return;
  const int64_t threads = kernel::gpu_launch(context.kernel).threads;
  const int64_t at_launch = std::min<int64_t>(kRegistersOfSm / threads / 8 * 8, 255);
  if (role.registers == at_launch) return;
  emit_leaf(context, role.registers > at_launch ? Leaf::setmaxnreg_inc : Leaf::setmaxnreg_dec,
            {context.i32(role.registers)});
}

struct Threads {
  llvm::Value* thread;  // of the task
  llvm::Value* warp;
};

void enter_role(GpuContext& context, const kernel::Role& role, int64_t first_warp, const Threads& all) {
  auto& builder = context.builder;
  RoleState& state = context.role;
  state = {};
  state.role = &role;
  state.warps = role.warps;
  state.first_warp = first_warp;
  state.alone = context.kernel.roles.size() == 1 && role.copies == 1;
  state.lane = builder.CreateAnd(all.thread, context.i32(31));
  llvm::Value* warp = builder.CreateSub(all.warp, context.i32(first_warp));
  state.copy = role.copies == 1 ? context.i32(0) : builder.CreateUDiv(warp, context.i32(role.warps));
  state.warp = role.copies == 1 ? warp : builder.CreateURem(warp, context.i32(role.warps));
  state.thread = role.warps == 1 && !state.alone
                     ? state.lane
                     : builder.CreateAdd(builder.CreateMul(state.warp, context.i32(32)), state.lane);
  if (state.alone) state.thread = all.thread;
  // Kernels take named barriers from 1 up; those of reductions come from 15 down.
  int64_t copies_before = 0;
  for (const kernel::Role& other : context.kernel.roles) {
    if (&other == &role) break;
    copies_before += other.copies;
  }
  state.barrier = builder.CreateSub(context.i32(15 - copies_before), state.copy);
  if (role.copy != kernel::VarId::none) context.variables[index_of(role.copy)] = state.copy;
}

void emit_roles(GpuContext& context) {
  auto& builder = context.builder;
  Threads all{};
  all.thread = builder.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
  // Where there is nothing to branch on, no shuffle is needed to make the branch uniform.
  const bool alone = context.kernel.roles.size() == 1 && context.kernel.roles[0].copies == 1;
  all.warp = alone ? builder.CreateLShr(all.thread, 5) : uniform_warp(context, all.thread);
  llvm::BasicBlock* done = context.block("done");
  int64_t first_warp = 0;
  for (size_t i = 0; i < context.kernel.roles.size(); ++i) {
    const kernel::Role& role = context.kernel.roles[i];
    const bool is_last = i + 1 == context.kernel.roles.size();
    const int64_t end_warp = first_warp + int64_t{role.copies} * role.warps;
    llvm::BasicBlock* next = is_last ? done : context.block("role");
    if (!is_last) {
      llvm::BasicBlock* own = context.block("role.body");
      builder.CreateCondBr(builder.CreateICmpULT(all.warp, context.i32(end_warp)), own, next);
      builder.SetInsertPoint(own);
    }
    enter_role(context, role, first_warp, all);
    set_registers(context, role);
    std::vector<Words> nothing;
    emit_body(context, role.body, nothing);
    builder.CreateBr(done);
    builder.SetInsertPoint(next);
    first_warp = end_warp;
  }
}

}  // namespace

void emit_entry(GpuContext& context) {
  auto& builder = context.builder;
  auto* type = llvm::FunctionType::get(builder.getVoidTy(), parameter_types(context), false);
  context.function =
      llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, context.kernel.name, context.module);
  context.function->setCallingConv(llvm::CallingConv::PTX_Kernel);
  context.function->addFnAttr("no-builtins");
  context.function->addFnAttr(llvm::Attribute::NoUnwind);
  builder.SetInsertPoint(context.block("entry"));
  begin_lines(context);
  bind_parameters(context);
  bind_shared(context);
  annotate_entry(context, kernel::gpu_launch(context.kernel).threads);
  context.task = builder.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {});
  emit_hopper_entry(context);
  emit_roles(context);
  emit_hopper_exit(context);
  builder.CreateRetVoid();
}

}  // namespace stepc::emit
