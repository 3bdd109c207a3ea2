// Makes fragments of a tile [rows, columns] in the smallest form that holds them: a scalar where all of the tile
// has one value, a vector where a value depends on the row or on the column alone, else a tile. Operands widen to
// what an op needs, and what is asked for twice in a scope is made once.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "ir/kernel/builder.h"

namespace stepc {

// What a value depends on; a union of bits.
enum class Spread : uint8_t { none = 0, rows = 1, columns = 2, tile = 3 };
constexpr Spread operator|(Spread a, Spread b) {
  return static_cast<Spread>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}

struct TileValue {
  kernel::Value lanes;
  Spread spread = Spread::none;
  bool valid() const { return lanes.valid(); }
};

// The tile under way. Rows from `height` on and columns from `count` on are idle: they compute on the operands of
// the last valid ones, or on zeros, and nothing of theirs is stored.
struct TileLanes {
  int64_t rows = 1;
  int64_t columns = 1;
  kernel::Index height;  // 1 .. rows
  kernel::Index count;   // 1 .. columns
};

class TileMaker {
 public:
  explicit TileMaker(kernel::KernelBuilder& builder) : builder_(builder) {}
  kernel::KernelBuilder& builder() { return builder_; }

  void set_lanes(TileLanes lanes) { lanes_ = std::move(lanes); }
  const TileLanes& lanes() const { return lanes_; }
  // The shape of a fragment that is spread so.
  Shape shape(Spread spread) const;

  TileValue constant(double value, Dtype dtype);
  TileValue i32(int64_t value) { return constant(static_cast<double>(value), Dtype::i32); }
  TileValue from_index(kernel::Index value);
  // Every valid row's number, every valid column's; idle ones repeat the last.
  TileValue row_lane();
  TileValue column_lane();
  // values[c] in column c: arithmetic on the column's number.
  TileValue column_numbers(const std::vector<int64_t>& values);

  TileValue widen(TileValue x, Spread spread);
  TileValue cast(TileValue x, Dtype dtype);
  TileValue pointwise(kernel::Op op, std::vector<TileValue> operands);
  // Column c is column from[c] of a tile.
  TileValue columns_of(TileValue tile, const std::vector<int64_t>& from);

  // Forgets what depends on columns: to keep it for other columns of the tile takes more than making it again.
  void forget_columns();
  // Runs `body` and forgets what it made: for the bodies of branches.
  void scope(const std::function<void()>& body);

 private:
  using Key = std::vector<int64_t>;
  TileValue once(Key key, const std::function<TileValue()>& make);
  TileValue op(kernel::Op op, TileValue a, TileValue b) { return pointwise(op, {a, b}); }
  TileValue lane(Spread spread, int64_t extent, const kernel::Index& valid);
  TileValue two_level(const std::vector<int64_t>& values, int64_t block);
  TileValue with_jumps(const std::vector<int64_t>& values);

  kernel::KernelBuilder& builder_;
  TileLanes lanes_;
  std::map<Key, TileValue> made_;
  std::map<kernel::FragId, double> constants_;  // scalars whose value is known
};

// Do columns move only between registers of a thread, where a tile is spread over a GPU's threads (layout.h)?
bool moves_in_thread(const std::vector<int64_t>& from);

}  // namespace stepc
