// Index expressions as i64 arithmetic. LLVM's own passes share and hoist what is common.
#include "compiler/emit/host_context.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::ExprKind;

// Floor division and its remainder; a power of two becomes a shift, which floors by itself.
llvm::Value* floor_div(HostContext& context, llvm::Value* a, llvm::Value* b) {
  auto& builder = context.builder;
  if (const auto* divisor = llvm::dyn_cast<llvm::ConstantInt>(b); divisor && divisor->getValue().isPowerOf2())
    return builder.CreateAShr(a, divisor->getValue().logBase2());
  llvm::Value* quotient = builder.CreateSDiv(a, b);
  llvm::Value* rest = builder.CreateSub(a, builder.CreateMul(quotient, b));
  llvm::Value* below = builder.CreateICmpSLT(builder.CreateXor(rest, b), context.i64(0));
  llvm::Value* adjust = builder.CreateAnd(below, builder.CreateICmpNE(rest, context.i64(0)));
  return builder.CreateSub(quotient, builder.CreateZExt(adjust, builder.getInt64Ty()));
}

llvm::Value* emit_binary(HostContext& context, ExprKind kind, llvm::Value* a, llvm::Value* b) {
  auto& builder = context.builder;
  auto* i64 = builder.getInt64Ty();
  switch (kind) {
    case ExprKind::add: return builder.CreateNSWAdd(a, b);
    case ExprKind::sub: return builder.CreateNSWSub(a, b);
    case ExprKind::mul: return builder.CreateNSWMul(a, b);
    case ExprKind::div: return floor_div(context, a, b);
    case ExprKind::rem: return builder.CreateSub(a, builder.CreateMul(floor_div(context, a, b), b));
    case ExprKind::min: return builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b);
    case ExprKind::max: return builder.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b);
    case ExprKind::less: return builder.CreateZExt(builder.CreateICmpSLT(a, b), i64);
    case ExprKind::equal: return builder.CreateZExt(builder.CreateICmpEQ(a, b), i64);
    case ExprKind::constant:
    case ExprKind::variable:
    case ExprKind::task: break;
  }
  STEPC_UNREACHABLE("not a binary expression: {}", static_cast<int>(kind));
}

}  // namespace

llvm::Value* emit_expr(HostContext& context, kernel::ExprId id) {
  const kernel::Expr& expr = context.kernel.expr(id);
  switch (expr.kind) {
    case ExprKind::constant: return context.i64(expr.value);
    case ExprKind::task: return context.task;
    case ExprKind::variable: {
      llvm::Value* value = context.variables[kernel::index_of(expr.variable)];
      STEPC_CHECK(value, "index variable %{} used before it is defined",
                  context.kernel.variables[kernel::index_of(expr.variable)].name);
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
  return emit_binary(context, expr.kind, a, b);
}

}  // namespace stepc::emit
