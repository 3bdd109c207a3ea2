// exp on the host: argument reduction by Cody and Waite, a polynomial as in Moshier's Cephes library, and the scale by
// AVX-512's own instruction where there is one.
#include <llvm/IR/IntrinsicsX86.h>

#include <numbers>

#include "compiler/emit/host_context.h"

namespace stepc::emit {
namespace {

// value * 2^n by AVX-512's own instruction, some lanes at a time.
llvm::Value* scale_at_once(HostContext& context, llvm::Value* value, llvm::Value* n) {
  auto& builder = context.builder;
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  const unsigned lanes = type ? type->getNumElements() : 1;
  const unsigned step = lanes <= 4 ? 4 : lanes <= 8 ? 8 : 16;
  const auto id = step == 4   ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_128
                  : step == 8 ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_256
                              : llvm::Intrinsic::x86_avx512_mask_scalef_ps_512;
  auto* part_type = llvm::FixedVectorType::get(builder.getFloatTy(), step);
  const auto part = [&](llvm::Value* x, unsigned first) -> llvm::Value* {
    if (!type) return builder.CreateInsertElement(llvm::PoisonValue::get(part_type), x, uint64_t{0});
    llvm::SmallVector<int, 16> mask;
    for (unsigned i = 0; i < step; ++i) mask.push_back(first + i < lanes ? static_cast<int>(first + i) : -1);
    return builder.CreateShuffleVector(x, mask);
  };
  std::vector<llvm::Value*> parts;
  for (unsigned first = 0; first < lanes; first += step) {
    std::vector<llvm::Value*> operands{part(value, first), part(n, first), llvm::Constant::getNullValue(part_type),
                                       step == 16 ? builder.getInt16(0xffff) : builder.getInt8(0xff)};
    if (step == 16) operands.push_back(builder.getInt32(4));  // rounding as the thread has it
    parts.push_back(builder.CreateIntrinsic(id, {}, operands));
  }
  if (!type) return builder.CreateExtractElement(parts[0], uint64_t{0});
  llvm::SmallVector<int, 64> kept;
  for (unsigned i = 0; i < lanes; ++i) kept.push_back(static_cast<int>(i));
  return builder.CreateShuffleVector(concat_vectors(context, parts), kept);
}

}  // namespace

// x = n ln 2 + r, |r| <= ln 2 / 2.
llvm::Value* HostContext::exp(llvm::Value* x) {
  const Arithmetic f{*this, x->getType()};
  // Below the smallest normal result the answer is 0, above the largest it is infinite.
  llvm::Value* too_low = builder.CreateFCmpOLT(x, f.c(-87.33654022216797));
  llvm::Value* too_high = builder.CreateFCmpOGT(x, f.c(88.72283935546875));
  llvm::Value* n = f.nearest(builder.CreateFMul(x, f.c(std::numbers::log2e)));
  llvm::Value* r = f.fma(n, f.c(-0.693359375), x);
  r = f.fma(n, f.c(2.12194440e-4), r);
  llvm::Value* p = f.polynomial(
      r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
  llvm::Value* value = builder.CreateFAdd(f.fma(p, builder.CreateFMul(r, r), r), f.c(1));
  value = target.vector_bytes == 64 ? scale_at_once(*this, value, n) : scale_twice(*this, value, n);
  value = builder.CreateSelect(too_low, f.c(0), value);
  return builder.CreateSelect(too_high, llvm::ConstantFP::getInfinity(x->getType()), value);
}

}  // namespace stepc::emit
