// Random bits: a thread that holds four neighbouring elements from a multiple of four on makes one block of Philox for
// them; otherwise every slot makes its own and keeps one word.
#include "compiler/emit/nvptx/context.h"
#include "ir/kernel/index_facts.h"

namespace stepc::emit {
namespace {

constexpr int64_t kBlock = 4;

std::array<llvm::Value*, 4> block_of(GpuContext& context, const kernel::KOp& op, llvm::Value* element) {
  auto& builder = context.builder;
  auto* i32 = builder.getInt32Ty();
  llvm::Value* block = builder.CreateLShr(element, 2);
  return emit_philox(context,
                     {builder.CreateTrunc(block, i32), builder.CreateTrunc(builder.CreateLShr(block, 32), i32),
                      context.words(op.frags[2])[0], context.i32(0)},
                     {context.words(op.frags[0])[0], context.words(op.frags[1])[0]});
}

}  // namespace

void emit_random_bits(GpuContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  const kernel::FragId id = op.results[0];
  const Spread spread = spread_of(context, id);
  llvm::Value* first = emit_expr64(context, op.indices[0]);
  const bool by_blocks = kernel::multiple_of(context.kernel, op.indices[0]) % kBlock == 0;
  Words made(static_cast<size_t>(context.slots(id)));
  for (const Piece& piece : spread.pieces) {
    const bool whole = by_blocks && piece.width % kBlock == 0;
    for (int64_t i = 0; i < piece.width; i += whole ? kBlock : 1) {
      llvm::Value* element = builder.CreateAdd(first, widen_index(context, slot_column(context, spread, piece, i)));
      const auto words = block_of(context, op, element);
      const auto slot = static_cast<size_t>(piece.slot + i);
      if (whole) {
        std::copy(words.begin(), words.end(), made.begin() + static_cast<ptrdiff_t>(slot));
        continue;
      }
      llvm::Value* which = builder.CreateAnd(builder.CreateTrunc(element, builder.getInt32Ty()), context.i32(3));
      made[slot] = words[0];
      for (int64_t w = 1; w < kBlock; ++w)
        made[slot] = builder.CreateSelect(builder.CreateICmpEQ(which, context.i32(w)), words[static_cast<size_t>(w)],
                                          made[slot]);
    }
  }
  context.set_words(id, made);
}

}  // namespace stepc::emit
