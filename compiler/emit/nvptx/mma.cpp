// Portable products of shared tiles: bf16 by ldmatrix and mma.sync.m16n8k16, f32 by fused multiply-adds on what each
// thread holds of the accumulator. Fragments are as in ir/kernel/layout.h, which is the accumulator's own layout.
#include <numeric>

#include "compiler/emit/nvptx/context.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/kernel/index_facts.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::KOp;

constexpr int64_t kLine = 128;           // bytes of a row of a bf16 tile
constexpr int64_t kPatternBytes = 1024;  // eight rows: after them the swizzle repeats
constexpr int64_t kPanel = 64;           // columns
constexpr int64_t kStep = 16;            // of k, one product

bool is_k_major(const KOp& op, std::string_view side) {
  return std::get<std::string>(kernel::find_attr(op, side)->value) == "k";
}

// ---- bf16 operands -------------------------------------------------------------------------------------------------

// Where a thread's row of an 8x8 matrix is: its own row and column (elements) within the operand's tile, to which
// multiples of 8 rows and constant columns are added that share no bit with the thread's.
class TileAddress {
 public:
  TileAddress(GpuContext& context, const KOp& op, const kernel::Ref& ref, llvm::Value* row, llvm::Value* column)
      : context_(context), base_(context.i32(0)) {
    const kernel::Buffer& buffer = context.kernel.buffer(ref.buffer);
    const auto strides = strides_of(buffer);
    const size_t rank = strides.size();
    panel_bytes_ = rank >= 3 ? strides[rank - 3] * 2 : 0;
    const kernel::Expr& last = context.kernel.expr(ref.at.back());
    first_column_ = last.kind == kernel::ExprKind::constant ? last.value : -1;
    if (first_column_ < 0 || first_column_ % kStep != 0 || first_column_ >= kPanel ||
        place_multiple(context, ref) % kPatternBytes != 0) {
      context.fail(op, "a tile that begins within a pattern of the swizzle");
      return;
    }
    auto& builder = context.builder;
    llvm::Value* panel = builder.CreateMul(builder.CreateLShr(column, 6), context.i32(panel_bytes_));
    llvm::Value* bytes = builder.CreateMul(builder.CreateAnd(column, context.i32(kPanel - 1)), context.i32(2));
    bytes = builder.CreateAdd(builder.CreateMul(row, context.i32(kLine)), bytes);
    llvm::Value* own = builder.CreateAdd(swizzled_address(context, ref.buffer, bytes), panel);
    base_ = builder.CreateAdd(own, place_without_column(context, ref));
  }

  // Of the matrix `row` rows and `column` columns further on.
  llvm::Value* at(int64_t row, int64_t column) const {
    auto& builder = context_.builder;
    const int64_t all = first_column_ + column;
    llvm::Value* address = builder.CreateXor(base_, context_.i32(all % kPanel * 2));
    return builder.CreateAdd(address, context_.i32(row * kLine + all / kPanel * panel_bytes_));
  }

 private:
  static int64_t place_multiple(GpuContext& context, const kernel::Ref& ref);
  static llvm::Value* place_without_column(GpuContext& context, const kernel::Ref& ref);

  GpuContext& context_;
  llvm::Value* base_;  // i32
  int64_t first_column_ = 0;
  int64_t panel_bytes_ = 0;
};

int64_t TileAddress::place_multiple(GpuContext& context, const kernel::Ref& ref) {
  const auto strides = strides_of(context.kernel.buffer(ref.buffer));
  int64_t multiple = 0;
  for (size_t d = 0; d + 1 < ref.at.size(); ++d)
    multiple = std::gcd(multiple, kernel::multiple_of(context.kernel, ref.at[d]) * strides[d] * 2);
  return multiple;
}

llvm::Value* TileAddress::place_without_column(GpuContext& context, const kernel::Ref& ref) {
  auto& builder = context.builder;
  const auto strides = strides_of(context.kernel.buffer(ref.buffer));
  llvm::Value* bytes = context.i32(0);
  for (size_t d = 0; d + 1 < ref.at.size(); ++d)
    bytes = builder.CreateAdd(bytes, builder.CreateMul(emit_expr32(context, ref.at[d]), context.i32(strides[d] * 2)));
  return bytes;
}

// One bit of the lane's number, times a factor.
llvm::Value* lane_bit(GpuContext& context, int64_t bit, int64_t factor) {
  auto& builder = context.builder;
  return builder.CreateMul(builder.CreateAnd(builder.CreateLShr(context.role.lane, static_cast<uint64_t>(bit)), 1),
                           context.i32(factor));
}
llvm::Value* lane_low(GpuContext& context) { return context.builder.CreateAnd(context.role.lane, context.i32(7)); }
llvm::Value* warp_rows(GpuContext& context) { return context.builder.CreateMul(context.role.warp, context.i32(16)); }

// The left side: for every block of rows that the warp holds and every step of k the four registers of the product.
class LeftSide {
 public:
  virtual ~LeftSide() = default;
  virtual Words words(int64_t block, int64_t step) const = 0;
};

class SharedLeft : public LeftSide {
 public:
  SharedLeft(GpuContext& context, const KOp& op)
      : context_(context), k_major_(is_k_major(op, "a")), address_(make(context, op, k_major_)) {}
  Words words(int64_t block, int64_t step) const override {
    const int64_t m = block * 16 * context_.role.warps;
    const int64_t k = step * kStep;
    return k_major_ ? emit_leaf(context_, Leaf::ldmatrix, {address_.at(m, k)})
                    : emit_leaf(context_, Leaf::ldmatrix_x4_trans, {address_.at(k, m)});
  }

 private:
  // Lanes 0-7 point to rows of the first matrix, 8-15 to the second: m 8 further, 16-23: k 8 further, 24-31: both.
  static TileAddress make(GpuContext& context, const KOp& op, bool k_major) {
    auto& builder = context.builder;
    const int64_t warps = context.role.warps;
    if (!k_major && (warps & (warps - 1)) != 0) context.fail(op, "a product of 3, 5, .. warps with mn-major rows");
    llvm::Value* low = lane_low(context);
    if (k_major) {
      llvm::Value* row = builder.CreateAdd(builder.CreateAdd(low, lane_bit(context, 3, 8)), warp_rows(context));
      return TileAddress(context, op, op.refs[0], row, lane_bit(context, 4, 8));
    }
    llvm::Value* row = builder.CreateAdd(low, lane_bit(context, 4, 8));
    return TileAddress(context, op, op.refs[0], row, builder.CreateAdd(lane_bit(context, 3, 8), warp_rows(context)));
  }

  GpuContext& context_;
  bool k_major_;
  TileAddress address_;
};

// A bf16 fragment is held as the product wants it: words in the order block, eight columns, upper or lower eight rows.
class RegisterLeft : public LeftSide {
 public:
  RegisterLeft(GpuContext& context, kernel::FragId id)
      : words_(context.words(id)), eights_(context.kernel.frag(id).shape[1] / 8) {}
  Words words(int64_t block, int64_t step) const override {
    const auto first = static_cast<size_t>((block * eights_ + 2 * step) * 2);
    return {words_[first], words_[first + 1], words_[first + 2], words_[first + 3]};
  }

 private:
  const Words& words_;
  int64_t eights_;
};

// The right side: two registers for every eight columns of the result and step of k.
class RightSide {
 public:
  RightSide(GpuContext& context, const KOp& op)
      : context_(context), k_major_(is_k_major(op, "b")), address_(make(context, op, k_major_)) {}
  // Of 16 columns from `n` on: four registers.
  Words pair(int64_t n, int64_t step) const {
    const int64_t k = step * kStep;
    return k_major_ ? emit_leaf(context_, Leaf::ldmatrix, {address_.at(n, k)})
                    : emit_leaf(context_, Leaf::ldmatrix_x4_trans, {address_.at(k, n)});
  }
  // Of 8 columns: the addresses of the upper lanes go unused.
  Words single(int64_t n, int64_t step) const {
    const int64_t k = step * kStep;
    return k_major_ ? emit_leaf(context_, Leaf::ldmatrix_x2, {address_.at(n, k)})
                    : emit_leaf(context_, Leaf::ldmatrix_x2_trans, {address_.at(k, n)});
  }

 private:
  // Lanes 8-15: k 8 further, 16-23: n 8 further, 24-31: both.
  static TileAddress make(GpuContext& context, const KOp& op, bool k_major) {
    auto& builder = context.builder;
    llvm::Value* low = lane_low(context);
    if (k_major)
      return TileAddress(context, op, op.refs.back(), builder.CreateAdd(low, lane_bit(context, 4, 8)),
                         lane_bit(context, 3, 8));
    return TileAddress(context, op, op.refs.back(), builder.CreateAdd(low, lane_bit(context, 3, 8)),
                       lane_bit(context, 4, 8));
  }

  GpuContext& context_;
  bool k_major_;
  TileAddress address_;
};

void multiply(GpuContext& context, Words& sums, size_t first, const Words& left, llvm::Value* right_low,
              llvm::Value* right_high) {
  const Words made = emit_leaf(context, Leaf::mma_m16n8k16_bf16,
                               {left[0], left[1], left[2], left[3], right_low, right_high, sums[first], sums[first + 1],
                                sums[first + 2], sums[first + 3]});
  std::copy(made.begin(), made.end(), sums.begin() + static_cast<ptrdiff_t>(first));
}

void emit_bf16(GpuContext& context, const KOp& op, const LeftSide& left) {
  const Shape& shape = context.kernel.frag(op.results[0]).shape;
  const RightSide right(context, op);
  const int64_t blocks = shape[0] / (16 * context.role.warps);
  const int64_t eights = shape[1] / 8;
  Words sums = context.words(op.frags[0]);
  for (int64_t step = 0; step < kernel::integer_attr(op, "k", 0) / kStep; ++step) {
    std::vector<Words> lefts;
    for (int64_t block = 0; block < blocks; ++block) lefts.push_back(left.words(block, step));
    for (int64_t j = 0; j < eights; j += 2) {
      const bool is_pair = j + 1 < eights;
      const Words rights = is_pair ? right.pair(8 * j, step) : right.single(8 * j, step);
      for (int64_t each = 0; each < (is_pair ? 2 : 1); ++each)
        for (int64_t block = 0; block < blocks; ++block)
          multiply(context, sums, static_cast<size_t>((block * eights + j + each) * 4),
                   lefts[static_cast<size_t>(block)], rights[static_cast<size_t>(2 * each)],
                   rights[static_cast<size_t>(2 * each + 1)]);
    }
  }
  context.set_words(op.results[0], std::move(sums));
}

// ---- f32 ------------------------------------------------------------------------------------------------------------

constexpr int64_t kF32Step = 4;

// One operand of f32: numbers of the thread's rows (columns) for four neighbouring k.
class F32Side {
 public:
  // `own`: the thread's first row (column), to which constants are added.
  F32Side(GpuContext& context, const kernel::Ref& ref, bool k_major, llvm::Value* own)
      : context_(context), k_major_(k_major) {
    const auto strides = strides_of(context.kernel.buffer(ref.buffer));
    row_bytes_ = strides[strides.size() - 2] * 4;
    const PlaceAddress place = emit_place(context, ref);
    alignment_ = std::gcd(place.alignment, k_major ? row_bytes_ : int64_t{4});
    auto& builder = context.builder;
    llvm::Value* own_bytes = builder.CreateMul(own, context.i32(k_major ? row_bytes_ : 4));
    base_ = builder.CreateAdd(swizzled_address(context, ref.buffer, own_bytes), place.bytes);
  }
  // Of the row (column) `mn` further on, k to k + 3.
  Words four(int64_t mn, int64_t k) const {
    if (k_major_ && alignment_ % 16 == 0) return load(mn * row_bytes_ + k * 4, 4);
    Words words;
    for (int64_t i = 0; i < kF32Step; ++i)
      words.push_back(load(k_major_ ? mn * row_bytes_ + (k + i) * 4 : (k + i) * row_bytes_ + mn * 4, 1)[0]);
    return words;
  }

 private:
  Words load(int64_t bytes, unsigned count) const {
    auto& builder = context_.builder;
    llvm::Value* pointer = builder.CreateIntToPtr(builder.CreateAdd(base_, context_.i32(bytes)), builder.getPtrTy(3));
    llvm::Type* type = builder.getFloatTy();
    if (count > 1) type = llvm::FixedVectorType::get(type, count);
    llvm::Value* loaded = builder.CreateAlignedLoad(type, pointer, llvm::Align(4 * count));
    if (count == 1) return {loaded};
    Words words;
    for (unsigned i = 0; i < count; ++i) words.push_back(builder.CreateExtractElement(loaded, i));
    return words;
  }

  GpuContext& context_;
  bool k_major_;
  int64_t row_bytes_ = 0;
  int64_t alignment_ = 4;
  llvm::Value* base_ = nullptr;  // i32
};

void emit_f32(GpuContext& context, const KOp& op) {
  auto& builder = context.builder;
  const Shape& shape = context.kernel.frag(op.results[0]).shape;
  const Spread spread = spread_of(context, op.results[0]);
  const F32Side left(context, op.refs[0], is_k_major(op, "a"), spread.row);
  const F32Side right(context, op.refs[1], is_k_major(op, "b"), spread.column);
  Words sums = context.words(op.frags[0]);
  const int64_t rows = shape[0] / (8 * context.role.warps);  // of the thread, as many as halves of blocks
  for (int64_t k = 0; k < kernel::integer_attr(op, "k", 0); k += kF32Step) {
    std::vector<Words> lefts;
    for (int64_t r = 0; r < rows; ++r) lefts.push_back(left.four(r / 2 * 16 * context.role.warps + r % 2 * 8, k));
    for (int64_t j = 0; j < shape[1] / 8; ++j)
      for (int64_t c = 0; c < 2; ++c) {
        const Words rights = right.four(8 * j + c, k);
        for (int64_t r = 0; r < rows; ++r) {
          llvm::Value*& sum = sums[static_cast<size_t>(((r / 2 * (shape[1] / 8) + j) * 2 + r % 2) * 2 + c)];
          for (size_t i = 0; i < kF32Step; ++i)
            sum = builder.CreateIntrinsic(llvm::Intrinsic::fma, {builder.getFloatTy()},
                                          {lefts[static_cast<size_t>(r)][i], rights[i], sum});
        }
      }
  }
  context.set_words(op.results[0], std::move(sums));
}

}  // namespace

void emit_mma_sync(GpuContext& context, const KOp& op) {
  if (op.op == kernel::Op::mma_sync_rs) return emit_bf16(context, op, RegisterLeft(context, op.frags[1]));
  if (context.kernel.buffer(op.refs[0].buffer).dtype == Dtype::f32) return emit_f32(context, op);
  emit_bf16(context, op, SharedLeft(context, op));
}

}  // namespace stepc::emit
