// Pointwise ops, lane shuffles and row reductions on vectors of the host.
#include "compiler/emit/host_context.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::index_of;
using kernel::KOp;
using kernel::Op;

llvm::Value* emit_cast(HostContext& context, llvm::Value* x, Dtype from, Dtype to) {
  auto& builder = context.builder;
  llvm::Type* f32 = with_lanes_of(x, builder.getFloatTy());
  llvm::Type* i32 = with_lanes_of(x, builder.getInt32Ty());
  if (from == to) return x;
  if (from == Dtype::f32 && to == Dtype::bf16) return round_to_bf16(context, x);
  if (from == Dtype::bf16 && to == Dtype::f32) return widen_bf16(context, x);
  if (from == Dtype::i32 && to == Dtype::f32) return builder.CreateSIToFP(x, f32);
  if (from == Dtype::f32 && to == Dtype::i32) return emit_i32_from_f32(context, x);
  if (from == Dtype::pred && to == Dtype::f32) return builder.CreateUIToFP(x, f32);
  if (from == Dtype::pred && to == Dtype::i32) return builder.CreateZExt(x, i32);
  STEPC_UNREACHABLE("cast {} -> {}", dtype_name(from), dtype_name(to));
}

// Halves are combined until one lane is left; an odd lane at the end waits for the next round.
llvm::Value* reduce_lanes(HostContext& context, Op op, llvm::Value* vector) {
  auto& builder = context.builder;
  auto lanes = static_cast<int>(llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements());
  while (lanes > 1) {
    const int half = lanes / 2;
    const int kept = lanes - half;  // half or half + 1
    llvm::SmallVector<int, 64> low, high;
    for (int i = 0; i < half; ++i) low.push_back(i), high.push_back(kept + i);
    llvm::Value* sums =
        emit_combine(context, op, builder.CreateShuffleVector(vector, low), builder.CreateShuffleVector(vector, high));
    if (kept > half) {
      llvm::SmallVector<int, 64> widen;
      for (int i = 0; i < kept; ++i) widen.push_back(i < half ? i : -1);
      llvm::Value* odd = builder.CreateExtractElement(vector, static_cast<uint64_t>(half));
      sums = builder.CreateInsertElement(builder.CreateShuffleVector(sums, widen), odd, static_cast<uint64_t>(half));
    }
    vector = sums;
    lanes = kept;
  }
  return builder.CreateExtractElement(vector, uint64_t{0});
}

llvm::Value* constant_lanes(HostContext& context, int64_t lanes) {
  llvm::SmallVector<llvm::Constant*, 64> numbers;
  for (int64_t i = 0; i < lanes; ++i) numbers.push_back(context.builder.getInt32(static_cast<uint32_t>(i)));
  return llvm::ConstantVector::get(numbers);
}

llvm::Value* make_constant(HostContext& context, const KOp& op, const kernel::Frag& frag) {
  const auto& value = kernel::find_attr(op, "value")->value;
  const double number = std::holds_alternative<double>(value)    ? std::get<double>(value)
                        : std::holds_alternative<int64_t>(value) ? static_cast<double>(std::get<int64_t>(value))
                                                                 : static_cast<double>(std::get<bool>(value));
  llvm::Type* element = lane_type(context, frag.dtype);
  llvm::Type* type =
      frag.shape.empty() ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(frag.shape.back()));
  switch (frag.dtype) {
    case Dtype::f32: return llvm::ConstantFP::get(type, static_cast<double>(static_cast<float>(number)));
    case Dtype::bf16: return llvm::ConstantInt::get(type, bf16_from_f32(stepc::round_to_bf16(number)));
    case Dtype::i32:
      return llvm::ConstantInt::get(type, static_cast<uint64_t>(static_cast<int64_t>(number)) & 0xffffffffu);
    case Dtype::pred: return llvm::ConstantInt::get(type, number != 0.0);
  }
  STEPC_UNREACHABLE("dtype {}", static_cast<int>(frag.dtype));
}

}  // namespace

llvm::Value* widen_bf16(HostContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  llvm::Value* wide = builder.CreateZExt(x, with_lanes_of(x, builder.getInt32Ty()));
  return builder.CreateBitCast(builder.CreateShl(wide, 16), with_lanes_of(x, builder.getFloatTy()));
}

// Nearest even in integers: the hardware's conversion flushes denormals.
llvm::Value* round_to_bf16(HostContext& context, llvm::Value* x) {
  auto& builder = context.builder;
  llvm::Type* i32 = with_lanes_of(x, builder.getInt32Ty());
  llvm::Value* bits = builder.CreateBitCast(x, i32);
  llvm::Value* odd = builder.CreateAnd(builder.CreateLShr(bits, 16), llvm::ConstantInt::get(i32, 1));
  llvm::Value* rounded = builder.CreateAdd(builder.CreateAdd(bits, llvm::ConstantInt::get(i32, 0x7fff)), odd);
  llvm::Value* quiet = builder.CreateOr(bits, llvm::ConstantInt::get(i32, 0x00400000));
  llvm::Value* chosen = builder.CreateSelect(builder.CreateFCmpUNO(x, x), quiet, rounded);
  return builder.CreateTrunc(builder.CreateLShr(chosen, 16), with_lanes_of(x, builder.getInt16Ty()));
}

void emit_pointwise(HostContext& context, const KOp& op) {
  const Dtype from = context.kernel.frag(op.frags[0]).dtype;
  const Dtype to = context.kernel.frag(op.results[0]).dtype;
  Rows made;
  for (size_t row = 0; row < context.rows(op.frags[0]).size(); ++row) {
    llvm::SmallVector<llvm::Value*, 3> lanes;
    for (auto id : op.frags) lanes.push_back(context.rows(id)[row]);
    made.push_back(op.op == Op::cast ? emit_cast(context, lanes[0], from, to) : emit_lane_op(context, op.op, lanes));
  }
  context.frags[index_of(op.results[0])] = std::move(made);
}

void emit_shuffle(HostContext& context, const KOp& op) {
  auto& builder = context.builder;
  const kernel::Frag& frag = context.kernel.frag(op.results[0]);
  const size_t count = frag.shape.size() == 2 ? static_cast<size_t>(frag.shape[0]) : 1;
  Rows made;
  if (op.op == Op::constant) made.assign(count, make_constant(context, op, frag));
  if (op.op == Op::lane) {
    const auto rank = static_cast<int64_t>(frag.shape.size());
    const bool along_rows = rank == 2 && kernel::integer_attr(op, "axis", rank - 1) == 0;
    for (size_t row = 0; row < count; ++row)
      made.push_back(along_rows ? builder.CreateVectorSplat(static_cast<unsigned>(frag.shape.back()),
                                                            builder.getInt32(static_cast<uint32_t>(row)))
                                : constant_lanes(context, frag.shape.back()));
  }
  if (op.op == Op::from_index) made = {builder.CreateTrunc(emit_expr(context, op.indices[0]), builder.getInt32Ty())};
  if (op.op == Op::splat) {
    llvm::Value* x = context.rows(op.frags[0])[0];
    const bool is_column = x->getType()->isVectorTy() && kernel::integer_attr(op, "axis", 1) == 0;
    for (size_t row = 0; row < count; ++row) {
      llvm::Value* one = is_column ? builder.CreateExtractElement(x, row) : x;
      made.push_back(one->getType()->isVectorTy()
                         ? one
                         : builder.CreateVectorSplat(static_cast<unsigned>(frag.shape.back()), one));
    }
  }
  if (op.op == Op::permute) {
    llvm::SmallVector<int, 64> mask;
    for (int64_t lane : std::get<std::vector<int64_t>>(kernel::find_attr(op, "lanes")->value))
      mask.push_back(static_cast<int>(lane));
    for (llvm::Value* row : context.rows(op.frags[0])) made.push_back(builder.CreateShuffleVector(row, mask));
  }
  context.frags[index_of(op.results[0])] = std::move(made);
}

void emit_reduce(HostContext& context, const KOp& op) {
  const kernel::Frag& source = context.kernel.frag(op.frags[0]);
  const Rows rows = context.rows(op.frags[0]);
  if (source.shape.size() == 1) {
    context.frags[index_of(op.results[0])] = {reduce_lanes(context, op.op, rows[0])};
    return;
  }
  llvm::Value* made = llvm::PoisonValue::get(
      llvm::FixedVectorType::get(context.builder.getFloatTy(), static_cast<unsigned>(rows.size())));
  for (size_t row = 0; row < rows.size(); ++row)
    made = context.builder.CreateInsertElement(made, reduce_lanes(context, op.op, rows[row]), row);
  context.frags[index_of(op.results[0])] = {made};
}

}  // namespace stepc::emit
