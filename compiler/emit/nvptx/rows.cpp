// Reductions, always in the same order: a thread's slots in a tree, lanes of a warp by butterfly, warps one after the
// other through shared memory. Every thread has the result.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <limits>

#include "compiler/emit/nvptx/context.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::FragLayout;
using kernel::KOp;
using kernel::Op;

llvm::Value* combine(GpuContext& context, Op op, llvm::Value* a, llvm::Value* b) {
  if (op == Op::reduce_sum && !a->getType()->isFloatTy()) return context.builder.CreateAdd(a, b);
  if (op == Op::reduce_sum) return context.builder.CreateFAdd(a, b);
  const auto id = op == Op::reduce_max ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum;
  if (a->getType()->isFloatTy()) return context.builder.CreateBinaryIntrinsic(id, a, b);
  return emit_extreme(context, op == Op::reduce_max, a, b);
}

// What changes nothing.
llvm::Value* neutral(GpuContext& context, Op op, llvm::Type* type) {
  if (type->isFloatTy()) {
    const double infinity = std::numeric_limits<double>::infinity();
    return context.f32(op == Op::reduce_sum ? 0 : op == Op::reduce_max ? -infinity : infinity);
  }
  return context.i32(op == Op::reduce_sum ? 0 : op == Op::reduce_max ? INT32_MIN : INT32_MAX);
}

llvm::Value* combine_slots(GpuContext& context, Op op, Words values) {
  while (values.size() > 1) {
    Words next;
    for (size_t i = 0; i + 1 < values.size(); i += 2) next.push_back(combine(context, op, values[i], values[i + 1]));
    if (values.size() % 2 == 1) next.push_back(values.back());
    values = std::move(next);
  }
  return values[0];
}

llvm::Value* butterfly(GpuContext& context, Op op, llvm::Value* value, int64_t from, int64_t to) {
  auto& builder = context.builder;
  const bool is_float = value->getType()->isFloatTy();
  const auto id = is_float ? llvm::Intrinsic::nvvm_shfl_sync_bfly_f32 : llvm::Intrinsic::nvvm_shfl_sync_bfly_i32;
  for (int64_t step = from; step >= to; step /= 2) {
    llvm::Value* other = builder.CreateIntrinsic(id, {}, {context.i32(-1), value, context.i32(step), context.i32(31)});
    value = combine(context, op, value, other);
  }
  return value;
}

// One value a warp to the combination of all.
llvm::Value* exchange(GpuContext& context, Op op, llvm::Value* value) {
  const int64_t warps = context.role.warps;
  if (warps == 1) return value;
  auto& builder = context.builder;
  // Copies of a role, and roles, have places of their own.
  llvm::Value* first =
      builder.CreateAdd(builder.CreateMul(context.role.copy, context.i32(warps)), context.i32(context.role.first_warp));
  const auto place = [&](llvm::Value* warp) {
    llvm::Value* bytes = builder.CreateMul(builder.CreateAdd(first, warp), context.i32(4));
    llvm::Value* address = builder.CreateAdd(context.shared_base, context.i32(context.exchange_offset));
    return builder.CreateIntToPtr(builder.CreateAdd(address, bytes), builder.getPtrTy(3));
  };
  if (context.exchange_dirty) emit_role_barrier(context);
  context.exchange_dirty = true;
  emit_when(context, builder.CreateICmpEQ(context.role.lane, context.i32(0)),
            [&] { builder.CreateAlignedStore(value, place(context.role.warp), llvm::Align(4)); });
  emit_role_barrier(context);
  Words parts;
  for (int64_t warp = 0; warp < warps; ++warp)
    parts.push_back(builder.CreateAlignedLoad(value->getType(), place(context.i32(warp)), llvm::Align(4)));
  return combine_slots(context, op, parts);
}

// [n] -> [].
llvm::Value* reduce_vector(GpuContext& context, const KOp& op) {
  auto& builder = context.builder;
  const kernel::FragId id = op.frags[0];
  Words values = context.words(id);
  const Spread spread = spread_of(context, id);
  if (spread.idle_from >= 0) {
    llvm::Value* nothing = neutral(context, op.op, values[0]->getType());
    for (const Piece& piece : spread.pieces) {
      auto& value = values[static_cast<size_t>(piece.slot)];
      if (piece.column + context.role.threads() <= spread.idle_from) continue;
      llvm::Value* busy = builder.CreateICmpSLT(slot_column(context, spread, piece, 0), context.i32(spread.idle_from));
      value = builder.CreateSelect(busy, value, nothing);
    }
  }
  llvm::Value* value = combine_slots(context, op.op, values);
  switch (context.layout(id)) {
    case FragLayout::lanes: return exchange(context, op.op, butterfly(context, op.op, value, 16, 1));
    case FragLayout::tile_row: return exchange(context, op.op, butterfly(context, op.op, value, 16, 4));
    case FragLayout::tile_column: return butterfly(context, op.op, value, 2, 1);
    case FragLayout::scalar:
    case FragLayout::tile: break;
  }
  STEPC_UNREACHABLE("a vector held as {}", kernel::layout_name(context.layout(id)));
}

// [m, n] -> [m]: along the columns within a thread, then over the four lanes that share a row.
Words reduce_tile(GpuContext& context, const KOp& op) {
  const Words& values = context.words(op.frags[0]);
  const auto columns = static_cast<size_t>(context.kernel.frag(op.frags[0]).shape[1]) / 8;
  Words made;
  for (size_t row = 0; row < static_cast<size_t>(context.slots(op.results[0])); ++row) {
    const size_t block = row / 2, half = row % 2;
    Words parts;
    for (size_t j = 0; j < columns; ++j)
      for (size_t c = 0; c < 2; ++c) parts.push_back(values[((block * columns + j) * 2 + half) * 2 + c]);
    made.push_back(butterfly(context, op.op, combine_slots(context, op.op, parts), 2, 1));
  }
  return made;
}

}  // namespace

void emit_reduce(GpuContext& context, const KOp& op) {
  const bool is_tile = context.layout(op.frags[0]) == FragLayout::tile;
  context.set_words(op.results[0], is_tile ? reduce_tile(context, op) : Words{reduce_vector(context, op)});
}

}  // namespace stepc::emit
