// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). On the host one counter a
// lane: lane i computes the whole block of its element and keeps the word that is its own.
#include "compiler/emit/host_context.h"

namespace stepc::emit {

std::array<llvm::Value*, 4> emit_philox(EmitContext& context, std::array<llvm::Value*, 4> counter,
                                        std::array<llvm::Value*, 2> key) {
  auto& builder = context.builder;
  llvm::Type* i32 = counter[0]->getType();
  llvm::Type* i64 = with_lanes_of(counter[0], builder.getInt64Ty());
  const auto number = [](llvm::Type* type, uint64_t value) { return llvm::ConstantInt::get(type, value); };
  const auto high = [&](llvm::Value* p) { return builder.CreateTrunc(builder.CreateLShr(p, 32), i32); };
  for (int round = 0; round < 10; ++round) {
    llvm::Value* p0 = builder.CreateMul(builder.CreateZExt(counter[0], i64), number(i64, 0xD2511F53));
    llvm::Value* p1 = builder.CreateMul(builder.CreateZExt(counter[2], i64), number(i64, 0xCD9E8D57));
    counter = {builder.CreateXor(builder.CreateXor(high(p1), counter[1]), key[0]), builder.CreateTrunc(p1, i32),
               builder.CreateXor(builder.CreateXor(high(p0), counter[3]), key[1]), builder.CreateTrunc(p0, i32)};
    key[0] = builder.CreateAdd(key[0], number(i32, 0x9E3779B9));
    key[1] = builder.CreateAdd(key[1], number(i32, 0xBB67AE85));
  }
  return counter;
}

void emit_random_bits(HostContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  const kernel::Frag& frag = context.kernel.frag(op.results[0]);
  const auto lanes = static_cast<unsigned>(frag.shape.back());
  auto* i32 = llvm::FixedVectorType::get(builder.getInt32Ty(), lanes);
  const auto splat = [&](llvm::Value* scalar) { return builder.CreateVectorSplat(lanes, scalar); };
  const auto number = [](llvm::Type* type, uint64_t value) { return llvm::ConstantInt::get(type, value); };

  llvm::SmallVector<llvm::Constant*, 64> lane_numbers;
  for (unsigned i = 0; i < lanes; ++i) lane_numbers.push_back(builder.getInt64(i));
  llvm::Value* element =
      builder.CreateAdd(splat(emit_expr(context, op.indices[0])), llvm::ConstantVector::get(lane_numbers));
  llvm::Value* block = builder.CreateLShr(element, 2);
  const auto word =
      emit_philox(context,
                  {builder.CreateTrunc(block, i32), builder.CreateTrunc(builder.CreateLShr(block, 32), i32),
                   splat(context.rows(op.frags[2])[0]), number(i32, 0)},
                  {splat(context.rows(op.frags[0])[0]), splat(context.rows(op.frags[1])[0])});
  llvm::Value* which = builder.CreateTrunc(builder.CreateAnd(element, number(element->getType(), 3)), i32);
  llvm::Value* value = word[0];
  for (uint64_t w = 1; w < 4; ++w)
    value = builder.CreateSelect(builder.CreateICmpEQ(which, number(i32, w)), word[w], value);
  context.frags[kernel::index_of(op.results[0])] = {value};
}

}  // namespace stepc::emit
