// Host contractions: acc + A * B with the whole accumulator in vector registers. The loop over k is inside
// the op, so that every accumulator is a phi of one tight loop; rows and vectors are unrolled. A unit of k is
// 32 bits: one f32, or two neighbouring bf16.
#include <llvm/IR/IntrinsicsX86.h>

#include "compiler/emit/host_context.h"
#include "ir/kernel/index_facts.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::index_of;
using kernel::KOp;

// How many units the loop's body does; more gained nothing measurable.
constexpr int64_t kUnroll = 4;

// Where one operand lies: its first element, and bytes from row to row and from unit to unit.
struct Operand {
  kernel::BufferId buffer;
  llvm::Value* base = nullptr;
  int64_t row_bytes = 0;
  int64_t unit_bytes = 0;
};

struct Product {
  const KOp& op;
  bool pairs;  // bf16
  size_t rows;
  size_t vectors;  // of a row
  int64_t lanes;   // of a vector
  Operand a;
  Operand b;
};

Operand panel_operand(HostContext& context, const kernel::Ref& ref) {
  const kernel::Buffer& buffer = context.kernel.buffer(ref.buffer);
  constexpr int64_t kUnitBytes = 4;
  return {ref.buffer, emit_address(context, ref), kUnitBytes, buffer.shape[2] * kUnitBytes};
}

Operand row_operand(HostContext& context, const KOp& op) {
  const kernel::Buffer& buffer = context.kernel.buffer(op.refs[0].buffer);
  const int64_t dimension = kernel::integer_attr(op, "rows", static_cast<int64_t>(buffer.shape.size()) - 2);
  const int64_t stride = buffer_strides(buffer)[static_cast<size_t>(dimension)];
  return {op.refs[0].buffer, emit_address(context, op.refs[0]), stride * dtype_bytes(buffer.dtype), 4};
}

Product describe(HostContext& context, const KOp& op) {
  const kernel::Frag& frag = context.kernel.frag(op.results[0]);
  const Dtype dtype = context.kernel.buffer(op.refs[1].buffer).dtype;
  STEPC_CHECK(context.kernel.buffer(op.refs[0].buffer).dtype == dtype, "mma of two dtypes in @{}", context.kernel.name);
  const int64_t lanes = std::min(context.target.vector_bytes / 4, frag.shape[1]);
  STEPC_CHECK(frag.shape[1] % lanes == 0, "mma of {} in vectors of {} lanes", shape_text(frag.shape), lanes);
  const bool a_rows = std::get<std::string>(kernel::find_attr(op, "a")->value) == "rows";
  return {.op = op,
          .pairs = dtype == Dtype::bf16,
          .rows = static_cast<size_t>(frag.shape[0]),
          .vectors = static_cast<size_t>(frag.shape[1] / lanes),
          .lanes = lanes,
          .a = a_rows ? row_operand(context, op) : panel_operand(context, op.refs[0]),
          .b = panel_operand(context, op.refs[1])};
}

llvm::Value* displaced(HostContext& context, llvm::Value* address, int64_t bytes) {
  return bytes == 0 ? address
                    : context.builder.CreateConstInBoundsGEP1_64(context.builder.getInt8Ty(), address,
                                                                 static_cast<uint64_t>(bytes));
}

llvm::Value* load_tagged(HostContext& context, llvm::Type* type, llvm::Value* address, uint64_t align,
                         kernel::BufferId buffer) {
  auto* load = context.builder.CreateAlignedLoad(type, address, llvm::Align(align));
  tag_access(context, load, buffer);
  return load;
}

// acc + a.low * b.low + a.high * b.high of two bf16 in each 32-bit lane: the CPU's dot product, or two fused
// multiply-adds of the halves widened to f32.
llvm::Value* dot_pairs(HostContext& context, llvm::Value* acc, llvm::Value* a, llvm::Value* b) {
  auto& builder = context.builder;
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(acc->getType())->getNumElements();
  if (context.target.bf16_dot && lanes >= 4) {
    const auto id = lanes == 16  ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512
                    : lanes == 8 ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256
                                 : llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
    auto* bf16 = llvm::FixedVectorType::get(builder.getBFloatTy(), 2 * lanes);
    return builder.CreateIntrinsic(id, {}, {acc, builder.CreateBitCast(a, bf16), builder.CreateBitCast(b, bf16)});
  }
  const auto low = [&](llvm::Value* x) { return builder.CreateBitCast(builder.CreateShl(x, 16), acc->getType()); };
  const auto high = [&](llvm::Value* x) {
    llvm::Value* kept = builder.CreateAnd(x, llvm::ConstantInt::get(x->getType(), 0xffff0000u));
    return builder.CreateBitCast(kept, acc->getType());
  };
  acc = builder.CreateIntrinsic(llvm::Intrinsic::fma, {acc->getType()}, {low(a), low(b), acc});
  return builder.CreateIntrinsic(llvm::Intrinsic::fma, {acc->getType()}, {high(a), high(b), acc});
}

// Adds one unit of k, the addresses being those of that unit.
void emit_unit(HostContext& context, const Product& product, llvm::Value* a, llvm::Value* b, Rows& acc) {
  auto& builder = context.builder;
  const auto lanes = static_cast<unsigned>(product.lanes);
  auto* unit = product.pairs ? builder.getInt32Ty() : builder.getFloatTy();
  auto* wide = llvm::FixedVectorType::get(unit, lanes);
  Rows columns;
  for (size_t j = 0; j < product.vectors; ++j) {
    llvm::Value* address = displaced(context, b, static_cast<int64_t>(j) * product.lanes * 4);
    columns.push_back(load_tagged(context, wide, address, 4, product.b.buffer));
  }
  for (size_t i = 0; i < product.rows; ++i) {
    llvm::Value* address = displaced(context, a, static_cast<int64_t>(i) * product.a.row_bytes);
    llvm::Value* scalar = load_tagged(context, unit, address, product.pairs ? 2 : 4, product.a.buffer);
    llvm::Value* row = builder.CreateVectorSplat(lanes, scalar);
    for (size_t j = 0; j < product.vectors; ++j) {
      llvm::Value*& sum = acc[i * product.vectors + j];
      sum = product.pairs ? dot_pairs(context, sum, row, columns[j])
                          : builder.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {row, columns[j], sum});
    }
  }
}

struct Progress {
  llvm::Value* a;
  llvm::Value* b;
  Rows acc;
};

// `turns` times `units` units.
Progress emit_k_loop(HostContext& context, const Product& product, Progress start, llvm::Value* turns, int64_t units) {
  auto& builder = context.builder;
  llvm::BasicBlock* before = builder.GetInsertBlock();
  auto* inside = context.block("k");
  auto* after = context.block("k.end");
  builder.CreateCondBr(builder.CreateICmpSGT(turns, context.i64(0)), inside, after);

  const auto phi = [&](llvm::Value* first) {
    auto* made = builder.CreatePHI(first->getType(), 2);
    made->addIncoming(first, before);
    return made;
  };
  builder.SetInsertPoint(inside);
  auto* left = phi(turns);
  auto* a = phi(start.a);
  auto* b = phi(start.b);
  std::vector<llvm::PHINode*> sums;
  for (llvm::Value* value : start.acc) sums.push_back(phi(value));
  Rows acc(sums.begin(), sums.end());
  for (int64_t u = 0; u < units; ++u)
    emit_unit(context, product, displaced(context, a, u * product.a.unit_bytes),
              displaced(context, b, u * product.b.unit_bytes), acc);
  const Progress next{displaced(context, a, units * product.a.unit_bytes),
                      displaced(context, b, units * product.b.unit_bytes), acc};
  llvm::Value* rest = builder.CreateNSWSub(left, context.i64(1));
  builder.CreateCondBr(builder.CreateICmpSGT(rest, context.i64(0)), inside, after);
  left->addIncoming(rest, inside);
  a->addIncoming(next.a, inside);
  b->addIncoming(next.b, inside);
  for (size_t i = 0; i < sums.size(); ++i) sums[i]->addIncoming(acc[i], inside);

  builder.SetInsertPoint(after);
  const auto join = [&](llvm::Value* first, llvm::Value* last) {
    auto* made = phi(first);
    made->addIncoming(last, inside);
    return made;
  };
  Progress end{join(start.a, next.a), join(start.b, next.b), {}};
  for (size_t i = 0; i < acc.size(); ++i) end.acc.push_back(join(start.acc[i], acc[i]));
  return end;
}

// Rows of a fragment as machine vectors, and back.
Rows split_rows(HostContext& context, const Rows& rows, size_t vectors, int64_t lanes) {
  Rows parts;
  for (llvm::Value* row : rows)
    for (size_t j = 0; j < vectors; ++j) {
      llvm::SmallVector<int, 64> mask;
      for (int64_t lane = 0; lane < lanes; ++lane)
        mask.push_back(static_cast<int>(static_cast<int64_t>(j) * lanes + lane));
      parts.push_back(vectors == 1 ? row : context.builder.CreateShuffleVector(row, mask));
    }
  return parts;
}

}  // namespace

llvm::Value* concat_vectors(HostContext& context, llvm::ArrayRef<llvm::Value*> parts) {
  if (parts.size() == 1) return parts[0];
  auto& builder = context.builder;
  const auto lanes = llvm::cast<llvm::FixedVectorType>(parts[0]->getType())->getNumElements();
  const auto total = static_cast<unsigned>(lanes * parts.size());
  llvm::SmallVector<int, 64> widen, blend;
  for (unsigned i = 0; i < total; ++i) widen.push_back(i < lanes ? static_cast<int>(i) : -1);
  llvm::Value* whole = builder.CreateShuffleVector(parts[0], widen);
  for (size_t j = 1; j < parts.size(); ++j) {
    blend.clear();
    for (unsigned i = 0; i < total; ++i) blend.push_back(static_cast<int>(i / lanes == j ? total + i - j * lanes : i));
    whole = builder.CreateShuffleVector(whole, builder.CreateShuffleVector(parts[j], widen), blend);
  }
  return whole;
}

void emit_mma(HostContext& context, const KOp& op) {
  auto& builder = context.builder;
  const Product product = describe(context, op);
  llvm::Value* depth = emit_expr(context, op.indices[0]);
  llvm::Value* units = product.pairs ? builder.CreateAShr(builder.CreateNSWAdd(depth, context.i64(1)), 1) : depth;
  Progress state{product.a.base, product.b.base,
                 split_rows(context, context.rows(op.frags[0]), product.vectors, product.lanes)};
  state = emit_k_loop(context, product, std::move(state), builder.CreateAShr(units, 2), kUnroll);
  const int64_t known_multiple = kernel::multiple_of(context.kernel, op.indices[0]);
  if (known_multiple % (kUnroll * (product.pairs ? 2 : 1)) != 0)
    state = emit_k_loop(context, product, std::move(state), builder.CreateAnd(units, context.i64(kUnroll - 1)), 1);
  Rows rows;
  for (size_t i = 0; i < product.rows; ++i)
    rows.push_back(concat_vectors(context, llvm::ArrayRef(state.acc).slice(i * product.vectors, product.vectors)));
  context.frags[index_of(op.results[0])] = std::move(rows);
}

}  // namespace stepc::emit
