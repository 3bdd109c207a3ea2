// Bodies, loops, branches, barriers; the switch over ops.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/emit/nvptx/context.h"
#include "compiler/emit/nvptx/hopper.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::index_of;
using kernel::KOp;
using kernel::Op;

// Low, high and step of a loop in 32 bits, if the index and the step past its end fit.
bool is_narrow_loop(GpuContext& context, const KOp& op) {
  const kernel::Range high = index_range(context, op.indices[1]);
  const kernel::Range step = index_range(context, op.indices[2]);
  return fits_i32(index_range(context, op.indices[0])) && fits_i32(high) && fits_i32(step) &&
         fits_i32({0, high.high + step.high}) && fits_i32(context.kernel.variables[index_of(op.variable)].range);
}

void emit_loop(GpuContext& context, const KOp& op) {
  auto& builder = context.builder;
  llvm::Value* bounds[3];
  const bool narrow = is_narrow_loop(context, op);
  for (size_t i = 0; i < 3; ++i)
    bounds[i] = narrow ? emit_expr32(context, op.indices[i]) : emit_expr64(context, op.indices[i]);
  std::vector<Words> initial;
  for (auto id : op.frags) initial.push_back(context.words(id));

  llvm::BasicBlock* before = builder.GetInsertBlock();
  auto* header = context.block("loop");
  auto* inside = context.block("loop.body");
  auto* after = context.block("loop.end");
  builder.CreateBr(header);
  builder.SetInsertPoint(header);
  auto* index = builder.CreatePHI(bounds[0]->getType(), 2);
  index->addIncoming(bounds[0], before);
  const auto phis = make_phis(context, initial, before);
  builder.CreateCondBr(builder.CreateICmpSLT(index, bounds[1]), inside, after);

  builder.SetInsertPoint(inside);
  context.variables[index_of(op.variable)] = index;
  context.exchange_dirty = true;  // the turn before may have left it so
  const kernel::Body& body = op.bodies[0];
  for (size_t i = 0; i < body.carried.size(); ++i) context.set_words(body.carried[i], phis[i]);
  std::vector<Words> yielded;
  emit_body(context, body, yielded);
  index->addIncoming(builder.CreateNSWAdd(index, bounds[2]), builder.GetInsertBlock());
  add_incoming(phis, yielded, builder.GetInsertBlock());
  builder.CreateBr(header);

  builder.SetInsertPoint(after);
  for (size_t i = 0; i < op.results.size(); ++i) context.set_words(op.results[i], phis[i]);
}

void emit_branch(GpuContext& context, const KOp& op) {
  auto& builder = context.builder;
  llvm::Value* chosen = emit_expr(context, op.indices[0]);
  llvm::Value* condition = builder.CreateICmpNE(chosen, llvm::Constant::getNullValue(chosen->getType()));
  auto* yes = context.block("if.then");
  auto* no = context.block("if.else");
  auto* after = context.block("if.end");
  builder.CreateCondBr(condition, yes, no);

  std::vector<Words> then_values, else_values;
  builder.SetInsertPoint(yes);
  const bool was_dirty = context.exchange_dirty;
  emit_body(context, op.bodies[0], then_values);
  llvm::BasicBlock* then_end = builder.GetInsertBlock();
  builder.CreateBr(after);
  builder.SetInsertPoint(no);
  const bool then_dirty = std::exchange(context.exchange_dirty, was_dirty);
  if (op.bodies.size() > 1) emit_body(context, op.bodies[1], else_values);
  context.exchange_dirty = context.exchange_dirty || then_dirty;
  llvm::BasicBlock* else_end = builder.GetInsertBlock();
  builder.CreateBr(after);

  builder.SetInsertPoint(after);
  if (op.results.empty()) return;
  const auto phis = make_phis(context, then_values, then_end);
  add_incoming(phis, else_values, else_end);
  for (size_t i = 0; i < op.results.size(); ++i) context.set_words(op.results[i], phis[i]);
}

void emit_once(GpuContext& context, const KOp& op) {
  if (context.in_once) return context.fail(op, "inside another once");
  emit_when(context, emit_elected(context), [&] {
    context.in_once = true;
    std::vector<Words> nothing;
    emit_body(context, op.bodies[0], nothing);
    context.in_once = false;
  });
}

void emit_sync(GpuContext& context, const KOp& op) {
  const int64_t threads = 32 * kernel::integer_attr(op, "warps", context.role.warps);
  emit_leaf(context, op.op == Op::sync ? Leaf::barrier_sync : Leaf::barrier_arrive,
            {emit_expr32(context, op.indices[0]), context.i32(threads)});
}

void emit_sync_task(GpuContext& context) { context.builder.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {}); }

void emit_op(GpuContext& context, const KOp& op, std::vector<Words>& yielded) {
  switch (op.op) {
    case Op::index: context.variables[index_of(op.variable)] = emit_expr(context, op.indices[0]); return;
    case Op::load_index: return emit_load_index(context, op);
    case Op::to_index: context.variables[index_of(op.variable)] = context.words(op.frags[0])[0]; return;
    case Op::loop: return emit_loop(context, op);
    case Op::branch: return emit_branch(context, op);
    case Op::yield:
      for (auto id : op.frags) yielded.push_back(context.words(id));
      return;
    case Op::load: return reads_matrices(context, op) ? emit_ldmatrix(context, op) : emit_load(context, op);
    case Op::store: return emit_store(context, op);
    case Op::gather: return emit_gather(context, op);
    case Op::scatter: return emit_scatter(context, op);
    case Op::constant:
    case Op::lane:
    case Op::from_index:
    case Op::splat:
    case Op::permute:
    case Op::halves:
    case Op::columns: return emit_shuffle(context, op);
    case Op::exp2:
    case Op::neg... Op::select: return emit_pointwise(context, op);  // the pointwise rows of the table, as in types.h
    case Op::random_bits: return emit_random_bits(context, op);
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min: return emit_reduce(context, op);
    case Op::sync_task: return emit_sync_task(context);
    case Op::sync:
    case Op::sync_arrive: return emit_sync(context, op);
    case Op::once: return emit_once(context, op);
    case Op::stmatrix: return emit_stmatrix(context, op);
    case Op::copy_async: return emit_copy_async(context, op);
    case Op::copy_commit: return emit_copy_commit(context);
    case Op::copy_wait: return emit_copy_wait(context, op);
    case Op::mma_sync:
    case Op::mma_sync_rs: return emit_mma_sync(context, op);
    case Op::wait:
    case Op::arrive:
    case Op::expect: return emit_barrier_op(context, op);
    case Op::tma_load:
    case Op::tma_store:
    case Op::bulk_load:
    case Op::bulk_reduce:
    case Op::bulk_commit:
    case Op::bulk_wait:
    case Op::fence_async: return emit_bulk_op(context, op);
    case Op::progress_wait:
    case Op::progress_add:
    case Op::progress_end: return emit_progress_op(context, op);
    case Op::wgmma:
    case Op::wgmma_rs:
    case Op::wgmma_wait: return emit_warpgroup_op(context, op);
    case Op::pack:
    case Op::mma:
    case Op::prefetch: break;
  }
  context.fail(op, fmt::format("is not emitted for {}", context.target.arch));
  for (auto id : op.results) set_slots(context, id, Words(static_cast<size_t>(context.slots(id)), context.i32(0)));
}

}  // namespace

void emit_body(GpuContext& context, const kernel::Body& body, std::vector<Words>& yielded) {
  for (auto id : body.ops) {
    if (context.error) return;
    set_line(context, context.lines[index_of(id)]);
    emit_op(context, context.kernel.op(id), yielded);
  }
}

Words emit_choice(GpuContext& context, llvm::Value* condition, const std::function<Words()>& yes,
                  const std::function<Words()>& no) {
  auto& builder = context.builder;
  auto* yes_block = context.block("yes");
  auto* no_block = context.block("no");
  auto* after = context.block("chosen");
  builder.CreateCondBr(condition, yes_block, no_block);
  builder.SetInsertPoint(yes_block);
  const Words yes_words = yes();
  yes_block = builder.GetInsertBlock();
  builder.CreateBr(after);
  builder.SetInsertPoint(no_block);
  const Words no_words = no();
  no_block = builder.GetInsertBlock();
  builder.CreateBr(after);
  builder.SetInsertPoint(after);
  const auto phis = make_phis(context, {yes_words}, yes_block);
  add_incoming(phis, {no_words}, no_block);
  return phis[0];
}

Words emit_where(GpuContext& context, llvm::Value* condition, const Words& otherwise,
                 const std::function<Words()>& body) {
  return emit_choice(context, condition, body, [&] { return otherwise; });
}

void emit_when(GpuContext& context, llvm::Value* condition, const std::function<void()>& body) {
  auto* inside = context.block("when");
  auto* after = context.block("when.end");
  context.builder.CreateCondBr(condition, inside, after);
  context.builder.SetInsertPoint(inside);
  body();
  context.builder.CreateBr(after);
  context.builder.SetInsertPoint(after);
}

void emit_role_barrier(GpuContext& context) {
  if (context.role.warps == 1) {
    context.builder.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {}, {context.i32(-1)});
  } else if (context.role.alone) {
    emit_sync_task(context);
  } else {
    emit_leaf(context, Leaf::barrier_sync, {context.role.barrier, context.i32(context.role.threads())});
  }
}

llvm::Value* emit_elected(GpuContext& context) {
  auto& builder = context.builder;
  llvm::Value* first_warp = builder.CreateICmpEQ(context.role.warp, context.i32(0));
  if (!context.target.has_sm90())
    return builder.CreateAnd(first_warp, builder.CreateICmpEQ(context.role.lane, context.i32(0)));
  // elect.sync names a whole warp: warps that are not first must not reach it alone, and none does.
  const Words chosen =
      emit_where(context, first_warp, {context.i32(0)}, [&] { return emit_leaf(context, Leaf::elect, {}); });
  return builder.CreateICmpNE(chosen[0], context.i32(0));
}

}  // namespace stepc::emit
