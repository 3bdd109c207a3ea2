// Which pieces a tile falls into, and how their results reach memory. How values are evaluated is in tile_values.cpp.
#include "compiler/schedule/region/tile_region.h"

#include <algorithm>

#include "compiler/schedule/region/index_views.h"
#include "ir/support/check.h"

namespace stepc {

using kernel::Index;

TileRegion::TileRegion(kernel::KernelBuilder& builder, const Program& program, const Group& group,
                       const MatmulGroup& matmul, std::map<ValueId, kernel::BufferId> buffers, int64_t step)
    : builder_(builder),
      program_(program),
      group_(group),
      matmul_(matmul),
      step_(step),
      maker_(builder),
      math_(maker_),
      access_(math_, maker_, program, std::move(buffers)) {
  inside_.assign(program.nodes.size(), false);
  for (NodeId id : group.nodes) inside_[index_of(id)] = true;
}

void TileRegion::scope(const std::function<void()>& body) {
  const auto known = known_;
  const auto indices = known_indices_;
  maker_.scope(body);
  known_ = known;
  known_indices_ = indices;
}

void TileRegion::store(const ProductTile& tile) {
  STEPC_CHECK(static_cast<int64_t>(tile.sums.size()) == matmul_.sizes.parts(), "{} fragments of a product tile, not {}",
              tile.sums.size(), matmul_.sizes.parts());
  const Shape shape = builder_.shape(tile.sums[0]);
  STEPC_CHECK(shape.size() == 2 && shape[1] % step_ == 0, "a tile of shape {} in steps of {}", shape_text(shape),
              step_);
  const int64_t m = matmul_.sizes.m;
  if (m == 0 || matmul_.sizes.columns() == 0) return;
  const auto body = [&] {
    scope([&] {
      tile_ = &tile;
      const bool whole = m % shape[0] == 0;
      maker_.set_lanes({shape[0], step_, whole ? Index(shape[0]) : min(Index(m) - tile.row, Index(shape[0])), step_});
      evaluate_scalars();
      for (int64_t first = 0; first < shape[1]; first += step_) piece(first);
      tile_ = nullptr;
    });
  };
  builder_.when(less(tile.row, Index(m)), body);
}

// What all pieces read is made before the first.
void TileRegion::evaluate_scalars() {
  for (NodeId id : group_.nodes)
    for (ValueId operand : program_.node(id).operands)
      if (program_.type(operand).shape.empty()) at(operand, {});
}

// The piece of the tile from column `first` on.
void TileRegion::piece(int64_t first) {
  const int64_t columns = matmul_.sizes.columns();
  first_ = first;
  column_ = tile_->column + Index(first);
  TileLanes lanes = maker_.lanes();
  // Where pieces divide the columns they are whole or empty, and the condition says so in the form that bounds follow
  // from.
  const bool whole = columns % step_ == 0;
  lanes.count = whole ? Index(step_) : min(Index(columns) - column_, Index(step_));
  const Index exists = less(whole ? column_ + Index(step_ - 1) : column_, Index(columns));
  builder_.when(exists, [&] {
    const auto body = [&] {
      maker_.set_lanes(lanes);
      // All is read before anything is stored: a result may be written over an operand.
      for (const Ready& ready : evaluate_stores()) finish(ready, first);
    };
    exists.is_constant() ? body() : scope(body);
  });
}

TilePosition TileRegion::place(int64_t part, int64_t width) {
  const int64_t columns = matmul_.sizes.columns();
  const int64_t shift = width == columns ? 0 : part * columns;
  return {math_.uniform(tile_->batch), math_.along_rows(tile_->row, matmul_.sizes.m),
          math_.along_columns(column_ + Index(shift), shift, columns)};
}

std::vector<TileRegion::Ready> TileRegion::evaluate_stores() {
  const MatmulProblem& sizes = matmul_.sizes;
  std::vector<Ready> ready;
  for (const MatmulStore& store : matmul_.stores) {
    const int64_t width = store.half ? sizes.columns() : sizes.n;
    for (int64_t part = 0; part < (store.half ? 1 : sizes.parts()); ++part) {
      const Shape& shape = program_.type(store.base).shape;
      const TilePosition where = reshaped(math_, place(part, width), {sizes.batch, sizes.m, width}, shape);
      const TileValue value = maker_.widen(at(store.base, where), Spread::tile);
      TilePosition to = where;
      for (NodeId id : store.views) to = after_view(math_, program_, program_.node(id), to);
      for (size_t d = 0; d < to.size(); ++d) to[d] = math_.shift(to[d], store.offset[d]);
      ready.push_back({&store, part, value, std::move(to)});
    }
  }
  return ready;
}

void TileRegion::finish(const Ready& ready, int64_t first) {
  const MatmulProblem& sizes = matmul_.sizes;
  const ValueId result = ready.store->result;
  TileStore store{result, ready.value.lanes, access_.tile_place(result, ready.at), false, 0, first, {}, {}};
  store.height = maker_.lanes().height;
  store.count = maker_.lanes().count;
  const int64_t rows = sizes.batch * sizes.m;
  if (store.place && builder_.kernel().buffer(store.place->buffer).shape.size() == 3) {
    const std::vector<Index>& at = store.place->at;
    const Shape& shape = builder_.kernel().buffer(store.place->buffer).shape;
    const Index shift = at[2] - column_;
    const auto same = [](const Index& a, const Index& b) {
      const Index distance = a - b;
      return distance.is_constant() && distance.constant() == 0;
    };
    store.in_order = shape[0] * shape[1] == rows && shape[0] == sizes.batch && store.place->rows == 1 &&
                     same(at[0], tile_->batch) && same(at[1], tile_->row) && shift.is_constant();
    if (store.in_order) store.shift = shift.constant();
  }
  if (store_ && store_(store)) return;
  if (store.place)
    access_.store(ready.value, *store.place);
  else
    access_.scatter(ready.value, result, ready.at);
}

}  // namespace stepc
