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
  if (matmul_.sizes.m == 0 || matmul_.sizes.columns() == 0) return;
  if (pace_) return store_inside(tile);
  builder_.when(less(tile.row, Index(matmul_.sizes.m)), [&] { store_inside(tile); });
}

void TileRegion::store_inside(const ProductTile& tile) {
  STEPC_CHECK(static_cast<int64_t>(tile.sums.size()) == matmul_.sizes.parts(), "{} fragments of a product tile, not {}",
              tile.sums.size(), matmul_.sizes.parts());
  const Shape shape = builder_.shape(tile.sums[0]);
  STEPC_CHECK(shape.size() == 2 && shape[1] % step_ == 0, "a tile of shape {} in steps of {}", shape_text(shape),
              step_);
  const int64_t m = matmul_.sizes.m;
  scope([&] {
    tile_ = &tile;
    const bool whole = m % shape[0] == 0;
    maker_.set_lanes({shape[0], step_, whole ? Index(shape[0]) : min(Index(m) - tile.row, Index(shape[0])), step_});
    evaluate_scalars();
    if (pace_)
      paced_pieces(shape[1]);
    else
      pieces(shape[1]);
    tile_ = nullptr;
  });
}

// What all pieces read is made before the first.
void TileRegion::evaluate_scalars() {
  for (NodeId id : group_.nodes) {
    if (program_.node(id).op == Op::matmul) continue;  // its count is the template's
    for (ValueId operand : program_.node(id).operands)
      if (program_.type(operand).shape.empty()) at(operand, {});
  }
}

TileRegion::Piece TileRegion::piece_at(int64_t first) {
  const int64_t columns = matmul_.sizes.columns();
  Piece piece{maker_.lanes(), tile_->column + Index(first), first, {}};
  piece.lanes.count = columns % step_ == 0 ? Index(step_) : min(Index(columns) - piece.column, Index(step_));
  return piece;
}

// What a piece reads of operands is asked for before the piece before it is computed, so that memory is under way
// meanwhile. All of a piece is read before it is stored, as a result may be written over an operand.
void TileRegion::pieces(int64_t columns) {
  const int64_t all = matmul_.sizes.columns();
  const bool whole = all % step_ == 0;
  std::vector<Piece> ahead;  // the pieces that surely exist
  for (int64_t first = 0; first < columns; first += step_) {
    Piece piece = piece_at(first);
    // Where pieces divide the columns they are whole or empty; the condition is in the form that bounds follow from.
    const Index exists = less(whole ? piece.column + Index(step_ - 1) : piece.column, Index(all));
    if (exists.is_constant() && exists.constant() != 0) {
      ahead.push_back(std::move(piece));
      continue;
    }
    builder_.when(exists, [&] {
      scope([&] {
        evaluate(piece);
        finish(piece);
      });
    });
  }
  for (size_t i = 0; i < ahead.size(); ++i) {
    // Not from the start: the first pieces of the product make room for what waits.
    const bool has_room = 4 * i >= ahead.size() && i + 1 < ahead.size();
    const Known next = has_room ? loads_of(ahead[i + 1]) : Known{};
    evaluate(ahead[i]);
    finish(ahead[i]);
    forget_columns();
    known_.insert(next.begin(), next.end());
  }
}

// The template's part is done for all pieces alike, so that its roles count the same whatever lies past the edges.
void TileRegion::paced_pieces(int64_t columns) {
  const Index has_rows = less(tile_->row, Index(matmul_.sizes.m));
  for (int64_t first = 0; first < columns; first += step_) {
    Piece piece = piece_at(first);
    pace_->before(first);
    builder_.when(has_rows, [&] {
      builder_.when(less(piece.column, Index(matmul_.sizes.columns())), [&] {
        scope([&] {
          evaluate(piece);
          finish(piece);
        });
      });
    });
    pace_->after(first);
  }
}

std::optional<kernel::Value> TileRegion::at_hand(ValueId value, const TilePosition& where) {
  if (!pace_ || !piece_) return std::nullopt;
  const auto place = access_.tile_place(value, where);
  if (!place || shift_of(*place, piece_->column) != 0) return std::nullopt;
  return pace_->operand(value);
}

void TileRegion::forget_columns() {
  std::erase_if(known_, [](const auto& known) { return (known.second.spread | Spread::rows) == Spread::tile; });
  maker_.forget_columns();
}

// Loads the tiles of operands that a piece needs.
TileRegion::Known TileRegion::loads_of(Piece& piece) {
  Known loads;
  std::set<std::vector<int64_t>> seen;
  piece_ = &piece;
  const TileLanes lanes = maker_.lanes();
  maker_.set_lanes(piece.lanes);
  for (const Target& target : targets()) load_ahead(target.store->base, target.where, loads, seen);
  maker_.set_lanes(lanes);
  piece_ = nullptr;
  return loads;
}

void TileRegion::load_ahead(ValueId value, const TilePosition& where, Known& loads,
                            std::set<std::vector<int64_t>>& seen) {
  std::vector<int64_t> key = position_key(math_, where);
  key.push_back(static_cast<int64_t>(value));
  if (value == matmul_.product || known_.contains(key) || !seen.insert(key).second) return;
  if (!contains(value)) {
    Spread spread = Spread::none;
    for (const TileIndex& x : where) spread = spread | x.spread();
    if (spread != Spread::tile) return;
    if (const auto from = moved(value, where)) return load_ahead(value, from->first, loads, seen);
    loads[key] = access_.load(value, where);
    return;
  }
  const Node& node = program_.producer(value);
  const OpFamily family = op_info(node.op).family;
  if (family == OpFamily::pointwise)
    for (ValueId operand : node.operands) load_ahead(operand, where, loads, seen);
  if (family != OpFamily::view || node.op == Op::pad || node.op == Op::concat) return;
  const Shape& shape = program_.type(value).shape;
  const ValueId operand = node.operands[0];
  load_ahead(operand, before_view(math_, node, where, shape, program_.type(operand).shape), loads, seen);
}

TilePosition TileRegion::place(int64_t part, int64_t width) {
  const int64_t columns = matmul_.sizes.columns();
  const int64_t shift = width == columns ? 0 : part * columns;
  return {math_.uniform(tile_->batch), math_.along_rows(tile_->row, matmul_.sizes.m),
          math_.along_columns(piece_->column + Index(shift), shift, columns)};
}

// Where the piece under way is in each value that is stored.
std::vector<TileRegion::Target> TileRegion::targets() {
  const MatmulProblem& sizes = matmul_.sizes;
  std::vector<Target> targets;
  for (const MatmulStore& store : matmul_.stores) {
    const int64_t width = store.half ? sizes.columns() : sizes.n;
    const Shape& shape = program_.type(store.base).shape;
    for (int64_t part = 0; part < (store.half ? 1 : sizes.parts()); ++part)
      targets.push_back({&store, reshaped(math_, place(part, width), {sizes.batch, sizes.m, width}, shape)});
  }
  return targets;
}

void TileRegion::evaluate(Piece& piece) {
  piece_ = &piece;
  maker_.set_lanes(piece.lanes);
  for (const Target& target : targets()) {
    const TileValue value = maker_.widen(at(target.store->base, target.where), Spread::tile);
    TilePosition to = target.where;
    for (NodeId id : target.store->views) to = after_view(math_, program_, program_.node(id), to);
    for (size_t d = 0; d < to.size(); ++d) to[d] = math_.shift(to[d], target.store->offset[d]);
    piece.results.push_back({target.store, value, std::move(to)});
  }
  piece_ = nullptr;
}

void TileRegion::finish(const Piece& piece) {
  const TileLanes lanes = maker_.lanes();
  maker_.set_lanes(piece.lanes);
  for (const Ready& ready : piece.results) finish(piece, ready);
  maker_.set_lanes(lanes);
}

std::optional<int64_t> TileRegion::shift_of(const TilePlace& place, const Index& column) const {
  if (place.at.size() != 3 || place.rows != 1) return std::nullopt;
  const auto same = [](const Index& a, const Index& b) {
    const Index distance = a - b;
    return distance.is_constant() && distance.constant() == 0;
  };
  const Shape& shape = builder_.kernel().buffer(place.buffer).shape;
  const Index shift = place.at[2] - column;
  const bool in_order = shape[0] == matmul_.sizes.batch && shape[1] == matmul_.sizes.m &&
                        same(place.at[0], tile_->batch) && same(place.at[1], tile_->row) && shift.is_constant();
  return in_order ? std::optional(shift.constant()) : std::nullopt;
}

void TileRegion::finish(const Piece& piece, const Ready& ready) {
  const ValueId result = ready.store->result;
  TileStore store{.result = result,
                  .value = ready.value.lanes,
                  .place = access_.tile_place(result, ready.at),
                  .tile_column = piece.first,
                  .height = piece.lanes.height,
                  .count = piece.lanes.count};
  const std::optional<int64_t> shift = store.place ? shift_of(*store.place, piece.column) : std::nullopt;
  store.in_order = shift.has_value();
  store.shift = shift.value_or(0);
  if (store_ && store_(store)) return;
  if (store.place)
    access_.store(ready.value, *store.place);
  else
    access_.scatter(ready.value, result, ready.at);
}

}  // namespace stepc
