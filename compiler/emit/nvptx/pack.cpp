// bf16 in registers: two to a word. Widening is a shift or a mask, rounding is cvt.rn.bf16x2 on pairs.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/emit/nvptx/context.h"

namespace stepc::emit {
namespace {

constexpr int64_t kHighHalf = 0xffff0000;

llvm::Value* as_float(GpuContext& context, llvm::Value* bits) {
  return context.builder.CreateBitCast(bits, context.builder.getFloatTy());
}

}  // namespace

Words unpack_bf16(GpuContext& context, const Words& words, int64_t slots) {
  auto& builder = context.builder;
  Words made;
  for (size_t s = 0; s < static_cast<size_t>(slots); ++s) {
    llvm::Value* word = words[s / 2];
    made.push_back(s % 2 == 0 ? builder.CreateAnd(word, context.i32(0xffff)) : builder.CreateLShr(word, 16));
  }
  return made;
}

Words pack_bf16(GpuContext& context, const Words& slots) {
  auto& builder = context.builder;
  Words words;
  for (size_t s = 0; s < slots.size(); s += 2) {
    llvm::Value* word = slots[s];
    if (s + 1 < slots.size()) word = builder.CreateOr(word, builder.CreateShl(slots[s + 1], 16));
    words.push_back(word);
  }
  return words;
}

Words bf16_from_f32(GpuContext& context, const Words& slots) {
  auto& builder = context.builder;
  auto* i32 = builder.getInt32Ty();
  Words words;
  for (size_t s = 0; s < slots.size(); s += 2) {
    llvm::Value* high = s + 1 < slots.size() ? slots[s + 1] : context.f32(0);
    llvm::Value* pair = builder.CreateIntrinsic(llvm::Intrinsic::nvvm_ff2bf16x2_rn, {}, {high, slots[s]});
    words.push_back(builder.CreateBitCast(pair, i32));
  }
  return words;
}

Words f32_from_bf16(GpuContext& context, const Words& words, int64_t slots) {
  auto& builder = context.builder;
  Words made;
  for (size_t s = 0; s < static_cast<size_t>(slots); ++s) {
    llvm::Value* word = words[s / 2];
    llvm::Value* bits = s % 2 == 0 ? builder.CreateShl(word, 16) : builder.CreateAnd(word, context.i32(kHighHalf));
    made.push_back(as_float(context, bits));
  }
  return made;
}

Words slots_of(GpuContext& context, kernel::FragId id) {
  const Words& words = context.words(id);
  if (context.kernel.frag(id).dtype != Dtype::bf16) return words;
  return unpack_bf16(context, words, context.slots(id));
}

void set_slots(GpuContext& context, kernel::FragId id, const Words& slots) {
  context.set_words(id, context.kernel.frag(id).dtype == Dtype::bf16 ? pack_bf16(context, slots) : slots);
}

}  // namespace stepc::emit
