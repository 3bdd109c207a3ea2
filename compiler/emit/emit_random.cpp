// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), one counter a lane:
// lane i computes the whole block of its element and keeps the word that is its own.
#include "compiler/emit/host_context.h"

namespace stepc::emit {

void emit_random_bits(HostContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  const kernel::Frag& frag = context.kernel.frag(op.results[0]);
  const auto lanes = static_cast<unsigned>(frag.shape.back());
  auto* i32 = llvm::FixedVectorType::get(builder.getInt32Ty(), lanes);
  auto* i64 = llvm::FixedVectorType::get(builder.getInt64Ty(), lanes);
  const auto splat = [&](llvm::Value* scalar) { return builder.CreateVectorSplat(lanes, scalar); };
  const auto number = [&](llvm::Type* type, uint64_t value) { return llvm::ConstantInt::get(type, value); };

  llvm::SmallVector<llvm::Constant*, 64> lane_numbers;
  for (unsigned i = 0; i < lanes; ++i) lane_numbers.push_back(builder.getInt64(i));
  llvm::Value* element =
      builder.CreateAdd(splat(emit_expr(context, op.indices[0])), llvm::ConstantVector::get(lane_numbers));
  llvm::Value* block = builder.CreateLShr(element, 2);
  llvm::Value* key[2] = {splat(context.rows(op.frags[0])[0]), splat(context.rows(op.frags[1])[0])};
  llvm::Value* word[4] = {builder.CreateTrunc(block, i32), builder.CreateTrunc(builder.CreateLShr(block, 32), i32),
                          splat(context.rows(op.frags[2])[0]), number(i32, 0)};
  for (int round = 0; round < 10; ++round) {
    llvm::Value* p0 = builder.CreateMul(builder.CreateZExt(word[0], i64), number(i64, 0xD2511F53));
    llvm::Value* p1 = builder.CreateMul(builder.CreateZExt(word[2], i64), number(i64, 0xCD9E8D57));
    const auto high = [&](llvm::Value* p) { return builder.CreateTrunc(builder.CreateLShr(p, 32), i32); };
    llvm::Value* next[4] = {
        builder.CreateXor(builder.CreateXor(high(p1), word[1]), key[0]), builder.CreateTrunc(p1, i32),
        builder.CreateXor(builder.CreateXor(high(p0), word[3]), key[1]), builder.CreateTrunc(p0, i32)};
    std::copy(next, next + 4, word);
    key[0] = builder.CreateAdd(key[0], number(i32, 0x9E3779B9));
    key[1] = builder.CreateAdd(key[1], number(i32, 0xBB67AE85));
  }
  llvm::Value* which = builder.CreateTrunc(builder.CreateAnd(element, number(i64, 3)), i32);
  llvm::Value* value = word[0];
  for (uint64_t w = 1; w < 4; ++w)
    value = builder.CreateSelect(builder.CreateICmpEQ(which, number(i32, w)), word[w], value);
  context.frags[kernel::index_of(op.results[0])] = {value};
}

}  // namespace stepc::emit
