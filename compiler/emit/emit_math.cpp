// Transcendental functions as straight vector code, the same on every CPU. Sources: argument reduction by
// Cody and Waite ("Software Manual for the Elementary Functions", 1980); exp and tanh polynomials fitted as in
// Moshier's Cephes library; log, pow, sin and cos are short series in double, which is plenty for f32.
#include <cmath>
#include <numbers>

#include "compiler/emit/emit_context.h"

namespace stepc::emit {
namespace {

// 2 to the n for integral n in [-126, 127].
llvm::Value* power_of_two(EmitContext& context, llvm::Value* n, llvm::Type* f32) {
  auto& builder = context.builder;
  llvm::Value* biased = builder.CreateAdd(n, llvm::ConstantInt::get(n->getType(), 127));
  return builder.CreateBitCast(builder.CreateShl(biased, 23), f32);
}

// An integral number below 2^22 in size (double: 2^51) as an integer: the low bits of a sum whose last place is 1.
// LLVM does conversions that saturate lane by lane, others are undefined for NaN. What is too large gives
// any number.
llvm::Value* to_integer(EmitContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  const bool wide = x->getType()->getScalarType()->isDoubleTy();
  llvm::Value* shift = llvm::ConstantFP::get(x->getType(), wide ? 0x1.8p52 : 0x1.8p23);
  llvm::Type* integer = with_lanes_of(x, wide ? builder.getInt64Ty() : builder.getInt32Ty());
  llvm::Value* bits = builder.CreateBitCast(builder.CreateFAdd(x, shift), integer);
  return builder.CreateSub(bits, builder.CreateBitCast(shift, integer));
}

llvm::Value* to_double(EmitContext& context, llvm::Value* x) {
  return context.builder.CreateFPExt(x, with_lanes_of(x, context.builder.getDoubleTy()));
}

// sin(x) or cos(x): r = x - k pi/2, then the polynomial and sign that quadrant k asks for.
llvm::Value* emit_sine(EmitContext& context, llvm::Value* x, int64_t quadrant_offset) {
  auto& builder = context.builder;
  llvm::Value* wide = to_double(context, x);
  const Arithmetic d{context, wide->getType()};
  llvm::Value* k = d.nearest(builder.CreateFMul(wide, d.c(2.0 / std::numbers::pi)));
  llvm::Value* r = d.fma(k, d.c(-std::numbers::pi / 2), wide);
  r = d.fma(k, d.c(-6.123233995736766e-17), r);  // pi/2 beyond double's precision
  llvm::Value* r2 = builder.CreateFMul(r, r);
  llvm::Value* sine = d.polynomial(r2, {-1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1.0});
  sine = builder.CreateFMul(sine, r);
  llvm::Value* cosine =
      d.polynomial(r2, {1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0});
  llvm::Type* i64 = with_lanes_of(wide, builder.getInt64Ty());
  llvm::Value* quadrant = to_integer(context, k);
  quadrant = builder.CreateAdd(quadrant, llvm::ConstantInt::get(i64, static_cast<uint64_t>(quadrant_offset)));
  const auto bit = [&](uint64_t mask) {
    return builder.CreateICmpNE(builder.CreateAnd(quadrant, llvm::ConstantInt::get(i64, mask)),
                                llvm::Constant::getNullValue(i64));
  };
  llvm::Value* value = builder.CreateSelect(bit(1), cosine, sine);
  value = builder.CreateSelect(bit(2), builder.CreateFNeg(value), value);
  return builder.CreateFPTrunc(value, x->getType());
}

// Natural logarithm of a positive normal double: x = 2^e m with m in [sqrt(1/2), sqrt(2)),
// log m = 2 artanh((m - 1) / (m + 1)).
llvm::Value* log_of_double(EmitContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  const Arithmetic d{context, x->getType()};
  llvm::Type* i64 = with_lanes_of(x, builder.getInt64Ty());
  const auto integer = [&](uint64_t value) { return llvm::ConstantInt::get(i64, value); };
  const uint64_t half_root = std::bit_cast<uint64_t>(std::numbers::sqrt2 / 2);
  llvm::Value* shifted = builder.CreateSub(builder.CreateBitCast(x, i64), integer(half_root));
  llvm::Value* exponent = builder.CreateAShr(shifted, 52);
  llvm::Value* mantissa =
      builder.CreateAdd(builder.CreateAnd(shifted, integer(0x000fffffffffffffULL)), integer(half_root));
  llvm::Value* m = builder.CreateBitCast(mantissa, x->getType());
  llvm::Value* s = builder.CreateFDiv(builder.CreateFSub(m, d.c(1)), builder.CreateFAdd(m, d.c(1)));
  llvm::Value* s2 = builder.CreateFMul(s, s);
  llvm::Value* series =
      d.polynomial(s2, {2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0});
  return d.fma(builder.CreateSIToFP(exponent, x->getType()), d.c(std::numbers::ln2), builder.CreateFMul(series, s));
}

// e to a double; the result is meant for rounding to f32.
llvm::Value* exp_of_double(EmitContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  const Arithmetic d{context, x->getType()};
  llvm::Type* i64 = with_lanes_of(x, builder.getInt64Ty());
  llvm::Value* low = builder.CreateSelect(builder.CreateFCmpOLT(x, d.c(-700)), d.c(-700), x);
  llvm::Value* clamped = builder.CreateSelect(builder.CreateFCmpOGT(low, d.c(700)), d.c(700), low);
  llvm::Value* n = d.nearest(builder.CreateFMul(clamped, d.c(std::numbers::log2e)));
  llvm::Value* r = d.fma(n, d.c(-std::numbers::ln2), clamped);
  llvm::Value* value = d.polynomial(r, {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                        1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0});
  llvm::Value* whole = to_integer(context, n);
  llvm::Value* power = builder.CreateShl(builder.CreateAdd(whole, llvm::ConstantInt::get(i64, 1023)), 52);
  return builder.CreateFMul(value, builder.CreateBitCast(power, x->getType()));
}

}  // namespace

llvm::Value* scale_twice(EmitContext& context, llvm::Value* value, llvm::Value* n) {
  auto& builder = context.builder;
  llvm::Value* whole = to_integer(context, n);
  llvm::Value* half = builder.CreateAShr(whole, 1);
  value = builder.CreateFMul(value, power_of_two(context, half, value->getType()));
  return builder.CreateFMul(value, power_of_two(context, builder.CreateSub(whole, half), value->getType()));
}

llvm::Value* emit_log(EmitContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  const Arithmetic f{context, x->getType()};
  llvm::Value* value = builder.CreateFPTrunc(log_of_double(context, to_double(context, x)), x->getType());
  llvm::Value* infinity = llvm::ConstantFP::getInfinity(x->getType());
  value = builder.CreateSelect(builder.CreateFCmpOEQ(x, f.c(0)), builder.CreateFNeg(infinity), value);
  value = builder.CreateSelect(builder.CreateFCmpOEQ(x, infinity), infinity, value);
  return builder.CreateSelect(builder.CreateFCmpULT(x, f.c(0)), llvm::ConstantFP::getNaN(x->getType()), value);
}

llvm::Value* emit_sin(EmitContext& context, llvm::Value* x) { return emit_sine(context, x, 0); }
llvm::Value* emit_cos(EmitContext& context, llvm::Value* x) { return emit_sine(context, x, 1); }

// |x| < 0.625: an odd polynomial; beyond: 1 - 2 / (e^2|x| + 1), with x's sign.
llvm::Value* emit_tanh(EmitContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  const Arithmetic f{context, x->getType()};
  llvm::Value* size = builder.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  llvm::Value* x2 = builder.CreateFMul(x, x);
  llvm::Value* p =
      f.polynomial(x2, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
  llvm::Value* small = f.fma(builder.CreateFMul(p, x2), x, x);
  llvm::Value* grown = builder.CreateFAdd(context.exp(builder.CreateFAdd(size, size)), f.c(1));
  llvm::Value* large = builder.CreateFSub(f.c(1), builder.CreateFDiv(f.c(2), grown));
  llvm::Value* value = builder.CreateSelect(builder.CreateFCmpOLT(size, f.c(0.625)), small, large);
  return builder.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, value, x);
}

llvm::Value* emit_pow(EmitContext& context, llvm::Value* a, llvm::Value* b) {
  auto& builder = context.builder;
  const Arithmetic f{context, a->getType()};
  llvm::Value* exponent = builder.CreateFMul(to_double(context, b), log_of_double(context, to_double(context, a)));
  llvm::Value* value = builder.CreateFPTrunc(exp_of_double(context, exponent), a->getType());
  value = builder.CreateSelect(builder.CreateFCmpOEQ(a, f.c(0)), f.c(0), value);
  value = builder.CreateSelect(builder.CreateFCmpULT(a, f.c(0)), llvm::ConstantFP::getNaN(a->getType()), value);
  return builder.CreateSelect(builder.CreateFCmpOEQ(b, f.c(0)), f.c(1), value);
}

}  // namespace stepc::emit
