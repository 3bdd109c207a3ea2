// Bodies, loops and branches; the switch over ops.
#include "compiler/emit/host_context.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::index_of;
using kernel::KOp;
using kernel::Op;

void emit_loop(HostContext& context, const KOp& op) {
  auto& builder = context.builder;
  llvm::Value* low = emit_expr(context, op.indices[0]);
  llvm::Value* high = emit_expr(context, op.indices[1]);
  llvm::Value* step = emit_expr(context, op.indices[2]);
  std::vector<Rows> initial;
  for (auto id : op.frags) initial.push_back(context.rows(id));

  llvm::BasicBlock* before = builder.GetInsertBlock();
  auto* header = context.block("loop");
  auto* inside = context.block("loop.body");
  auto* after = context.block("loop.end");
  builder.CreateBr(header);
  builder.SetInsertPoint(header);
  auto* index = builder.CreatePHI(builder.getInt64Ty(), 2);
  index->addIncoming(low, before);
  const auto phis = make_phis(context, initial, before);
  builder.CreateCondBr(builder.CreateICmpSLT(index, high), inside, after);

  builder.SetInsertPoint(inside);
  context.variables[index_of(op.variable)] = index;
  const kernel::Body& body = op.bodies[0];
  for (size_t i = 0; i < body.carried.size(); ++i) context.frags[index_of(body.carried[i])] = phis[i];
  std::vector<Rows> yielded;
  emit_body(context, body, yielded);
  index->addIncoming(builder.CreateNSWAdd(index, step), builder.GetInsertBlock());
  add_incoming(phis, yielded, builder.GetInsertBlock());
  builder.CreateBr(header);

  builder.SetInsertPoint(after);
  for (size_t i = 0; i < op.results.size(); ++i) context.frags[index_of(op.results[i])] = phis[i];
}

void emit_branch(HostContext& context, const KOp& op) {
  auto& builder = context.builder;
  llvm::Value* condition = builder.CreateICmpNE(emit_expr(context, op.indices[0]), context.i64(0));
  auto* yes = context.block("if.then");
  auto* no = context.block("if.else");
  auto* after = context.block("if.end");
  builder.CreateCondBr(condition, yes, no);

  std::vector<Rows> then_values, else_values;
  builder.SetInsertPoint(yes);
  emit_body(context, op.bodies[0], then_values);
  llvm::BasicBlock* then_end = builder.GetInsertBlock();
  builder.CreateBr(after);
  builder.SetInsertPoint(no);
  if (op.bodies.size() > 1) emit_body(context, op.bodies[1], else_values);
  llvm::BasicBlock* else_end = builder.GetInsertBlock();
  builder.CreateBr(after);

  builder.SetInsertPoint(after);
  if (op.results.empty()) return;
  const auto phis = make_phis(context, then_values, then_end);
  add_incoming(phis, else_values, else_end);
  for (size_t i = 0; i < op.results.size(); ++i) context.frags[index_of(op.results[i])] = phis[i];
}

void emit_op(HostContext& context, const KOp& op, std::vector<Rows>& yielded) {
  switch (op.op) {
    case Op::index: context.variables[index_of(op.variable)] = emit_expr(context, op.indices[0]); return;
    case Op::load_index: return emit_load_index(context, op);
    case Op::to_index:
      context.variables[index_of(op.variable)] =
          context.builder.CreateSExt(context.rows(op.frags[0])[0], context.builder.getInt64Ty());
      return;
    case Op::loop: return emit_loop(context, op);
    case Op::branch: return emit_branch(context, op);
    case Op::yield:
      for (auto id : op.frags) yielded.push_back(context.rows(id));
      return;
    case Op::load: return emit_load(context, op);
    case Op::store: return emit_store(context, op);
    case Op::gather: return emit_gather(context, op);
    case Op::scatter: return emit_scatter(context, op);
    case Op::constant:
    case Op::lane:
    case Op::from_index:
    case Op::splat:
    case Op::permute: return emit_shuffle(context, op);
    case Op::neg... Op::select: return emit_pointwise(context, op);  // the pointwise rows of the table, as in types.h
    case Op::random_bits: return emit_random_bits(context, op);
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min: return emit_reduce(context, op);
    case Op::pack: return emit_pack(context, op);
    case Op::mma: return emit_mma(context, op);
    case Op::prefetch: return emit_prefetch(context, op);
    case Op::wait:
    case Op::arrive:
    case Op::expect:
    case Op::sync:
    case Op::sync_arrive:
    case Op::tma_load:
    case Op::tma_store:
    case Op::bulk_load:
    case Op::bulk_reduce:
    case Op::bulk_commit:
    case Op::bulk_wait:
    case Op::fence_async:
    case Op::progress_wait:
    case Op::progress_add:
    case Op::progress_end:
    case Op::once:
    case Op::wgmma:
    case Op::wgmma_rs:
    case Op::wgmma_wait:
    case Op::stmatrix:
    case Op::halves:
    case Op::columns:
    case Op::exp2:
    case Op::sync_task:
    case Op::copy_async:
    case Op::copy_commit:
    case Op::copy_wait:
    case Op::mma_sync:
    case Op::mma_sync_rs: break;
  }
  STEPC_UNREACHABLE("op {} in a host kernel", kernel::op_info(op.op).name);
}

}  // namespace

void emit_body(HostContext& context, const kernel::Body& body, std::vector<Rows>& yielded) {
  for (auto id : body.ops) emit_op(context, context.kernel.op(id), yielded);
}

void emit_for(HostContext& context, llvm::Value* low, llvm::Value* high, llvm::Value* step,
              const std::function<void(llvm::Value*)>& body) {
  auto& builder = context.builder;
  llvm::BasicBlock* before = builder.GetInsertBlock();
  auto* header = context.block("for");
  auto* inside = context.block("for.body");
  auto* after = context.block("for.end");
  builder.CreateBr(header);
  builder.SetInsertPoint(header);
  auto* index = builder.CreatePHI(builder.getInt64Ty(), 2);
  index->addIncoming(low, before);
  builder.CreateCondBr(builder.CreateICmpSLT(index, high), inside, after);
  builder.SetInsertPoint(inside);
  body(index);
  index->addIncoming(builder.CreateNSWAdd(index, step), builder.GetInsertBlock());
  builder.CreateBr(header);
  builder.SetInsertPoint(after);
}

}  // namespace stepc::emit
