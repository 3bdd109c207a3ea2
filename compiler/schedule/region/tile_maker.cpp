#include "compiler/schedule/region/tile_maker.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "ir/kernel/builder_hopper.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

using kernel::Index;
using KOp = kernel::Op;

// What `made_` remembers beside pointwise ops.
enum class Tag : int64_t { constant = -1, index = -2, lane = -3, widen = -4, cast = -5, columns = -6 };

int64_t tag(Tag tag) { return static_cast<int64_t>(tag); }
int64_t id_of(kernel::Value value) { return static_cast<int64_t>(value.id); }

}  // namespace

bool moves_in_thread(const std::vector<int64_t>& from) {
  // A thread holds columns 8 j + 2 (l % 4) + {0, 1}.
  for (size_t c = 0; c < from.size(); ++c)
    if (from[c] / 2 % 4 != static_cast<int64_t>(c) / 2 % 4) return false;
  return true;
}

Shape TileMaker::shape(Spread spread) const {
  switch (spread) {
    case Spread::none: return {};
    case Spread::rows: return {lanes_.rows};
    case Spread::columns: return {lanes_.columns};
    case Spread::tile: return {lanes_.rows, lanes_.columns};
  }
  STEPC_UNREACHABLE("spread {}", static_cast<int>(spread));
}

TileValue TileMaker::once(Key key, const std::function<TileValue()>& make) {
  if (const auto found = made_.find(key); found != made_.end()) return found->second;
  const TileValue value = make();
  made_[std::move(key)] = value;
  return value;
}

TileValue TileMaker::constant(double value, Dtype dtype) {
  const Key key{tag(Tag::constant), std::bit_cast<int64_t>(value), static_cast<int64_t>(dtype)};
  return once(key, [&] {
    const TileValue made{builder_.constant(value, dtype), Spread::none};
    constants_[made.lanes.id] = value;
    return made;
  });
}

TileValue TileMaker::from_index(Index value) {
  if (value.is_constant()) return i32(value.constant());
  return once({tag(Tag::index), static_cast<int64_t>(value.id(builder_))},
              [&] { return TileValue{builder_.from_index(value), Spread::none}; });
}

TileValue TileMaker::lane(Spread spread, int64_t extent, const Index& valid) {
  const auto id = static_cast<int64_t>(valid.id(builder_));
  return once({tag(Tag::lane), static_cast<int64_t>(spread), extent, id}, [&] {
    const TileValue all{builder_.lane({extent}), spread};
    if (valid.is_constant() && valid.constant() >= extent) return all;
    return op(KOp::min, all, from_index(valid - Index(1)));
  });
}

TileValue TileMaker::row_lane() { return lane(Spread::rows, lanes_.rows, lanes_.height); }
TileValue TileMaker::column_lane() { return lane(Spread::columns, lanes_.columns, lanes_.count); }

// The values as a number for every block of `block` columns plus one for every place in a block, both linear; not
// valid where they are not of that form.
TileValue TileMaker::two_level(const std::vector<int64_t>& values, int64_t block) {
  const auto n = static_cast<int64_t>(values.size());
  const int64_t inner = block > 1 ? values[1] - values[0] : 0;
  const int64_t outer = n > block ? values[static_cast<size_t>(block)] - values[0] : 0;
  for (int64_t c = 0; c < n; ++c)
    if (values[static_cast<size_t>(c)] != values[0] + c / block * outer + c % block * inner) return {};
  const TileValue at = column_lane();
  const auto times = [&](TileValue x, int64_t factor) { return factor == 1 ? x : op(KOp::mul, x, i32(factor)); };
  TileValue sum = i32(values[0]);
  if (block >= n || outer == inner * block) return op(KOp::add, times(at, inner), sum);
  if (outer != 0) sum = op(KOp::add, sum, times(op(KOp::div, at, i32(block)), outer));
  if (inner != 0) sum = op(KOp::add, sum, times(op(KOp::rem, at, i32(block)), inner));
  return sum;
}

// A line, and what is added to it from certain columns on.
TileValue TileMaker::with_jumps(const std::vector<int64_t>& values) {
  std::map<int64_t, int> slopes;
  for (size_t c = 1; c < values.size(); ++c) ++slopes[values[c] - values[c - 1]];
  const int64_t slope =
      std::max_element(slopes.begin(), slopes.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
  const TileValue at = column_lane();
  TileValue sum = op(KOp::add, op(KOp::mul, at, i32(slope)), i32(values[0]));
  for (size_t c = 1; c < values.size(); ++c) {
    const int64_t jump = values[c] - values[c - 1] - slope;
    if (jump == 0) continue;
    const TileValue behind = op(KOp::less_equal, i32(static_cast<int64_t>(c)), at);
    sum = op(KOp::add, sum, pointwise(KOp::select, {behind, i32(jump), i32(0)}));
  }
  return sum;
}

TileValue TileMaker::column_numbers(const std::vector<int64_t>& values) {
  const auto n = static_cast<int64_t>(values.size());
  STEPC_CHECK(n == lanes_.columns, "{} numbers for {} columns", n, lanes_.columns);
  if (std::equal(values.begin() + 1, values.end(), values.begin())) return i32(values[0]);
  for (int64_t block = n; block >= 1; --block) {
    if (n % block != 0) continue;
    if (const TileValue made = two_level(values, block); made.valid()) return made;
  }
  return with_jumps(values);
}

TileValue TileMaker::widen(TileValue x, Spread spread) {
  if (x.spread == spread) return x;
  STEPC_CHECK((x.spread | spread) == spread, "a value of spread {} made {}", static_cast<int>(x.spread),
              static_cast<int>(spread));
  const Shape wide = shape(spread);
  return once({tag(Tag::widen), id_of(x.lanes), static_cast<int64_t>(spread), numel(wide)}, [&] {
    const auto number = constants_.find(x.lanes.id);
    if (number != constants_.end())
      return TileValue{builder_.constant(number->second, builder_.dtype(x.lanes), wide), spread};
    if (x.spread == Spread::rows) return TileValue{builder_.splat_column(x.lanes, wide), spread};
    return TileValue{builder_.splat(x.lanes, wide), spread};
  });
}

TileValue TileMaker::cast(TileValue x, Dtype dtype) {
  if (builder_.dtype(x.lanes) == dtype) return x;
  return once({tag(Tag::cast), id_of(x.lanes), static_cast<int64_t>(dtype)},
              [&] { return TileValue{builder_.cast(x.lanes, dtype), x.spread}; });
}

TileValue TileMaker::pointwise(KOp op, std::vector<TileValue> operands) {
  Spread spread = Spread::none;
  for (const TileValue& operand : operands) spread = spread | operand.spread;
  Key key{static_cast<int64_t>(op)};
  std::vector<kernel::Value> wide;
  for (const TileValue& operand : operands) {
    wide.push_back(widen(operand, spread).lanes);
    key.push_back(id_of(wide.back()));
  }
  return once(std::move(key), [&] { return TileValue{builder_.pointwise(op, wide), spread}; });
}

TileValue TileMaker::columns_of(TileValue tile, const std::vector<int64_t>& from) {
  STEPC_CHECK(tile.spread == Spread::tile, "columns of what is no tile");
  const int64_t width = builder_.shape(tile.lanes).back();
  std::vector<int64_t> all(static_cast<size_t>(width));
  std::iota(all.begin(), all.end(), 0);
  if (from == all) return tile;
  Key key{tag(Tag::columns), id_of(tile.lanes)};
  key.insert(key.end(), from.begin(), from.end());
  return once(std::move(key), [&] {
    std::vector<int64_t> run(from.size());
    std::iota(run.begin(), run.end(), from.empty() ? 0 : from[0]);
    const bool is_run = builder_.kernel().target != kernel::Target::host && from == run && from[0] % 8 == 0;
    return TileValue{is_run ? kernel::hopper::columns(builder_, tile.lanes, from[0], static_cast<int64_t>(from.size()))
                            : builder_.permute(tile.lanes, from),
                     Spread::tile};
  });
}

void TileMaker::forget_columns() {
  std::erase_if(made_, [](const auto& made) { return (made.second.spread | Spread::rows) == Spread::tile; });
}

void TileMaker::scope(const std::function<void()>& body) {
  const auto made = made_;
  const auto constants = constants_;
  body();
  made_ = made;
  constants_ = constants;
}

}  // namespace stepc
