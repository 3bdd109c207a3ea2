// mbarriers: they are made valid once, by one thread, before any role begins. Waits acquire and arrivals release at
// the scope of the task, in clusters too: what crosses tasks is announced by the copies themselves, and an arrival
// at another task's barrier publishes no data. The cluster-wide forms cost a fence of all memory an arrival.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/emit/nvptx/hopper.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::Space;

llvm::Value* barrier_address(GpuContext& context, const kernel::Ref& ref) {
  constexpr int64_t kBarrierBytes = 8;
  auto& builder = context.builder;
  llvm::Value* number = emit_expr32(context, ref.at[0]);
  return builder.CreateAdd(context.buffer_base[kernel::index_of(ref.buffer)],
                           builder.CreateMul(number, context.i32(kBarrierBytes)));
}

void emit_wait(GpuContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  llvm::Value* address = barrier_address(context, op.refs[0]);
  llvm::Value* parity = emit_expr32(context, op.indices[0]);
  auto* again = context.block("wait");
  auto* after = context.block("wait.end");
  builder.CreateBr(again);
  builder.SetInsertPoint(again);
  llvm::Value* done = emit_leaf(context, Leaf::mbarrier_try_wait, {address, parity})[0];
  builder.CreateCondBr(builder.CreateICmpNE(done, context.i32(0)), after, again);
  builder.SetInsertPoint(after);
}

// One lane arrives for its warp, and so for what the other lanes did.
void emit_arrive(GpuContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  llvm::Value* address = barrier_address(context, op.refs[0]);
  if (!context.in_once) builder.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {}, {context.i32(-1)});
  if (!flag_attr(op, "cluster")) {
    const auto arrive = [&] { emit_leaf(context, Leaf::mbarrier_arrive, {address}); };
    if (context.in_once) return arrive();
    return emit_when(context, builder.CreateICmpEQ(context.role.lane, context.i32(0)), arrive);
  }
  const auto arrive_at = [&](llvm::Value* rank) { emit_leaf(context, Leaf::mbarrier_arrive_at, {address, rank}); };
  if (context.in_once) {
    for (int64_t rank = 0; rank < context.kernel.cluster; ++rank) arrive_at(context.i32(rank));
    return;
  }
  llvm::Value* is_rank = builder.CreateICmpULT(context.role.lane, context.i32(context.kernel.cluster));
  emit_when(context, is_rank, [&] { arrive_at(context.role.lane); });
}

bool has_barriers(const kernel::Kernel& kernel) {
  for (const kernel::Buffer& buffer : kernel.buffers)
    if (buffer.space == Space::barrier) return true;
  return false;
}

void make_barriers_valid(GpuContext& context) {
  for (size_t i = 0; i < context.kernel.buffers.size(); ++i) {
    const kernel::Buffer& buffer = context.kernel.buffers[i];
    if (buffer.space == Space::map) {
      auto* address = context.builder.CreatePtrToInt(context.buffer_base[i], context.builder.getInt64Ty());
      emit_leaf(context, Leaf::prefetch_map, {address});
    }
    if (buffer.space != Space::barrier) continue;
    for (int64_t number = 0; number < buffer.shape[0]; ++number) {
      auto* address = context.builder.CreateAdd(context.buffer_base[i], context.i32(8 * number));
      emit_leaf(context, Leaf::mbarrier_init, {address, context.i32(buffer.arrivals)});
    }
  }
  if (has_barriers(context.kernel)) emit_leaf(context, Leaf::mbarrier_init_fence, {});
}

}  // namespace

void emit_hopper_entry(GpuContext& context) {
  if (context.kernel.target != kernel::Target::sm90) return;
  auto& builder = context.builder;
  llvm::Value* thread = builder.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
  emit_when(context, builder.CreateICmpEQ(thread, context.i32(0)), [&] { make_barriers_valid(context); });
  if (context.kernel.cluster > 1)
    emit_leaf(context, Leaf::cluster_barrier, {});
  else if (has_barriers(context.kernel))
    builder.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
}

// Peers may still write to this task's memory, or arrive at its barriers.
void emit_hopper_exit(GpuContext& context) {
  if (context.kernel.cluster > 1) emit_leaf(context, Leaf::cluster_barrier_last, {});
}

void emit_barrier_op(GpuContext& context, const kernel::KOp& op) {
  if (op.op == kernel::Op::wait) return emit_wait(context, op);
  if (op.op == kernel::Op::arrive) return emit_arrive(context, op);
  STEPC_CHECK(op.op == kernel::Op::expect, "{} is no op of barriers", kernel::op_info(op.op).name);
  llvm::Value* bytes = emit_expr32(context, op.indices[0]);
  emit_leaf(context, Leaf::mbarrier_expect, {barrier_address(context, op.refs[0]), bytes});
}

}  // namespace stepc::emit
