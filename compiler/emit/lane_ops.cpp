// Pointwise ops on lanes, the same on every target: one row an op. f32 arithmetic carries no fast-math flags, so what
// the graph says is what runs: no contraction, no reassociation.
#include "compiler/emit/emit_context.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::Op;
using llvm::Intrinsic::ID;

bool is_float(const llvm::Value* value) { return value->getType()->getScalarType()->isFloatTy(); }

llvm::Constant* real(llvm::Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }

llvm::Value* emit_logistic(EmitContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  llvm::Value* grown = builder.CreateFAdd(real(x, 1.0), context.exp(builder.CreateFNeg(x)));
  return builder.CreateFDiv(real(x, 1.0), grown);
}

llvm::Value* emit_unit_from_bits(EmitContext& context, llvm::Value* bits) {
  auto& builder = context.builder;
  llvm::Value* whole = builder.CreateSIToFP(builder.CreateLShr(bits, 8), with_lanes_of(bits, builder.getFloatTy()));
  return builder.CreateFMul(whole, real(whole, 0x1p-24));
}

// Division by an integer zero has no meaning in the graph; it must still not trap.
llvm::Value* safe_divisor(EmitContext& context, llvm::Value* b) {
  llvm::Value* zero = llvm::Constant::getNullValue(b->getType());
  return context.builder.CreateSelect(context.builder.CreateICmpEQ(b, zero), llvm::ConstantInt::get(b->getType(), 1),
                                      b);
}

// One row an op: its operands' lanes to the result's. `cast` is apart, since it needs the dtypes.
struct LaneRule {
  Op op;
  llvm::Value* (*emit)(EmitContext& c, Lanes x);
};

constexpr LaneRule kLaneRules[] = {
    {Op::neg,
     [](EmitContext& c, Lanes x) { return is_float(x[0]) ? c.builder.CreateFNeg(x[0]) : c.builder.CreateNeg(x[0]); }},
    {Op::abs,
     [](EmitContext& c, Lanes x) -> llvm::Value* {
       if (is_float(x[0])) return c.builder.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x[0]);
       return c.builder.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x[0], c.builder.getFalse());
     }},
    {Op::exp, [](EmitContext& c, Lanes x) { return c.exp(x[0]); }},
    {Op::log, [](EmitContext& c, Lanes x) { return emit_log(c, x[0]); }},
    {Op::sqrt,
     [](EmitContext& c, Lanes x) -> llvm::Value* {
       return c.builder.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x[0]);
     }},
    {Op::rsqrt,
     [](EmitContext& c, Lanes x) {
       return c.builder.CreateFDiv(real(x[0], 1.0), c.builder.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x[0]));
     }},
    {Op::sin, [](EmitContext& c, Lanes x) { return emit_sin(c, x[0]); }},
    {Op::cos, [](EmitContext& c, Lanes x) { return emit_cos(c, x[0]); }},
    {Op::tanh, [](EmitContext& c, Lanes x) { return emit_tanh(c, x[0]); }},
    {Op::logistic, [](EmitContext& c, Lanes x) { return emit_logistic(c, x[0]); }},
    {Op::floor,
     [](EmitContext& c, Lanes x) -> llvm::Value* {
       return c.builder.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x[0]);
     }},
    {Op::is_finite,
     [](EmitContext& c, Lanes x) {
       llvm::Value* size = c.builder.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x[0]);
       return c.builder.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(x[0]->getType()));
     }},
    {Op::logical_not, [](EmitContext& c, Lanes x) { return c.builder.CreateNot(x[0]); }},
    {Op::unit_from_bits, [](EmitContext& c, Lanes x) { return emit_unit_from_bits(c, x[0]); }},
    {Op::add,
     [](EmitContext& c, Lanes x) {
       return is_float(x[0]) ? c.builder.CreateFAdd(x[0], x[1]) : c.builder.CreateAdd(x[0], x[1]);
     }},
    {Op::sub,
     [](EmitContext& c, Lanes x) {
       return is_float(x[0]) ? c.builder.CreateFSub(x[0], x[1]) : c.builder.CreateSub(x[0], x[1]);
     }},
    {Op::mul,
     [](EmitContext& c, Lanes x) {
       return is_float(x[0]) ? c.builder.CreateFMul(x[0], x[1]) : c.builder.CreateMul(x[0], x[1]);
     }},
    {Op::div,
     [](EmitContext& c, Lanes x) {
       return is_float(x[0]) ? c.builder.CreateFDiv(x[0], x[1]) : c.builder.CreateSDiv(x[0], safe_divisor(c, x[1]));
     }},
    {Op::rem, [](EmitContext& c, Lanes x) { return c.builder.CreateSRem(x[0], safe_divisor(c, x[1])); }},
    {Op::pow, [](EmitContext& c, Lanes x) { return emit_pow(c, x[0], x[1]); }},
    {Op::max, [](EmitContext& c, Lanes x) { return emit_extreme(c, true, x[0], x[1]); }},
    {Op::min, [](EmitContext& c, Lanes x) { return emit_extreme(c, false, x[0], x[1]); }},
    {Op::equal,
     [](EmitContext& c, Lanes x) {
       return is_float(x[0]) ? c.builder.CreateFCmpOEQ(x[0], x[1]) : c.builder.CreateICmpEQ(x[0], x[1]);
     }},
    {Op::less,
     [](EmitContext& c, Lanes x) {
       return is_float(x[0]) ? c.builder.CreateFCmpOLT(x[0], x[1]) : c.builder.CreateICmpSLT(x[0], x[1]);
     }},
    {Op::less_equal,
     [](EmitContext& c, Lanes x) {
       return is_float(x[0]) ? c.builder.CreateFCmpOLE(x[0], x[1]) : c.builder.CreateICmpSLE(x[0], x[1]);
     }},
    {Op::logical_and, [](EmitContext& c, Lanes x) { return c.builder.CreateAnd(x[0], x[1]); }},
    {Op::logical_or, [](EmitContext& c, Lanes x) { return c.builder.CreateOr(x[0], x[1]); }},
    {Op::fma,
     [](EmitContext& c, Lanes x) -> llvm::Value* {
       return c.builder.CreateIntrinsic(llvm::Intrinsic::fma, {x[0]->getType()}, {x[0], x[1], x[2]});
     }},
    {Op::select, [](EmitContext& c, Lanes x) { return c.builder.CreateSelect(x[0], x[1], x[2]); }},
};

const LaneRule& lane_rule(Op op) {
  for (const LaneRule& rule : kLaneRules)
    if (rule.op == op) return rule;
  STEPC_UNREACHABLE("no lane rule for {}", kernel::op_info(op).name);
}

}  // namespace

llvm::Type* with_lanes_of(const llvm::Value* like, llvm::Type* element) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
  return vector ? llvm::FixedVectorType::get(element, vector->getNumElements()) : element;
}

llvm::Value* emit_extreme(EmitContext& context, bool larger, llvm::Value* a, llvm::Value* b) {
  auto& builder = context.builder;
  if (!is_float(a))
    return builder.CreateBinaryIntrinsic(larger ? ID(llvm::Intrinsic::smax) : ID(llvm::Intrinsic::smin), a, b);
  llvm::Value* wins = larger ? builder.CreateFCmpOGT(a, b) : builder.CreateFCmpOLT(a, b);
  return builder.CreateSelect(builder.CreateOr(wins, builder.CreateFCmpUNO(a, a)), a, b);
}

// Toward zero, NaN to 0. LLVM's own saturating conversion works lane by lane.
llvm::Value* emit_i32_from_f32(EmitContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  llvm::Type* i32 = with_lanes_of(x, builder.getInt32Ty());
  llvm::Value* number = builder.CreateSelect(builder.CreateFCmpUNO(x, x), real(x, 0), x);
  llvm::Value* too_high = builder.CreateFCmpOGE(number, real(x, 0x1p31));
  llvm::Value* above = builder.CreateSelect(builder.CreateFCmpOLT(number, real(x, -0x1p31)), real(x, -0x1p31), number);
  llvm::Value* inside = builder.CreateSelect(too_high, real(x, 0), above);
  return builder.CreateSelect(too_high, llvm::ConstantInt::get(i32, INT32_MAX), builder.CreateFPToSI(inside, i32));
}

llvm::Value* emit_combine(EmitContext& context, Op op, llvm::Value* a, llvm::Value* b) {
  if (op == Op::reduce_sum) return context.builder.CreateFAdd(a, b);
  return emit_extreme(context, op == Op::reduce_max, a, b);
}

llvm::Value* emit_lane_op(EmitContext& context, Op op, Lanes operands) { return lane_rule(op).emit(context, operands); }

}  // namespace stepc::emit
