// Index arithmetic for all elements of a tile at once. An index along one dimension of a tensor is a uniform part
// (an expression of the kernel), a multiple of the row's number, a pattern over the columns known now, and i32
// fragments for what only the running kernel knows. Views move positions about by shift, scale, split and join; as
// long as nothing is dynamic and the rows and columns stay in dimensions of their own a load can be a tile load.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/schedule/region/tile_maker.h"

namespace stepc {

struct TileIndex {
  struct Part {
    TileValue lanes;  // i32; not valid: nothing
    kernel::Range range{0, 0};
  };

  kernel::Index base;
  int64_t row = 0;              // times the row's number
  std::vector<int64_t> column;  // added by column; empty: nothing
  Part by_row;
  Part by_column;
  Part by_both;
  // Where the whole index depends on the column alone: its value at every column of the product, known now. It tells
  // columns of the product apart from others whatever the arithmetic that led to them.
  std::shared_ptr<const std::vector<int64_t>> table;

  bool dynamic() const { return by_row.lanes.valid() || by_column.lanes.valid() || by_both.lanes.valid(); }
  bool uniform() const { return row == 0 && column.empty() && !dynamic(); }
  Spread spread() const;
};

// One index a dimension.
using TilePosition = std::vector<TileIndex>;

class TileMath {
 public:
  explicit TileMath(TileMaker& maker) : maker_(maker) {}

  TileIndex zero() const { return {}; }
  TileIndex uniform(kernel::Index base) const;
  // base, base + 1, ... in successive rows. `all`: rows that tiles cover; the idle ones of a single row repeat it.
  TileIndex along_rows(kernel::Index base, int64_t all) const;
  // The same of columns; the tile at column c of those that tiles cover has columns shift + c, shift + c + 1, ...
  TileIndex along_columns(kernel::Index base, int64_t shift, int64_t all) const;

  TileIndex add(const TileIndex& a, const TileIndex& b);
  TileIndex shift(const TileIndex& x, int64_t by);
  TileIndex scale(const TileIndex& x, int64_t factor);
  // The quotient and the remainder by `divisor`, for x in [0, extent).
  std::pair<TileIndex, TileIndex> split(const TileIndex& x, int64_t divisor, int64_t extent);
  // quotient * divisor + remainder; what split took apart comes together again.
  TileIndex join(const TileIndex& quotient, int64_t divisor, const TileIndex& remainder);
  TileIndex clamp(const TileIndex& x, int64_t low, int64_t high);
  kernel::Range range(const TileIndex& x);

  // pred: low <= x < high. Nothing where it is the same for all of x's range; `always` then tells which.
  struct Test {
    bool known = false;
    bool always = false;
    TileValue inside;
  };
  Test inside(const TileIndex& x, int64_t low, int64_t high);

  // Where the columns run along the last dimension, but in an order of their own that moves them in threads only: the
  // position with as many columns in order, all below `extent`, and from which of them each column comes.
  std::optional<std::pair<TilePosition, std::vector<int64_t>>> in_order(const TilePosition& where, int64_t extent);

  TileValue materialise(const TileIndex& x);
  // Has some fragment been made of an index that does not fit 32 bits? What holds it is then of no use.
  bool overflowed() const { return overflowed_; }
  // The index as a fragment.
  TileIndex from_value(TileValue value, kernel::Range range);
  // Identifies the index: equal keys, equal indices.
  void append_key(const TileIndex& x, std::vector<int64_t>& key);

 private:
  std::optional<std::pair<TileIndex, TileIndex>> split_known(const TileIndex& rest, int64_t divisor);
  std::pair<TileIndex, TileIndex> split_dynamic(const TileIndex& rest, int64_t divisor, int64_t extent);
  kernel::Range range(kernel::Index x);
  kernel::Range pattern_range(const TileIndex& x) const;  // of rows and columns
  TileIndex tidy(TileIndex x) const;
  TileValue op(kernel::Op op, TileValue a, TileValue b) { return maker_.pointwise(op, {a, b}); }

  // Splits whose parts are known only at run time, for join to undo.
  struct Split {
    TileIndex whole;
    int64_t divisor = 1;
    kernel::FragId quotient = kernel::FragId::none;
    kernel::FragId remainder = kernel::FragId::none;
  };

  TileValue i32(int64_t value);

  TileMaker& maker_;
  std::vector<Split> splits_;
  bool overflowed_ = false;
};

std::vector<int64_t> position_key(TileMath& math, const TilePosition& position);

}  // namespace stepc
