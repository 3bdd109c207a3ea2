// Index expressions. 64-bit arithmetic costs several instructions each on a GPU, so what ranges prove to fit is
// computed in 32 bits.
#include <algorithm>

#include "compiler/emit/nvptx/context.h"
#include "ir/kernel/index_facts.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::ExprKind;
using kernel::index_of;

bool is_power_of_two(const llvm::Value* value) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(value);
  return constant && constant->getValue().isPowerOf2();
}

// Floor division by a positive number; a power of two becomes a shift, which floors by itself.
llvm::Value* floor_divide(GpuContext& context, llvm::Value* a, llvm::Value* b, bool natural) {
  auto& builder = context.builder;
  if (natural) return builder.CreateUDiv(a, b);
  if (is_power_of_two(b)) return builder.CreateAShr(a, llvm::cast<llvm::ConstantInt>(b)->getValue().logBase2());
  llvm::Value* zero = llvm::Constant::getNullValue(a->getType());
  llvm::Value* quotient = builder.CreateSDiv(a, b);
  llvm::Value* rest = builder.CreateSub(a, builder.CreateMul(quotient, b));
  return builder.CreateSub(quotient, builder.CreateZExt(builder.CreateICmpSLT(rest, zero), a->getType()));
}

llvm::Value* emit_binary(GpuContext& context, ExprKind kind, llvm::Value* a, llvm::Value* b, bool natural) {
  auto& builder = context.builder;
  switch (kind) {
    case ExprKind::add: return builder.CreateNSWAdd(a, b);
    case ExprKind::sub: return builder.CreateNSWSub(a, b);
    case ExprKind::mul: return builder.CreateNSWMul(a, b);
    case ExprKind::div: return floor_divide(context, a, b, natural);
    case ExprKind::rem:
      if (natural) return builder.CreateURem(a, b);
      return builder.CreateSub(a, builder.CreateMul(floor_divide(context, a, b, natural), b));
    case ExprKind::min: return builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b);
    case ExprKind::max: return builder.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b);
    case ExprKind::less: return builder.CreateZExt(builder.CreateICmpSLT(a, b), a->getType());
    case ExprKind::equal: return builder.CreateZExt(builder.CreateICmpEQ(a, b), a->getType());
    case ExprKind::constant:
    case ExprKind::variable:
    case ExprKind::task: break;
  }
  STEPC_UNREACHABLE("not a binary expression: {}", static_cast<int>(kind));
}

}  // namespace

bool fits_i32(const kernel::Range& range) { return range.low >= INT32_MIN && range.high <= INT32_MAX; }

kernel::Range index_range(GpuContext& context, kernel::ExprId id) {
  auto& known = context.ranges[index_of(id)];
  if (!known) known = kernel::range_of(context.kernel, id);
  return *known;
}

llvm::Value* widen_index(GpuContext& context, llvm::Value* index) {
  return context.builder.CreateSExt(index, context.builder.getInt64Ty());
}

llvm::Value* emit_expr(GpuContext& context, kernel::ExprId id) {
  const kernel::Expr& expr = context.kernel.expr(id);
  const bool narrow = fits_i32(index_range(context, id));
  switch (expr.kind) {
    case ExprKind::constant: return narrow ? context.i32(expr.value) : context.i64(expr.value);
    case ExprKind::task: return context.task;
    case ExprKind::variable: {
      llvm::Value* value = context.variables[index_of(expr.variable)];
      STEPC_CHECK(value, "index variable %{} used before it is defined",
                  context.kernel.variables[index_of(expr.variable)].name);
      return value;
    }
    case ExprKind::add:
    case ExprKind::sub:
    case ExprKind::mul:
    case ExprKind::div:
    case ExprKind::rem:
    case ExprKind::min:
    case ExprKind::max:
    case ExprKind::less:
    case ExprKind::equal: break;
  }
  llvm::Value* a = emit_expr(context, expr.a);
  llvm::Value* b = emit_expr(context, expr.b);
  const bool whole = narrow && a->getType()->isIntegerTy(32) && b->getType()->isIntegerTy(32);
  if (!whole) a = widen_index(context, a), b = widen_index(context, b);
  const bool natural = index_range(context, expr.a).low >= 0;
  llvm::Value* value = emit_binary(context, expr.kind, a, b, natural);
  return narrow && !whole ? context.builder.CreateTrunc(value, context.builder.getInt32Ty()) : value;
}

llvm::Value* emit_expr32(GpuContext& context, kernel::ExprId id) {
  return context.builder.CreateTrunc(emit_expr(context, id), context.builder.getInt32Ty());
}

llvm::Value* emit_expr64(GpuContext& context, kernel::ExprId id) {
  return widen_index(context, emit_expr(context, id));
}

}  // namespace stepc::emit
