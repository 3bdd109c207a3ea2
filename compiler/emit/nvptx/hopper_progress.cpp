// Two counters in a variable of the module, which is 0 when the module is loaded: progress_add's, and the tasks at
// their end. A launch leaves both at 0. Launches of one kernel at the same time would mix them up, and then wait in
// vain or not at all, but never for longer than the limit.
#include "compiler/emit/nvptx/hopper.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

constexpr int kPolls = 256;  // of about a microsecond: more than tasks that started together come apart in a tile

// The address of a counter, 0 or 1, as i64.
llvm::Value* counter(GpuContext& context, int which) {
  constexpr unsigned kGlobalSpace = 1;
  constexpr const char* kName = "progress";
  auto& builder = context.builder;
  auto* type = llvm::ArrayType::get(builder.getInt32Ty(), 2);
  llvm::GlobalVariable* variable = context.module.getGlobalVariable(kName, true);
  if (!variable) {
    variable = new llvm::GlobalVariable(context.module, type, false, llvm::GlobalValue::InternalLinkage,
                                        llvm::ConstantAggregateZero::get(type), kName, nullptr,
                                        llvm::GlobalValue::NotThreadLocal, kGlobalSpace);
    variable->setAlignment(llvm::Align(8));
  }
  llvm::Value* address = builder.CreatePtrToInt(variable, builder.getInt64Ty());
  return which == 0 ? address : builder.CreateAdd(address, builder.getInt64(4 * which));
}

void emit_progress_wait(GpuContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  llvm::Value* address = counter(context, 0);
  llvm::Value* wanted = emit_expr32(context, op.indices[0]);
  llvm::BasicBlock* before = builder.GetInsertBlock();
  auto* again = context.block("progress");
  auto* after = context.block("progress.end");
  builder.CreateBr(again);
  builder.SetInsertPoint(again);
  auto* poll = builder.CreatePHI(builder.getInt32Ty(), 2);
  poll->addIncoming(context.i32(0), before);
  llvm::Value* next = builder.CreateAdd(poll, context.i32(1));
  poll->addIncoming(next, again);
  llvm::Value* found = emit_leaf(context, Leaf::progress_read, {address})[0];
  llvm::Value* ends =
      builder.CreateOr(builder.CreateICmpUGE(found, wanted), builder.CreateICmpEQ(next, context.i32(kPolls)));
  builder.CreateCondBr(ends, after, again);
  builder.SetInsertPoint(after);
}

void emit_progress_end(GpuContext& context) {
  auto& builder = context.builder;
  llvm::Value* before = emit_leaf(context, Leaf::progress_done, {counter(context, 1)})[0];
  llvm::Value* others = builder.CreateSub(emit_expr32(context, context.kernel.grid), context.i32(1));
  emit_when(context, builder.CreateICmpEQ(before, others), [&] {
    for (const int which : {0, 1}) emit_leaf(context, Leaf::progress_clear, {counter(context, which)});
  });
}

}  // namespace

void emit_progress_op(GpuContext& context, const kernel::KOp& op) {
  if (op.op == kernel::Op::progress_wait) return emit_progress_wait(context, op);
  if (op.op == kernel::Op::progress_end) return emit_progress_end(context);
  STEPC_CHECK(op.op == kernel::Op::progress_add, "{} is no op of progress", kernel::op_info(op.op).name);
  emit_leaf(context, Leaf::progress_add, {counter(context, 0)});
}

}  // namespace stepc::emit
