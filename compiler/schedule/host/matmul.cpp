// From a kernel group to a contraction kernel. A product that is stored as it is goes from the accumulators
// to memory. Anything else goes tile by tile through a small buffer in scratch, from which the group's
// results are evaluated row by row.
#include "compiler/schedule/host/matmul.h"

#include <algorithm>

#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/index_views.h"
#include "compiler/schedule/region/views.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

class FusedEpilogue {
 public:
  // `width`: lanes worked on at once.
  FusedEpilogue(const Problem& problem, Region& region, const MatmulGroup& group, const MatmulConfig& config,
                int64_t width)
      : problem_(problem), region_(region), group_(group), width_(width) {
    const Dtype dtype = region.program().type(group.product).dtype;
    tile_buffer_ = region.builder().shared("tile", dtype, {group.sizes.parts(), config.tile_rows, config.tile_cols});
    region.provide([this](ValueId value, const Position& where) { return product(value, where); });
  }

  // Fetches the elements of operands and results that lie beside the tile's.
  void prefetch(const MatmulTile& tile);
  void store(const MatmulTile& tile);

 private:
  std::optional<Fragment> product(ValueId value, const Position& where);
  void store_at(const MatmulTile& tile, const MatmulStore& store, Index row, const LaneIndex& column);
  // The tile's row `row` and a column of [batch, m, width], at its place in a tensor of as many elements.
  Position place(const MatmulTile& tile, Index row, const LaneIndex& column, int64_t width, const Shape& shape) {
    const Position at{uniform_index(tile.batch), uniform_index(tile.row + row), column};
    return reshape_position(region_.math(), at, {group_.sizes.batch, group_.sizes.m, width}, shape);
  }

  const Problem& problem_;
  Region& region_;
  const MatmulGroup& group_;
  int64_t width_;
  BufferId tile_buffer_ = BufferId::none;
  Index tile_row_;     // in the tile
  Index tile_column_;  // of the tile's first element
};

void FusedEpilogue::prefetch(const MatmulTile& tile) {
  const Shape& product = region_.program().type(group_.product).shape;
  const int64_t columns = group_.sizes.columns();
  const auto fetch = [&](ValueId value, size_t buffer, bool write) {
    Shape shape = region_.program().type(value).shape;
    if (problem_.shapes.contains(value) || shape.size() != product.size()) return;
    const int64_t width = shape.back();
    shape.back() = product.back();
    if (shape != product || (width != columns && width != 2 * columns)) return;
    shape.back() = width;
    for (int64_t part = 0; part < width / columns; ++part) {
      const Position position = place(tile, 0, uniform_index(tile.column + part * columns), width, shape);
      std::vector<Index> at;
      for (const LaneIndex& index : position) at.push_back(index.base);
      KernelBuilder& builder = region_.builder();
      const auto id = static_cast<BufferId>(buffer);
      if (builder.kernel().buffer(id).shape == shape)
        builder.prefetch(builder.ref(id, at), {tile.rows, tile.columns}, write);
    }
  };
  for (size_t i = 0; i < problem_.operands.size(); ++i) fetch(problem_.operands[i], i, false);
  for (size_t i = 0; i < problem_.results.size(); ++i) fetch(problem_.results[i], problem_.operands.size() + i, true);
}

void FusedEpilogue::store(const MatmulTile& tile) {
  KernelBuilder& builder = region_.builder();
  const Dtype dtype = region_.program().type(group_.product).dtype;
  for (size_t part = 0; part < tile.sums.size(); ++part)
    builder.store(builder.cast(tile.sums[part], dtype), tile_buffer_, {static_cast<int64_t>(part), 0, 0});
  tile_column_ = tile.column;
  builder.loop("row", 0, tile.rows, 1, [&](Index row) {
    tile_row_ = row;
    for_columns(region_, tile.columns, width_, [&](const LaneIndex& column) {
      for (const MatmulStore& store : group_.stores) store_at(tile, store, row, column);
    });
  });
}

void FusedEpilogue::store_at(const MatmulTile& tile, const MatmulStore& store, Index row, const LaneIndex& column) {
  LaneMath& math = region_.math();
  const Program& program = region_.program();
  const int64_t width = store.half ? group_.sizes.n / 2 : group_.sizes.n;
  const int64_t parts = store.half ? 1 : group_.sizes.parts();
  for (int64_t part = 0; part < parts; ++part) {
    const LaneIndex at_column = math.add(column, uniform_index(tile.column + part * group_.sizes.columns()));
    Position at = place(tile, row, at_column, width, program.type(store.base).shape);
    for (NodeId id : store.views) at = after_view(math, program, program.node(id), at);
    for (size_t d = 0; d < at.size(); ++d) at[d].base = at[d].base + store.offset[d];
    region_.store(store.result, at);
  }
}

// The product's elements at the current row, from the tile.
std::optional<Fragment> FusedEpilogue::product(ValueId value, const Position& where) {
  if (value != group_.product) return std::nullopt;
  const Shape& shape = region_.program().type(value).shape;
  LaneIndex column = where.back();
  column.base = column.base - tile_column_;
  int64_t part = 0;
  if (group_.sizes.halves) {
    const int64_t half = group_.sizes.columns();
    part = region_.math().range(column).low >= half ? 1 : 0;
    column.base = column.base - part * half;
  }
  STEPC_CHECK(where.size() == shape.size(), "a position of {} dimensions in {}", where.size(), shape_text(shape));
  return region_.load_shared(tile_buffer_, {uniform_index(part), uniform_index(tile_row_), column});
}

// As the template sees them, operands and a plain result are [batch, rows, columns].
Result<Problem> with_shapes(const Problem& problem, const MatmulGroup& group) {
  const MatmulProblem& sizes = group.sizes;
  const auto matrix = [&](bool transposed, int64_t rows, int64_t columns) {
    return transposed ? Shape{sizes.batch, columns, rows} : Shape{sizes.batch, rows, columns};
  };
  const Shape a = matrix(sizes.transpose_a, sizes.m, sizes.k);
  const Shape b = matrix(sizes.transpose_b, sizes.k, sizes.n);
  if (group.a == group.b && a != b)
    return user_error("kernel @{}: one operand is both sides of a matmul, in two shapes", problem.group.name);
  Problem shaped = problem;
  shaped.shapes[group.a] = a;
  shaped.shapes[group.b] = b;
  if (group.plain) shaped.shapes[group.stores[0].result] = {sizes.batch, sizes.m, sizes.n};
  return shaped;
}

MatmulEpilogue store_product(KernelBuilder& builder, BufferId y) {
  const auto before = [&builder, y](const MatmulTile& tile) {
    builder.prefetch(builder.ref(y, {tile.batch, tile.row, tile.column}), {tile.rows, tile.columns}, true);
  };
  const auto store = [&builder, y](const MatmulTile& tile) {
    const Fragment rounded = builder.cast(tile.sums[0], builder.kernel().buffer(y).dtype);
    builder.store_first(rounded, y, {tile.batch, tile.row, tile.column}, tile.columns);
  };
  return {before, store};
}

Result<Draft> build(const Problem& problem, const MatmulGroup& group, const MatmulConfig& config, int64_t width) {
  const auto operand = [&](ValueId value) {  // buffers are declared in the operands' order
    const auto at = std::find(problem.operands.begin(), problem.operands.end(), value);
    return static_cast<BufferId>(at - problem.operands.begin());
  };
  const MatmulBuffers buffers{operand(group.a), operand(group.b)};
  return build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
    builder.set_grid(config.tasks(group.sizes));
    builder.begin_role("main");
    if (config.tasks(group.sizes) == 0) {
      // Nothing to make, nothing to divide a task's number by.
    } else if (group.plain) {
      const auto y = static_cast<BufferId>(problem.operands.size());
      emit_matmul(builder, group.sizes, config, buffers, store_product(builder, y));
    } else {
      FusedEpilogue fused(problem, region, group, config, width);
      const auto before = [&](const MatmulTile& tile) { fused.prefetch(tile); };
      const auto store = [&](const MatmulTile& tile) { fused.store(tile); };
      emit_matmul(builder, group.sizes, config, buffers, {before, store});
    }
    std::string text = describe(config);
    if (!group.plain) text += fmt::format(", epilogue on {} lanes", width);
    return Built{config.tasks(group.sizes), std::move(text)};
  });
}

}  // namespace

Result<Draft> build_matmul(const Problem& problem) {
  const MatmulGroup group = analyse_matmul(problem.program, problem.group, problem.results);
  const MatmulConfig config = pick_matmul(group.sizes, problem.target);
  STEPC_ASSIGN(const Problem shaped, with_shapes(problem, group));
  if (group.plain) return build(shaped, group, config, 1);
  // Lanes that lie in several rows of a reshaped tensor make gathers, or cannot be stored: fewer lanes may not.
  Result<Draft> best = user_error("no width");
  double best_cost = 0;
  int64_t width = 2 * config.lanes;
  while (config.tile_cols % width != 0) width /= 2;
  for (; width >= 1; width /= 2) {
    Result<Draft> draft = build(shaped, group, config, width);
    const double arithmetic = static_cast<double>(problem.group.nodes.size());
    const double cost = draft ? (draft->cost + arithmetic) / static_cast<double>(width) : 0;
    if (best && (!draft || cost >= best_cost)) continue;
    best = std::move(draft);
    best_cost = cost;
  }
  return best;
}

}  // namespace stepc::host
