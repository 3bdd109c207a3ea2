#include "compiler/schedule/region/tile_access.h"

#include <algorithm>

#include "compiler/schedule/region/index_views.h"

namespace stepc {
namespace {

using kernel::Index;

bool contiguous(const std::vector<int64_t>& pattern) {
  for (size_t c = 0; c < pattern.size(); ++c)
    if (pattern[c] != pattern[0] + static_cast<int64_t>(c)) return false;
  return true;
}

std::vector<Index> bases(const TilePosition& at) {
  std::vector<Index> result;
  for (const TileIndex& x : at) result.push_back(x.base);
  return result;
}

Spread spread_of(const TilePosition& at) {
  Spread spread = Spread::none;
  for (const TileIndex& x : at) spread = spread | x.spread();
  return spread;
}

bool is_dynamic(const TilePosition& at) {
  return std::any_of(at.begin(), at.end(), [](const TileIndex& x) { return x.dynamic(); });
}

}  // namespace

TileAccess::Place TileAccess::place_of(ValueId value, const TilePosition& at) {
  const Shape& shape = program_.type(value).shape;
  const kernel::BufferId buffer = buffers_.at(value);
  const Shape& declared = maker_.builder().kernel().buffer(buffer).shape;
  if (declared == shape) return {buffer, shape, at};
  return {buffer, declared, reshaped(math_, at, shape, declared)};
}

// Rows along one dimension but the last, columns along the last.
std::optional<TilePlace> TileAccess::plain(const Place& place) const {
  if (is_dynamic(place.at) || place.at.size() < 2) return std::nullopt;
  std::optional<int64_t> rows;
  for (size_t d = 0; d + 1 < place.at.size(); ++d) {
    const TileIndex& x = place.at[d];
    if (!x.column.empty() || (x.row != 0 && (x.row != 1 || rows))) return std::nullopt;
    if (x.row == 1) rows = static_cast<int64_t>(d);
  }
  const TileIndex& last = place.at.back();
  if (last.row != 0 || !contiguous(last.column)) return std::nullopt;
  // Tiles of one valid row or column lie anywhere.
  const auto single = [](const Index& valid) { return valid.is_constant() && valid.constant() == 1; };
  const TileLanes& lanes = maker_.lanes();
  if (!rows && !single(lanes.height)) return std::nullopt;
  if (last.column.empty() && !single(lanes.count)) return std::nullopt;
  TilePlace result{place.buffer, bases(place.at), rows.value_or(static_cast<int64_t>(place.at.size()) - 2)};
  if (!last.column.empty()) result.at.back() = result.at.back() + Index(last.column[0]);
  return result;
}

// Rows alone, or columns alone, along the last dimension.
std::optional<TileValue> TileAccess::load_vector(const Place& place, Spread spread) {
  if (is_dynamic(place.at)) return std::nullopt;
  for (size_t d = 0; d + 1 < place.at.size(); ++d)
    if (!place.at[d].uniform()) return std::nullopt;
  const TileIndex& last = place.at.back();
  std::vector<Index> at = bases(place.at);
  const bool by_row = spread == Spread::rows;
  if (by_row ? last.row != 1 : !contiguous(last.column)) return std::nullopt;
  if (!by_row) at.back() = at.back() + Index(last.column[0]);
  const Index& valid = by_row ? maker_.lanes().height : maker_.lanes().count;
  return TileValue{maker_.builder().load_first(place.buffer, at, maker_.shape(spread), valid), spread};
}

// The element's distance from the place `at`, which is one of the elements read.
TileIndex TileAccess::offset_of(ValueId value, const Place& place, std::vector<Index>& at) {
  const std::vector<int64_t> strides = row_major_strides(place.shape);
  TileIndex offset;
  for (size_t d = 0; d < place.at.size(); ++d) {
    TileIndex lanes = place.at[d];
    lanes.table = nullptr;
    const int64_t first = lanes.column.empty() ? 0 : lanes.column[0];
    at.push_back(lanes.base + Index(first));
    lanes.base = Index(0);
    for (int64_t& c : lanes.column) c -= first;
    offset = math_.add(offset, math_.scale(lanes, strides[d]));
  }
  const kernel::Range range = math_.range(offset);
  if (range.low < INT32_MIN || range.high > INT32_MAX)
    failure_ = fmt::format("%{} is read or written at distances beyond 32 bits", program_.value(value).name);
  return offset;
}

TileValue TileAccess::gather(ValueId value, const Place& place) {
  ++scattered_;
  unfit_.insert(value);
  std::vector<Index> at;
  const TileIndex offset = offset_of(value, place, at);
  const TileValue offsets = math_.materialise(offset);
  return {maker_.builder().gather(place.buffer, at, offsets.lanes), offsets.spread};
}

TileValue TileAccess::load(ValueId value, const TilePosition& at) {
  const Place place = place_of(value, at);
  kernel::KernelBuilder& builder = maker_.builder();
  const Spread spread = spread_of(place.at);
  if (spread == Spread::none && !is_dynamic(place.at)) return {builder.load(place.buffer, bases(place.at), {}), spread};
  if (spread == Spread::tile) {
    if (const auto tile = plain(place)) {
      const TileLanes& lanes = maker_.lanes();
      return {builder.load_tile(tile->buffer, tile->at, maker_.shape(spread), tile->rows, lanes.count, lanes.height),
              spread};
    }
  } else if (const auto loaded = load_vector(place, spread)) {
    return *loaded;
  }
  return gather(value, place);
}

Index TileAccess::load_index(ValueId value, const TilePosition& at, kernel::Range range) {
  const Place place = place_of(value, at);
  return maker_.builder().load_index(place.buffer, bases(place.at), range);
}

std::optional<TilePlace> TileAccess::tile_place(ValueId value, const TilePosition& at) {
  return plain(place_of(value, at));
}

void TileAccess::store(TileValue tile, const TilePlace& place) {
  const TileLanes& lanes = maker_.lanes();
  const kernel::Value wide = maker_.widen(tile, Spread::tile).lanes;
  maker_.builder().store_tile(wide, place.buffer, place.at, place.rows, lanes.count, lanes.height);
}

void TileAccess::scatter(TileValue tile, ValueId value, const TilePosition& at) {
  const Place place = place_of(value, at);
  ++scattered_;
  unfit_.insert(value);
  std::vector<Index> start;
  const TileValue offsets = maker_.widen(math_.materialise(offset_of(value, place, start)), Spread::tile);
  const kernel::Value wide = maker_.widen(tile, Spread::tile).lanes;
  const TileLanes& lanes = maker_.lanes();
  maker_.builder().scatter(wide, place.buffer, start, offsets.lanes, lanes.count, lanes.height);
}

}  // namespace stepc
