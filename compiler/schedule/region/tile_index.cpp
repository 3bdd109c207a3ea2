#include "compiler/schedule/region/tile_index.h"

#include <algorithm>
#include <numeric>

#include "compiler/schedule/region/ranges.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

using kernel::floor_div;
using kernel::floor_rem;
using kernel::Index;
using kernel::Range;
using Table = std::shared_ptr<const std::vector<int64_t>>;
using KOp = kernel::Op;

template <class Function>
Table mapped(const Table& table, const Function& function) {
  if (!table) return nullptr;
  auto result = std::make_shared<std::vector<int64_t>>(*table);
  for (int64_t& x : *result) x = function(x);
  return result;
}

// Of a + b; an index without a table counts where it is a constant.
Table sum_of(const TileIndex& a, const TileIndex& b) {
  const auto constant = [](const TileIndex& x) { return !x.table && x.uniform() && x.base.is_constant(); };
  if (a.table && constant(b)) return mapped(a.table, [&](int64_t x) { return x + b.base.constant(); });
  if (b.table && constant(a)) return mapped(b.table, [&](int64_t x) { return x + a.base.constant(); });
  if (!a.table || !b.table) return nullptr;
  auto result = std::make_shared<std::vector<int64_t>>(*a.table);
  for (size_t c = 0; c < result->size(); ++c) (*result)[c] += (*b.table)[c];
  return result;
}

}  // namespace

Spread TileIndex::spread() const {
  Spread spread = by_both.lanes.valid() ? by_both.lanes.spread : Spread::none;
  if (row != 0 || by_row.lanes.valid()) spread = spread | Spread::rows;
  if (!column.empty() || by_column.lanes.valid()) spread = spread | Spread::columns;
  return spread;
}

TileIndex TileMath::tidy(TileIndex x) const {
  if (x.column.empty()) return x;
  const int64_t first = x.column.front();
  if (std::any_of(x.column.begin(), x.column.end(), [&](int64_t c) { return c != first; })) return x;
  x.column.clear();
  x.base = x.base + Index(first);
  return x;
}

TileIndex TileMath::uniform(Index base) const {
  TileIndex x;
  x.base = base;
  return x;
}

TileIndex TileMath::along_rows(Index base, int64_t all) const {
  TileIndex x = uniform(base);
  x.row = maker_.lanes().rows == 1 || all == 1 ? 0 : 1;
  return x;
}

TileIndex TileMath::along_columns(Index base, int64_t shift, int64_t all) const {
  TileIndex x = uniform(base);
  auto table = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(all));
  std::iota(table->begin(), table->end(), shift);
  x.table = std::move(table);
  if (all == 1) return x;
  x.column.resize(static_cast<size_t>(maker_.lanes().columns));
  std::iota(x.column.begin(), x.column.end(), 0);
  return tidy(std::move(x));
}

TileIndex TileMath::add(const TileIndex& a, const TileIndex& b) {
  TileIndex sum = uniform(a.base + b.base);
  sum.row = a.row + b.row;
  sum.column = a.column.empty() ? b.column : a.column;
  if (!a.column.empty() && !b.column.empty())
    for (size_t c = 0; c < sum.column.size(); ++c) sum.column[c] += b.column[c];
  const auto parts = [&](const TileIndex::Part& x, const TileIndex::Part& y) {
    TileIndex::Part part{x.lanes.valid() ? x.lanes : y.lanes, add_ranges(x.range, y.range)};
    if (x.lanes.valid() && y.lanes.valid()) part.lanes = op(KOp::add, x.lanes, y.lanes);
    return part;
  };
  sum.by_row = parts(a.by_row, b.by_row);
  sum.by_column = parts(a.by_column, b.by_column);
  sum.by_both = parts(a.by_both, b.by_both);
  sum.table = sum_of(a, b);
  return tidy(std::move(sum));
}

TileIndex TileMath::shift(const TileIndex& x, int64_t by) {
  TileIndex shifted = x;
  shifted.base = x.base + Index(by);
  shifted.table = mapped(x.table, [&](int64_t value) { return value + by; });
  return shifted;
}

TileIndex TileMath::scale(const TileIndex& x, int64_t factor) {
  if (factor == 1) return x;
  TileIndex scaled = x;
  scaled.base = x.base * Index(factor);
  scaled.row *= factor;
  for (int64_t& c : scaled.column) c *= factor;
  for (TileIndex::Part* part : {&scaled.by_row, &scaled.by_column, &scaled.by_both}) {
    if (!part->lanes.valid()) continue;
    part->lanes = op(KOp::mul, part->lanes, i32(factor));
    part->range = scale_range(part->range, factor);
  }
  scaled.table = mapped(x.table, [&](int64_t value) { return value * factor; });
  return tidy(std::move(scaled));
}

Range TileMath::range(Index x) {
  if (x.is_constant()) return {x.constant(), x.constant()};
  return maker_.builder().range(x.id(maker_.builder()));
}

Range TileMath::pattern_range(const TileIndex& x) const {
  const int64_t last = x.row * (maker_.lanes().rows - 1);
  Range range{std::min<int64_t>(0, last), std::max<int64_t>(0, last)};
  if (x.column.empty()) return range;
  const auto [low, high] = std::minmax_element(x.column.begin(), x.column.end());
  return add_ranges(range, {*low, *high});
}

Range TileMath::range(const TileIndex& x) {
  const Range known = add_ranges(range(x.base), pattern_range(x));
  return add_ranges(add_ranges(known, x.by_row.range), add_ranges(x.by_column.range, x.by_both.range));
}

// The split where it leaves patterns known: the base decides alone in which quotient all of the tile lies. `rest` has
// patterns below the divisor.
std::optional<std::pair<TileIndex, TileIndex>> TileMath::split_known(const TileIndex& rest, int64_t divisor) {
  if (rest.dynamic()) return std::nullopt;
  // The base without its constant term has the larger divisors.
  kernel::KernelBuilder& builder = maker_.builder();
  const int64_t more = kernel::linear_of(builder.kernel(), rest.base.id(builder)).constant;
  const Index base = rest.base - Index(more);
  const int64_t step = std::gcd(builder.multiple_of(base.id(builder)), divisor);
  const Range lanes = add_ranges(pattern_range(rest), {more, more});
  const int64_t block = floor_div(lanes.low, step);
  if (floor_div(lanes.high, step) != block) return std::nullopt;
  const Index start = base + Index(block * step);
  TileIndex remainder = rest;
  remainder.base = start % Index(divisor) + Index(more - block * step);
  return std::pair{uniform(start / Index(divisor)), tidy(std::move(remainder))};
}

std::pair<TileIndex, TileIndex> TileMath::split_dynamic(const TileIndex& rest, int64_t divisor, int64_t extent) {
  const TileValue all = materialise(rest);
  const TileValue by = i32(divisor);
  const TileIndex quotient = from_value(op(KOp::div, all, by), {0, (extent - 1) / divisor});
  const TileIndex remainder = from_value(op(KOp::rem, all, by), {0, divisor - 1});
  const auto fragment = [](const TileIndex& x) {
    for (const TileIndex::Part* part : {&x.by_row, &x.by_column, &x.by_both})
      if (part->lanes.valid()) return part->lanes.lanes.id;
    return kernel::FragId::none;
  };
  splits_.push_back({rest, divisor, fragment(quotient), fragment(remainder)});
  splits_.back().whole.table = nullptr;
  return {quotient, remainder};
}

std::pair<TileIndex, TileIndex> TileMath::split(const TileIndex& x, int64_t divisor, int64_t extent) {
  STEPC_CHECK(divisor > 0, "split by {}", divisor);
  if (divisor >= extent) return {zero(), x};
  if (divisor == 1) return {x, zero()};
  const Table quotients = mapped(x.table, [&](int64_t value) { return floor_div(value, divisor); });
  const Table remainders = mapped(x.table, [&](int64_t value) { return floor_rem(value, divisor); });
  // What is a multiple of the divisor goes to the quotient: x = whole * divisor + rest.
  TileIndex whole;
  TileIndex rest = x;
  rest.table = nullptr;
  whole.row = floor_div(x.row, divisor);
  rest.row = floor_rem(x.row, divisor);
  whole.column = x.column;
  for (int64_t& c : whole.column) c = floor_div(c, divisor);
  for (int64_t& c : rest.column) c = floor_rem(c, divisor);
  rest = tidy(std::move(rest));
  std::pair<TileIndex, TileIndex> result;
  const Range bounds = range(rest);
  if (auto known = split_known(rest, divisor))
    result = *known;
  else if (bounds.low >= 0 && bounds.high < divisor)
    result = {zero(), rest};
  else
    result = split_dynamic(rest, divisor, extent);
  result.first = add(tidy(std::move(whole)), result.first);
  result.first.table = quotients;
  result.second.table = remainders;
  return result;
}

TileIndex TileMath::join(const TileIndex& quotient, int64_t divisor, const TileIndex& remainder) {
  TileIndex scaled = quotient;
  scaled.base = quotient.base * Index(divisor);
  scaled.table = mapped(quotient.table, [&](int64_t value) { return value * divisor; });
  const Table table = sum_of(scaled, remainder);
  TileIndex q = quotient;
  TileIndex r = remainder;
  TileIndex undone;
  const std::pair<TileIndex::Part*, TileIndex::Part*> parts[] = {
      {&q.by_row, &r.by_row}, {&q.by_column, &r.by_column}, {&q.by_both, &r.by_both}};
  for (const auto& [qp, rp] : parts) {
    const auto split = std::find_if(splits_.begin(), splits_.end(), [&, qp = qp, rp = rp](const Split& s) {
      return s.divisor == divisor && qp->lanes.valid() && rp->lanes.valid() && s.quotient == qp->lanes.lanes.id &&
             s.remainder == rp->lanes.lanes.id;
    });
    if (split == splits_.end()) continue;
    *qp = {};
    *rp = {};
    undone = add(undone, split->whole);
  }
  TileIndex joined = add(add(scale(q, divisor), r), undone);
  joined.table = table;
  return joined;
}

TileIndex TileMath::clamp(const TileIndex& x, int64_t low, int64_t high) {
  const Range bounds = range(x);
  if (bounds.low >= low && bounds.high <= high) return x;
  if (x.uniform()) return uniform(max(min(x.base, Index(high)), Index(low)));
  TileIndex clamped;
  if (!x.dynamic() && x.row == 0 && x.base.is_constant()) {
    clamped.column = x.column;
    for (int64_t& c : clamped.column) c = std::clamp(c + x.base.constant(), low, high);
    clamped = tidy(std::move(clamped));
  } else {
    const TileValue below = op(KOp::min, materialise(x), i32(std::min<int64_t>(high, INT32_MAX)));
    clamped = from_value(op(KOp::max, below, i32(low)), {low, high});
  }
  clamped.table = mapped(x.table, [&](int64_t value) { return std::clamp(value, low, high); });
  return clamped;
}

TileMath::Test TileMath::inside(const TileIndex& x, int64_t low, int64_t high) {
  const Range bounds = range(x);
  if (bounds.low >= low && bounds.high < high) return {true, true, {}};
  if (bounds.high < low || bounds.low >= high) return {true, false, {}};
  const TileValue all = materialise(x);
  TileValue result;
  if (bounds.low < low) result = op(KOp::less_equal, i32(low), all);
  if (bounds.high >= high) {
    const TileValue below = op(KOp::less, all, i32(high));
    result = result.valid() ? op(KOp::logical_and, result, below) : below;
  }
  return {false, false, result};
}

std::optional<std::pair<TilePosition, std::vector<int64_t>>> TileMath::in_order(const TilePosition& where,
                                                                                int64_t extent) {
  const TileLanes& lanes = maker_.lanes();
  const bool whole = lanes.count.is_constant() && lanes.count.constant() == lanes.columns;
  if (where.empty() || where.back().column.empty() || where.back().row != 0 || !whole) return std::nullopt;
  bool has_rows = false;
  for (size_t d = 0; d < where.size(); ++d) {
    if (where[d].dynamic() || (d + 1 < where.size() && !where[d].column.empty())) return std::nullopt;
    has_rows |= where[d].row != 0;
  }
  if (!has_rows) return std::nullopt;
  kernel::KernelBuilder& builder = maker_.builder();
  const TileIndex& last = where.back();
  const int64_t more = kernel::linear_of(builder.kernel(), last.base.id(builder)).constant;
  std::vector<int64_t> from = last.column;
  const int64_t low = *std::min_element(from.begin(), from.end()) + more;
  const int64_t first = low - floor_rem(low, 8);  // threads hold columns by their number in eights
  for (int64_t& c : from) c += more - first;
  std::vector<int64_t> order(from.size());
  std::iota(order.begin(), order.end(), 0);
  if (from == order || *std::max_element(from.begin(), from.end()) >= lanes.columns || !moves_in_thread(from))
    return std::nullopt;
  TilePosition window = where;
  window.back().base = last.base + Index(first - more);
  window.back().column = std::move(order);
  window.back().table = nullptr;
  const Range all = range(window.back());
  if (all.low < 0 || all.high >= extent) return std::nullopt;
  return std::pair{std::move(window), std::move(from)};
}

TileValue TileMath::i32(int64_t value) {
  if (!fits_i32({value, value})) overflowed_ = true, value = 0;
  return maker_.i32(value);
}

TileValue TileMath::materialise(const TileIndex& x) {
  if (!fits_i32(range(x))) overflowed_ = true;
  TileValue sum;
  const auto plus = [&](TileValue more) { sum = sum.valid() ? op(KOp::add, sum, more) : more; };
  // Scalars first, then vectors, so that as little as may be is done on tiles.
  const bool is_zero = x.base.is_constant() && x.base.constant() == 0;
  if (!is_zero || x.uniform()) plus(maker_.from_index(x.base));
  if (!x.column.empty()) plus(maker_.column_numbers(x.column));
  if (x.by_column.lanes.valid()) plus(x.by_column.lanes);
  TileValue rows;
  if (x.row != 0) {
    rows = maker_.row_lane();
    if (x.row != 1) rows = op(KOp::mul, rows, i32(x.row));
  }
  if (x.by_row.lanes.valid()) rows = rows.valid() ? op(KOp::add, rows, x.by_row.lanes) : x.by_row.lanes;
  if (rows.valid()) plus(rows);
  if (x.by_both.lanes.valid()) plus(x.by_both.lanes);
  return sum;
}

TileIndex TileMath::from_value(TileValue value, Range range) {
  TileIndex x;
  switch (value.spread) {
    case Spread::rows: x.by_row = {value, range}; break;
    case Spread::columns: x.by_column = {value, range}; break;
    case Spread::none:
    case Spread::tile: x.by_both = {value, range}; break;
  }
  return x;
}

void TileMath::append_key(const TileIndex& x, std::vector<int64_t>& key) {
  key.push_back(static_cast<int64_t>(x.base.id(maker_.builder())));
  key.push_back(x.row);
  for (const TileIndex::Part* part : {&x.by_row, &x.by_column, &x.by_both})
    key.push_back(static_cast<int64_t>(part->lanes.lanes.id));
  key.push_back(static_cast<int64_t>(x.column.size()));
  key.insert(key.end(), x.column.begin(), x.column.end());
}

std::vector<int64_t> position_key(TileMath& math, const TilePosition& position) {
  std::vector<int64_t> key;
  for (const TileIndex& x : position) math.append_key(x, key);
  return key;
}

}  // namespace stepc
