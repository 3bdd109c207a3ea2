// Copies of operand tiles to panels, the layout that mma streams: for each run of W columns, one unit of k
// after the other (one f32 or two neighbouring bf16 of each column, 32 bits). A source whose rows are k is
// copied row by row; one whose rows are columns goes through transposes in registers.
#include <functional>

#include "compiler/emit/host_context.h"
#include "ir/kernel/index_facts.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::KOp;

struct Pack {
  const KOp& op;
  kernel::BufferId source_buffer;
  kernel::BufferId target_buffer;
  Dtype from;
  Dtype to;
  int64_t lanes;       // of a vector: 32-bit units
  int64_t unit;        // elements of k in a unit
  int64_t row_elems;   // source: from row to row
  int64_t panel_cols;  // W
  int64_t panel_units;
  llvm::Value* source;
  llvm::Value* target;
  llvm::Value* depth;
  llvm::Value* width;
  llvm::Value* units;
  bool whole_units;   // depth is a multiple of the unit
  bool whole_blocks;  // depth and width are multiples of what a transpose takes
  bool whole_panels;  // width is a multiple of W
};

Pack describe(HostContext& context, const KOp& op) {
  auto& builder = context.builder;
  const kernel::Buffer& source = context.kernel.buffer(op.refs[0].buffer);
  const kernel::Buffer& target = context.kernel.buffer(op.refs[1].buffer);
  const int64_t dimension = kernel::integer_attr(op, "rows", static_cast<int64_t>(source.shape.size()) - 2);
  const int64_t depth_multiple = kernel::multiple_of(context.kernel, op.indices[0]);
  const int64_t width_multiple = kernel::multiple_of(context.kernel, op.indices[1]);
  Pack pack{.op = op, .source_buffer = op.refs[0].buffer, .target_buffer = op.refs[1].buffer};
  pack.from = source.dtype;
  pack.to = target.dtype;
  pack.unit = target.dtype == Dtype::bf16 ? 2 : 1;
  pack.row_elems = buffer_strides(source)[static_cast<size_t>(dimension)];
  pack.panel_cols = target.shape[2];
  pack.panel_units = target.shape[1];
  pack.lanes = std::min(context.target.vector_bytes / 4, pack.panel_cols);
  pack.source = emit_address(context, op.refs[0]);
  pack.target = emit_address(context, op.refs[1]);
  pack.depth = emit_expr(context, op.indices[0]);
  pack.width = emit_expr(context, op.indices[1]);
  pack.units = pack.unit == 1 ? pack.depth : builder.CreateAShr(builder.CreateNSWAdd(pack.depth, context.i64(1)), 1);
  pack.whole_units = depth_multiple % pack.unit == 0;
  pack.whole_blocks = depth_multiple % (pack.lanes * pack.unit) == 0 && width_multiple % pack.lanes == 0;
  pack.whole_panels = width_multiple % pack.panel_cols == 0;
  STEPC_CHECK(pack.panel_cols % pack.lanes == 0, "panels of {} columns in vectors of {}", pack.panel_cols, pack.lanes);
  return pack;
}

llvm::Value* source_at(HostContext& context, const Pack& pack, llvm::Value* row, llvm::Value* column) {
  auto& builder = context.builder;
  llvm::Value* offset = builder.CreateNSWAdd(builder.CreateNSWMul(row, context.i64(pack.row_elems)), column);
  return builder.CreateGEP(memory_type(context, pack.from), pack.source, offset);
}

// The unit of column `column` (a multiple of the vector's lanes, so that its neighbours are in the same panel).
llvm::Value* target_at(HostContext& context, const Pack& pack, llvm::Value* unit, llvm::Value* column) {
  auto& builder = context.builder;
  llvm::Value* cols = context.i64(pack.panel_cols);
  llvm::Value* panel = builder.CreateUDiv(column, cols);
  llvm::Value* row = builder.CreateNSWAdd(builder.CreateNSWMul(panel, context.i64(pack.panel_units)), unit);
  llvm::Value* offset = builder.CreateNSWAdd(builder.CreateNSWMul(row, cols), builder.CreateURem(column, cols));
  return builder.CreateGEP(builder.getInt32Ty(), pack.target, offset);
}

void store_units(HostContext& context, const Pack& pack, llvm::Value* value, llvm::Value* address) {
  tag_access(context, context.builder.CreateAlignedStore(value, address, llvm::Align(4)), pack.target_buffer);
}

// `count` consecutive source elements (all lanes if null), in the target's dtype, as integers of its width.
llvm::Value* load_elements(HostContext& context, const Pack& pack, llvm::Value* address, int64_t lanes,
                           llvm::Value* count) {
  auto& builder = context.builder;
  auto* type = llvm::FixedVectorType::get(memory_type(context, pack.from), static_cast<unsigned>(lanes));
  const llvm::Align align(static_cast<uint64_t>(dtype_bytes(pack.from)));
  llvm::Instruction* load = nullptr;
  if (count)
    load = builder.CreateMaskedLoad(type, address, align, count_mask(context, count, lanes),
                                    llvm::Constant::getNullValue(type));
  else
    load = builder.CreateAlignedLoad(type, address, align);
  tag_access(context, load, pack.source_buffer);
  llvm::Value* value = load;
  if (pack.from == Dtype::bf16 && pack.to == Dtype::f32) value = widen_bf16(context, value);
  if (pack.from == Dtype::f32 && pack.to == Dtype::bf16) value = round_to_bf16(context, value);
  auto* integer = pack.to == Dtype::bf16 ? builder.getInt16Ty() : builder.getInt32Ty();
  return builder.CreateBitCast(value, llvm::FixedVectorType::get(integer, static_cast<unsigned>(lanes)));
}

// ---- rows are k ------------------------------------------------------------------------------------------

// One vector of units: columns `column`.. of k row `unit * pack.unit` and, for pairs, of the next unless `odd`.
void copy_units(HostContext& context, const Pack& pack, llvm::Value* unit, llvm::Value* column, llvm::Value* count,
                bool odd) {
  auto& builder = context.builder;
  auto* wide = llvm::FixedVectorType::get(builder.getInt32Ty(), static_cast<unsigned>(pack.lanes));
  llvm::Value* row = builder.CreateNSWMul(unit, context.i64(pack.unit));
  llvm::Value* value = load_elements(context, pack, source_at(context, pack, row, column), pack.lanes, count);
  if (pack.unit == 2) {
    value = builder.CreateZExt(value, wide);
    if (!odd) {
      row = builder.CreateNSWAdd(row, context.i64(1));
      llvm::Value* high = load_elements(context, pack, source_at(context, pack, row, column), pack.lanes, count);
      value = builder.CreateOr(value, builder.CreateShl(builder.CreateZExt(high, wide), 16));
    }
  }
  store_units(context, pack, value, target_at(context, pack, unit, column));
}

// All columns of one unit of k.
void copy_row(HostContext& context, const Pack& pack, llvm::Value* unit, bool odd) {
  auto& builder = context.builder;
  llvm::Value* cols = context.i64(pack.panel_cols);
  llvm::Value* rest = pack.whole_panels ? context.i64(0) : builder.CreateURem(pack.width, cols);
  llvm::Value* whole = builder.CreateNSWSub(pack.width, rest);
  emit_for(context, context.i64(0), whole, cols, [&](llvm::Value* column) {
    for (int64_t j = 0; j < pack.panel_cols; j += pack.lanes)
      copy_units(context, pack, unit, builder.CreateNSWAdd(column, context.i64(j)), nullptr, odd);
  });
  if (pack.whole_panels) return;
  emit_for(context, whole, pack.width, context.i64(pack.lanes), [&](llvm::Value* column) {
    copy_units(context, pack, unit, column, builder.CreateNSWSub(pack.width, column), odd);
  });
}

void pack_rows(HostContext& context, const Pack& pack) {
  auto& builder = context.builder;
  llvm::Value* whole = pack.unit == 1 ? pack.depth : builder.CreateAShr(pack.depth, 1);
  emit_for(context, context.i64(0), whole, context.i64(1),
           [&](llvm::Value* unit) { copy_row(context, pack, unit, false); });
  if (pack.whole_units) return;
  emit_for(context, whole, pack.units, context.i64(1), [&](llvm::Value* unit) { copy_row(context, pack, unit, true); });
}

// ---- rows are columns -----------------------------------------------------------------------------------

// rows[i] lane j <-> rows[j] lane i of a square of 32-bit lanes: within groups of four by unpacks, then groups
// among each other, so that every step is one two-operand shuffle.
void transpose_square(HostContext& context, Rows& rows) {
  auto& builder = context.builder;
  const size_t lanes = rows.size();
  const auto shuffle = [&](llvm::Value* a, llvm::Value* b, const std::function<size_t(size_t)>& lane_of) {
    llvm::SmallVector<int, 64> mask;
    for (size_t i = 0; i < lanes; ++i) mask.push_back(static_cast<int>(lane_of(i)));
    return builder.CreateShuffleVector(a, b, mask);
  };
  // Lanes 0, 1 (or 2, 3) of each group of four, alternating between the operands by `run` lanes.
  const auto unpack = [&](size_t first, size_t second, size_t run, size_t high) {
    return shuffle(rows[first], rows[second], [&](size_t i) {
      const size_t group = i & ~size_t{3};
      const size_t from_second = i / run % 2;
      const size_t lane = run == 1 ? (i % 4) / 2 + 2 * high : i % 2 + 2 * high;
      return group + lane + from_second * lanes;
    });
  };
  Rows next = rows;
  for (size_t i = 0; i < lanes; i += 2)
    for (size_t high = 0; high < 2; ++high) next[i + high] = unpack(i, i + 1, 1, high);
  rows = next;
  for (size_t i = 0; i < lanes; i += 4)
    for (size_t j = 0; j < 2; ++j)
      for (size_t high = 0; high < 2; ++high) next[i + 2 * j + high] = unpack(i + j, i + j + 2, 2, high);
  rows = next;
  // Now group h of rows[4 g + r] belongs in group g of row 4 h + r: pairs of rows are dealt out to even and odd
  // groups, first halves before second halves, until every row has all its groups.
  const size_t groups = lanes / 4;
  for (size_t done = 1; done < groups; done *= 2) {
    for (size_t pair = 0; pair < groups / 2; ++pair)
      for (size_t r = 0; r < 4; ++r)
        for (size_t odd = 0; odd < 2; ++odd)
          next[4 * (odd * groups / 2 + pair) + r] = shuffle(rows[8 * pair + r], rows[8 * pair + 4 + r],
                                                            [&](size_t i) { return 4 * (i / 4 * 2 + odd) + i % 4; });
    rows = next;
  }
}

// `lanes` columns by `lanes` units. `edge`: part of the block lies outside and is taken as 0.
void transpose_block(HostContext& context, const Pack& pack, llvm::Value* column, llvm::Value* unit, bool edge) {
  auto& builder = context.builder;
  const int64_t elements = pack.lanes * pack.unit;
  auto* wide = llvm::FixedVectorType::get(builder.getInt32Ty(), static_cast<unsigned>(pack.lanes));
  llvm::Value* k = builder.CreateNSWMul(unit, context.i64(pack.unit));
  llvm::Value* left = builder.CreateNSWSub(pack.depth, k);
  Rows rows;
  for (int64_t i = 0; i < pack.lanes; ++i) {
    llvm::Value* x = builder.CreateNSWAdd(column, context.i64(i));
    llvm::Value* inside = edge ? builder.CreateICmpSLT(x, pack.width) : nullptr;
    llvm::Value* count = edge ? builder.CreateSelect(inside, left, context.i64(0)) : nullptr;
    llvm::Value* row = load_elements(context, pack, source_at(context, pack, x, k), elements, count);
    rows.push_back(builder.CreateBitCast(row, wide));
  }
  transpose_square(context, rows);
  for (int64_t u = 0; u < pack.lanes; ++u)
    store_units(context, pack, rows[static_cast<size_t>(u)],
                target_at(context, pack, builder.CreateNSWAdd(unit, context.i64(u)), column));
}

void pack_transposed(HostContext& context, const Pack& pack) {
  auto& builder = context.builder;
  llvm::Value* lanes = context.i64(pack.lanes);
  emit_for(context, context.i64(0), pack.width, lanes, [&](llvm::Value* column) {
    emit_for(context, context.i64(0), pack.units, lanes, [&](llvm::Value* unit) {
      if (pack.whole_blocks) return transpose_block(context, pack, column, unit, false);
      llvm::Value* k_end = builder.CreateNSWMul(builder.CreateNSWAdd(unit, lanes), context.i64(pack.unit));
      llvm::Value* whole = builder.CreateAnd(builder.CreateICmpSLE(builder.CreateNSWAdd(column, lanes), pack.width),
                                             builder.CreateICmpSLE(k_end, pack.depth));
      auto* inside = context.block("pack.whole");
      auto* outside = context.block("pack.edge");
      auto* after = context.block("pack.next");
      builder.CreateCondBr(whole, inside, outside);
      builder.SetInsertPoint(inside);
      transpose_block(context, pack, column, unit, false);
      builder.CreateBr(after);
      builder.SetInsertPoint(outside);
      transpose_block(context, pack, column, unit, true);
      builder.CreateBr(after);
      builder.SetInsertPoint(after);
    });
  });
}

}  // namespace

void emit_pack(HostContext& context, const KOp& op) {
  const Pack pack = describe(context, op);
  if (kernel::flag_attr(op, "transposed"))
    pack_transposed(context, pack);
  else
    pack_rows(context, pack);
}

// A hint a cache line; few rows are written out, many columns are a loop.
void emit_prefetch(HostContext& context, const KOp& op) {
  constexpr int64_t kLineBytes = 64;
  auto& builder = context.builder;
  const kernel::Buffer& buffer = context.kernel.buffer(op.refs[0].buffer);
  const auto& tile = std::get<std::vector<int64_t>>(kernel::find_attr(op, "tile")->value);
  const bool write = kernel::flag_attr(op, "write");
  const int64_t dimension = kernel::integer_attr(op, "rows", static_cast<int64_t>(buffer.shape.size()) - 2);
  const int64_t row_bytes = buffer_strides(buffer)[static_cast<size_t>(dimension)] * dtype_bytes(buffer.dtype);
  llvm::Value* base = emit_address(context, op.refs[0]);
  const int64_t bytes = tile[1] * dtype_bytes(buffer.dtype);
  emit_for(context, context.i64(0), context.i64(bytes), context.i64(kLineBytes), [&](llvm::Value* offset) {
    llvm::Value* line = builder.CreateGEP(builder.getInt8Ty(), base, offset);
    for (int64_t row = 0; row < tile[0]; ++row) {
      llvm::Value* address =
          builder.CreateConstGEP1_64(builder.getInt8Ty(), line, static_cast<uint64_t>(row * row_bytes));
      builder.CreateIntrinsic(
          llvm::Intrinsic::prefetch, {builder.getPtrTy()},
          {address, builder.getInt32(write ? 1 : 0), builder.getInt32(write ? 3 : 2), builder.getInt32(1)});
    }
  });
}

}  // namespace stepc::emit
