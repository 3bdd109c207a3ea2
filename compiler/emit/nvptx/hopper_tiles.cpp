// bf16 tiles between registers and swizzled shared memory, in 8 x 8 matrices: each lane gives the address of one row
// of one of four matrices. The swizzle is an exclusive or of the 16-byte chunk's number with the row's, both taken
// from the address, so a constant number of chunks further is an exclusive or too.
#include "compiler/emit/nvptx/hopper.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/kernel/index_facts.h"

namespace stepc::emit {
namespace {

using kernel::KOp;

constexpr int64_t kRowBytes = 128;  // of a panel of 64 columns
constexpr int64_t kPanelColumns = 64;
constexpr int64_t kWarpRows = 16;

// Where this lane's row of the matrices of 16 rows and 16 columns is.
class MatrixAddress {
 public:
  MatrixAddress(GpuContext& context, const kernel::Ref& ref, bool transposed) : context_(context) {
    const Shape& shape = context.kernel.buffer(ref.buffer).shape;
    panel_bytes_ = shape[shape.size() - 2] * kRowBytes;
    transposed_ = transposed;
    auto& b = context.builder;
    llvm::Value* lane = context.role.lane;
    llvm::Value* warp = context.role.warp;
    llvm::Value* low = transposed ? b.CreateAnd(lane, 7) : b.CreateAnd(lane, 15);
    llvm::Value* high = b.CreateLShr(lane, 4);  // of the second pair of matrices
    llvm::Value* first = emit_shared_address(context, ref);
    if (transposed) {  // rows are the fragment's columns: pairs are 8 rows apart, warps 16 columns
      llvm::Value* row = b.CreateAdd(b.CreateShl(high, 3), low);
      llvm::Value* chunk = b.CreateAnd(b.CreateLShr(lane, 3), 1);
      llvm::Value* in_panel = b.CreateAdd(b.CreateShl(b.CreateAnd(warp, 3), 5), b.CreateShl(chunk, 4));
      llvm::Value* panel = b.CreateMul(b.CreateLShr(warp, 2), context.i32(panel_bytes_));
      first = b.CreateAdd(first, b.CreateAdd(panel, b.CreateAdd(b.CreateShl(row, 7), in_panel)));
    } else {
      llvm::Value* row = b.CreateAdd(b.CreateShl(warp, 4), low);
      first = b.CreateAdd(first, b.CreateAdd(b.CreateShl(row, 7), b.CreateShl(high, 4)));
    }
    lane_address_ = b.CreateXor(first, b.CreateAnd(b.CreateLShr(first, 3), 0x70));
  }

  // Of block `block` of rows of the role's warps, and columns 16 * `pair` on, of the fragment. Not transposed, the
  // address is to be combined with `chunk`.
  llvm::Value* at(int64_t block, int64_t pair) const {
    auto& b = context_.builder;
    if (transposed_) {
      const int64_t panels = block * context_.role.warps * kWarpRows / 64;
      return b.CreateAdd(lane_address_, context_.i32(panels * panel_bytes_ + pair * kWarpRows * kRowBytes));
    }
    const int64_t rows = block * context_.role.warps * kWarpRows;
    return b.CreateAdd(lane_address_, context_.i32(pair / 4 * panel_bytes_ + rows * kRowBytes));
  }
  llvm::Value* chunk(int64_t pair) const { return context_.i32(pair % 4 * 32); }

 private:
  GpuContext& context_;
  int64_t panel_bytes_ = 0;
  bool transposed_ = false;
  llvm::Value* lane_address_ = nullptr;
};

// The words of four matrices: two of 8 rows in each of two neighbouring groups of 8 columns.
size_t first_word(int64_t block, int64_t pair, int64_t columns) {
  return static_cast<size_t>(block * columns / 4 + pair * 4);
}

bool check_place(GpuContext& context, const KOp& op, const kernel::Frag& frag, bool transposed) {
  const kernel::Ref& ref = op.refs[0];
  const Shape& shape = context.kernel.buffer(ref.buffer).shape;
  const int64_t blocks = frag.shape[0] / (kWarpRows * context.role.warps);
  if (kernel::multiple_of(context.kernel, ref.at.back()) % 64 != 0 || shape[shape.size() - 2] % 8 != 0)
    context.fail(op, "a place in the middle of a row, expected one at a multiple of 64 columns");
  else if (frag.shape[1] % 16 != 0)
    context.fail(op, fmt::format("{} columns, expected a multiple of 16", frag.shape[1]));
  else if (transposed && blocks > 1 && context.role.warps % 4 != 0)
    context.fail(op, fmt::format("{} warps, expected a multiple of 4", context.role.warps));
  else
    return true;
  return false;
}

}  // namespace

void emit_stmatrix(GpuContext& context, const KOp& op) {
  const kernel::Frag& frag = context.kernel.frag(op.frags[0]);
  const bool transposed = flag_attr(op, "transposed");
  if (!check_place(context, op, frag, transposed)) return;
  if (sm_version(context.target) < leaf_info(Leaf::stmatrix).minimum_sm) {
    // Ordinary stores put the words where the instruction would, within one panel.
    if (transposed || frag.shape[1] > kPanelColumns)
      return context.fail(op, "transposed or wider than a panel needs sm_90");
    return emit_store(context, op);
  }
  const MatrixAddress address(context, op.refs[0], transposed);
  const Words& words = context.words(op.frags[0]);
  const int64_t columns = frag.shape[1], blocks = frag.shape[0] / (kWarpRows * context.role.warps);
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t pair = 0; pair < columns / 16; ++pair) {
      const size_t w = first_word(block, pair, columns);
      Words operands{address.at(block, pair), words[w], words[w + 1], words[w + 2], words[w + 3]};
      if (!transposed) operands.push_back(address.chunk(pair));
      emit_leaf(context, transposed ? Leaf::stmatrix_transposed : Leaf::stmatrix, operands);
    }
}

bool reads_matrices(const GpuContext& context, const KOp& op) {
  const kernel::Frag& frag = context.kernel.frag(op.results[0]);
  const kernel::Ref& ref = op.refs[0];
  const kernel::Buffer& buffer = context.kernel.buffer(ref.buffer);
  const auto rank = static_cast<int64_t>(buffer.shape.size());
  const auto is_whole = [&](size_t index, int64_t extent) {
    if (op.indices.size() <= index) return true;
    const kernel::Expr& limit = context.kernel.expr(op.indices[index]);
    return limit.kind == kernel::ExprKind::constant && limit.value >= extent;
  };
  return frag.dtype == Dtype::bf16 && frag.shape.size() == 2 && buffer.space == kernel::Space::shared &&
         buffer.swizzle_bytes == kRowBytes && buffer.shape.back() == 64 &&
         integer_attr(op, "rows", rank - 2) == rank - 2 && is_whole(0, frag.shape[1]) && is_whole(1, frag.shape[0]) &&
         frag.shape[1] % 16 == 0 && buffer.shape[buffer.shape.size() - 2] % 8 == 0 &&
         kernel::multiple_of(context.kernel, ref.at.back()) % 64 == 0;
}

void emit_ldmatrix(GpuContext& context, const KOp& op) {
  const kernel::Frag& frag = context.kernel.frag(op.results[0]);
  if (!check_place(context, op, frag, false)) return;
  const MatrixAddress address(context, op.refs[0], false);
  const int64_t columns = frag.shape[1], blocks = frag.shape[0] / (kWarpRows * context.role.warps);
  Words words;
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t pair = 0; pair < columns / 16; ++pair) {
      const Words four = emit_leaf(context, Leaf::ldmatrix_chunk, {address.at(block, pair), address.chunk(pair)});
      words.insert(words.end(), four.begin(), four.end());
    }
  context.set_words(op.results[0], std::move(words));
}

}  // namespace stepc::emit
