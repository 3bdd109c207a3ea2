// Pointwise ops slot by slot, and ops that move slots about within a thread.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <map>
#include <numbers>

#include "compiler/emit/nvptx/context.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::FragLayout;
using kernel::index_of;
using kernel::KOp;
using kernel::Op;

llvm::Value* exp2_approx(GpuContext& context, llvm::Value* x) {
  return context.builder.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {}, {x});
}

// 1 / (1 + e^-x), e^-x in the exp2 domain: the product with log2(e) in two parts, the second by a first-order term.
llvm::Value* emit_logistic(GpuContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  const Arithmetic f{context, x->getType()};
  constexpr double kBound = 88;  // beyond, the result is 0 or 1 all the same
  llvm::Value* u = builder.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, builder.CreateFNeg(x), f.c(kBound));
  u = builder.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, u, f.c(-kBound));
  const auto log2e = static_cast<double>(static_cast<float>(std::numbers::log2e));
  llvm::Value* high = builder.CreateFMul(u, f.c(log2e));
  llvm::Value* low = f.fma(u, f.c(log2e), builder.CreateFNeg(high));
  low = f.fma(u, f.c(std::numbers::log2e - log2e), low);
  llvm::Value* e = exp2_approx(context, high);
  e = f.fma(e, builder.CreateFMul(low, f.c(std::numbers::ln2)), e);
  llvm::Value* grown = builder.CreateFAdd(e, f.c(1));
  return builder.CreateIntrinsic(llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {}, {grown});
}

// What a GPU has a better way for than the common one.
llvm::Value* emit_slot(GpuContext& context, Op op, Lanes x) {
  auto& builder = context.builder;
  const bool is_float = x[0]->getType()->isFloatTy();
  if (op == Op::exp2) return exp2_approx(context, x[0]);
  if (op == Op::logistic) return emit_logistic(context, x[0]);
  if (op == Op::rsqrt) return builder.CreateIntrinsic(llvm::Intrinsic::nvvm_rsqrt_approx_f, {}, {x[0]});
  if (op == Op::max && is_float) return builder.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x[0], x[1]);
  if (op == Op::min && is_float) return builder.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, x[0], x[1]);
  return emit_lane_op(context, op, x);
}

void emit_cast(GpuContext& context, const KOp& op) {
  auto& builder = context.builder;
  const kernel::FragId from = op.frags[0], to = op.results[0];
  const Dtype source = context.kernel.frag(from).dtype, target = context.kernel.frag(to).dtype;
  const Words& words = context.words(from);
  if (source == target) return context.set_words(to, words);
  if (target == Dtype::bf16) return context.set_words(to, bf16_from_f32(context, words));
  if (source == Dtype::bf16) return context.set_words(to, f32_from_bf16(context, words, context.slots(to)));
  Words made;
  for (llvm::Value* x : words) {
    if (source == Dtype::f32)
      made.push_back(emit_i32_from_f32(context, x));
    else if (target == Dtype::i32)
      made.push_back(builder.CreateZExt(x, builder.getInt32Ty()));
    else if (source == Dtype::pred)
      made.push_back(builder.CreateUIToFP(x, builder.getFloatTy()));
    else
      made.push_back(builder.CreateSIToFP(x, builder.getFloatTy()));
  }
  context.set_words(to, made);
}

Words make_constant(GpuContext& context, const KOp& op) {
  auto& builder = context.builder;
  const kernel::FragId id = op.results[0];
  const double number = std::get<double>(kernel::find_attr(op, "value")->value);
  llvm::Value* value = nullptr;
  switch (context.kernel.frag(id).dtype) {
    case Dtype::f32: value = context.f32(static_cast<double>(static_cast<float>(number))); break;
    case Dtype::bf16: value = context.i32(stepc::bf16_from_f32(round_to_bf16(number))); break;
    case Dtype::i32: value = context.i32(static_cast<int64_t>(number)); break;
    case Dtype::pred: value = builder.getInt1(number != 0); break;
  }
  return Words(static_cast<size_t>(context.slots(id)), value);
}

Words make_lane(GpuContext& context, const KOp& op) {
  const kernel::FragId id = op.results[0];
  const auto rank = static_cast<int64_t>(context.kernel.frag(id).shape.size());
  const bool along_rows = rank == 2 && kernel::integer_attr(op, "axis", rank - 1) == 0;
  const Spread spread = spread_of(context, id);
  Words made(static_cast<size_t>(context.slots(id)));
  for (const Piece& piece : spread.pieces)
    for (int64_t i = 0; i < piece.width; ++i)
      made[static_cast<size_t>(piece.slot + i)] =
          along_rows ? slot_row(context, spread, piece) : slot_column(context, spread, piece, i);
  return made;
}

Words make_splat(GpuContext& context, const KOp& op) {
  const kernel::FragId to = op.results[0];
  const Words from = slots_of(context, op.frags[0]);
  const auto slots = static_cast<size_t>(context.slots(to));
  if (context.layout(op.frags[0]) == FragLayout::scalar) return Words(slots, from[0]);
  if (context.layout(op.frags[0]) == context.layout(to)) return from;
  // A tile's slots are in the order block, j, half, c: of a row vector block, half; of a column vector j, c.
  const auto columns = static_cast<size_t>(context.kernel.frag(to).shape[1]) / 8;
  const bool is_row = context.layout(op.frags[0]) == FragLayout::tile_row;
  Words made;
  for (size_t slot = 0; slot < slots; ++slot) {
    const size_t c = slot % 2, half = slot / 2 % 2, j = slot / 4 % columns, block = slot / 4 / columns;
    made.push_back(from[is_row ? block * 2 + half : j * 2 + c]);
  }
  return made;
}

struct Element {
  int64_t row = 0;
  int64_t column = 0;
  auto operator<=>(const Element&) const = default;
};

// What thread `thread` holds, by slot; the same reckoning as spread_of, for threads known now.
std::vector<Element> elements_of(GpuContext& context, kernel::FragId id, int64_t thread) {
  const Spread spread = spread_of(context, id);
  const FragLayout layout = context.layout(id);
  const int64_t tile_row = 16 * (thread / 32) + thread % 32 / 4, tile_column = 2 * (thread % 4);
  const int64_t row = layout == FragLayout::tile ? tile_row : 0;
  const int64_t column = layout == FragLayout::lanes      ? thread * spread.column_multiple
                         : layout == FragLayout::tile_row ? tile_row
                         : layout == FragLayout::scalar   ? 0
                                                          : tile_column;
  std::vector<Element> elements(static_cast<size_t>(context.slots(id)));
  for (const Piece& piece : spread.pieces)
    for (int64_t i = 0; i < piece.width; ++i)
      elements[static_cast<size_t>(piece.slot + i)] = {piece.row + row, piece.column + column + i};
  return elements;
}

// For each slot of the result the slot that it comes from, where that is the same slot of the same thread in all
// threads.
std::optional<std::vector<size_t>> permuted_slots(GpuContext& context, const KOp& op) {
  const auto& lanes = std::get<std::vector<int64_t>>(kernel::find_attr(op, "lanes")->value);
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> chosen(static_cast<size_t>(context.slots(op.results[0])), kNone);
  for (int64_t thread = 0; thread < context.role.threads(); ++thread) {
    std::map<Element, size_t> held;
    const auto sources = elements_of(context, op.frags[0], thread);
    for (size_t slot = 0; slot < sources.size(); ++slot) held[sources[slot]] = slot;
    const auto results = elements_of(context, op.results[0], thread);
    for (size_t slot = 0; slot < results.size(); ++slot) {
      if (results[slot].column >= static_cast<int64_t>(lanes.size())) continue;  // idle
      const auto found = held.find({results[slot].row, lanes[static_cast<size_t>(results[slot].column)]});
      if (found == held.end()) return std::nullopt;
      if (chosen[slot] == kNone) chosen[slot] = found->second;
      if (chosen[slot] != found->second) return std::nullopt;
    }
  }
  for (size_t& slot : chosen)
    if (slot == kNone) slot = 0;
  return chosen;
}

Words make_permute(GpuContext& context, const KOp& op) {
  const Words from = slots_of(context, op.frags[0]);
  const auto chosen = permuted_slots(context, op);
  if (!chosen) {
    context.fail(op, "moves elements from one thread to another");
    return Words(static_cast<size_t>(context.slots(op.results[0])), from[0]);
  }
  Words made;
  for (size_t slot : *chosen) made.push_back(from[slot]);
  return made;
}

// Columns first, first + 1, ... of a tile, in blocks of 8: `words_a_block` words are a thread's part of 16 rows of one.
Words take_columns(GpuContext& context, kernel::FragId from, int64_t first, int64_t count) {
  const kernel::Frag& whole = context.kernel.frag(from);
  const Words& words = context.words(from);
  const size_t words_a_block = whole.dtype == Dtype::bf16 ? 2 : 4;
  const auto blocks = static_cast<size_t>(whole.shape[1]) / 8;
  Words taken;
  for (size_t w = 0; w < words.size(); ++w) {
    const auto column = static_cast<int64_t>(w / words_a_block % blocks * 8);
    if (column >= first && column < first + count) taken.push_back(words[w]);
  }
  return taken;
}

// `halves` has two results, `columns` one.
void emit_columns(GpuContext& context, const KOp& op) {
  int64_t first = kernel::integer_attr(op, "first", 0);
  for (auto id : op.results) {
    const int64_t count = context.kernel.frag(id).shape[1];
    if (first % 8 != 0 || count % 8 != 0) return context.fail(op, "columns that are not a multiple of 8");
    context.set_words(id, take_columns(context, op.frags[0], first, count));
    first += count;
  }
}

}  // namespace

// By the hardware's exp2 of x log2(e), what rounding that product loses by a factor next to 1. Below the lower bound
// the result is 0; above the upper one the factor carries it to infinity, as it does the largest finite results.
llvm::Value* GpuContext::exp(llvm::Value* x) {
  const Arithmetic f{*this, x->getType()};
  constexpr double kLowest = -104, kHighest = 127.99999;
  const auto log2e = static_cast<double>(static_cast<float>(std::numbers::log2e));
  x = builder.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, f.c(kLowest));
  llvm::Value* high =
      builder.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, builder.CreateFMul(x, f.c(log2e)), f.c(kHighest));
  llvm::Value* low = f.fma(x, f.c(log2e), builder.CreateFNeg(high));
  low = f.fma(x, f.c(std::numbers::log2e - log2e), low);
  return builder.CreateFMul(exp2_approx(*this, high), f.fma(low, f.c(std::numbers::ln2), f.c(1)));
}

void emit_pointwise(GpuContext& context, const KOp& op) {
  if (op.op == Op::cast) return emit_cast(context, op);
  std::vector<Words> operands;
  for (auto id : op.frags) operands.push_back(slots_of(context, id));
  Words made;
  for (size_t slot = 0; slot < operands[0].size(); ++slot) {
    llvm::SmallVector<llvm::Value*, 3> lanes;
    for (const Words& operand : operands) lanes.push_back(operand[slot]);
    made.push_back(emit_slot(context, op.op, lanes));
  }
  set_slots(context, op.results[0], made);
}

void emit_shuffle(GpuContext& context, const KOp& op) {
  if (op.op == Op::halves || op.op == Op::columns) return emit_columns(context, op);
  Words made;
  if (op.op == Op::constant) made = make_constant(context, op);
  if (op.op == Op::lane) made = make_lane(context, op);
  if (op.op == Op::from_index) made = {emit_expr32(context, op.indices[0])};
  if (op.op == Op::splat) made = make_splat(context, op);
  if (op.op == Op::permute) made = make_permute(context, op);
  set_slots(context, op.results[0], made);
}

}  // namespace stepc::emit
