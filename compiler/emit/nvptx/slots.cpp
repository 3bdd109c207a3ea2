// Which elements of a fragment a thread holds, by its layout (ir/kernel/layout.h): a constant part a piece and one part
// of the thread's own.
#include "compiler/emit/nvptx/context.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::FragLayout;

Spread spread_scalar(GpuContext& context) {
  Spread spread;
  spread.pieces = {Piece{}};
  if (!context.in_once) spread.owner = context.builder.CreateICmpEQ(context.role.thread, context.i32(0));
  return spread;
}

Spread spread_lanes(GpuContext& context, int64_t n) {
  const int64_t threads = context.role.threads();
  const int64_t vector = kernel::lane_vector(n, threads);
  Spread spread;
  for (int64_t first = 0; first < n; first += threads * vector)
    spread.pieces.push_back({first / threads, vector, 0, first});
  spread.column = context.builder.CreateMul(context.role.thread, context.i32(vector));
  spread.column_multiple = vector;
  if (n % (threads * vector) != 0) spread.idle_from = n;
  return spread;
}

// Row and first column of the thread within a 16-row, 8-column block, and its warp's rows.
llvm::Value* tile_row(GpuContext& context) {
  auto& builder = context.builder;
  return builder.CreateAdd(builder.CreateMul(context.role.warp, context.i32(16)),
                           builder.CreateLShr(context.role.lane, 2));
}
llvm::Value* tile_column(GpuContext& context) {
  return context.builder.CreateMul(context.builder.CreateAnd(context.role.lane, context.i32(3)), context.i32(2));
}

Spread spread_tile(GpuContext& context, int64_t rows, int64_t columns) {
  Spread spread;
  const int64_t block_rows = 16 * context.role.warps;
  for (int64_t block = 0; block < rows / block_rows; ++block)
    for (int64_t j = 0; j < columns / 8; ++j)
      for (int64_t half = 0; half < 2; ++half)
        spread.pieces.push_back(
            {static_cast<int64_t>(spread.pieces.size()) * 2, 2, block * block_rows + 8 * half, 8 * j});
  spread.row = tile_row(context);
  spread.column = tile_column(context);
  spread.column_multiple = 2;
  return spread;
}

Spread spread_tile_row(GpuContext& context, int64_t rows) {
  Spread spread;
  const int64_t block_rows = 16 * context.role.warps;
  for (int64_t block = 0; block < rows / block_rows; ++block)
    for (int64_t half = 0; half < 2; ++half)
      spread.pieces.push_back({static_cast<int64_t>(spread.pieces.size()), 1, 0, block * block_rows + 8 * half});
  spread.column = tile_row(context);
  auto& builder = context.builder;
  spread.owner = builder.CreateICmpEQ(builder.CreateAnd(context.role.lane, context.i32(3)), context.i32(0));
  return spread;
}

Spread spread_tile_column(GpuContext& context, int64_t columns) {
  Spread spread;
  for (int64_t j = 0; j < columns / 8; ++j) spread.pieces.push_back({2 * j, 2, 0, 8 * j});
  spread.column = tile_column(context);
  spread.column_multiple = 2;
  spread.owner = context.builder.CreateICmpULT(context.role.thread, context.i32(4));
  return spread;
}

llvm::Value* sum_of(GpuContext& context, llvm::Value* part, int64_t constant) {
  if (!part) return context.i32(constant);
  return constant == 0 ? part : context.builder.CreateNSWAdd(part, context.i32(constant));
}

}  // namespace

Spread spread_of(GpuContext& context, kernel::FragId id) {
  const Shape& shape = context.kernel.frag(id).shape;
  switch (context.layout(id)) {
    case FragLayout::scalar: return spread_scalar(context);
    case FragLayout::lanes: return spread_lanes(context, shape[0]);
    case FragLayout::tile: return spread_tile(context, shape[0], shape[1]);
    case FragLayout::tile_row: return spread_tile_row(context, shape[0]);
    case FragLayout::tile_column: return spread_tile_column(context, shape[0]);
  }
  STEPC_UNREACHABLE("layout {}", static_cast<int>(context.layout(id)));
}

llvm::Value* slot_column(GpuContext& context, const Spread& spread, const Piece& piece, int64_t in_piece) {
  return sum_of(context, spread.column, piece.column + in_piece);
}

llvm::Value* slot_row(GpuContext& context, const Spread& spread, const Piece& piece) {
  return sum_of(context, spread.row, piece.row);
}

}  // namespace stepc::emit
