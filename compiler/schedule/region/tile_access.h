// Loads and stores of a group's operands and results at positions of a whole tile: as one strided tile or vector
// where rows and columns each run along one dimension, else element by element at offsets that are computed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/schedule/region/tile_index.h"
#include "ir/graph/graph.h"

namespace stepc {

// A place of a buffer at which a tile lies, its rows along dimension `rows`.
struct TilePlace {
  kernel::BufferId buffer = kernel::BufferId::none;
  std::vector<kernel::Index> at;
  int64_t rows = 0;
};

class TileAccess {
 public:
  // The buffers of operands and results. A buffer has its value's shape or another of as many elements.
  TileAccess(TileMath& math, TileMaker& maker, const Program& program, std::map<ValueId, kernel::BufferId> buffers)
      : math_(math), maker_(maker), program_(program), buffers_(std::move(buffers)) {}

  TileValue load(ValueId value, const TilePosition& at);
  // The i32 element at a uniform position.
  kernel::Index load_index(ValueId value, const TilePosition& at, kernel::Range range);
  // Where a tile of the value's elements can be stored as it is.
  std::optional<TilePlace> tile_place(ValueId value, const TilePosition& at);
  void store(TileValue tile, const TilePlace& place);
  // Element by element; columns are those of the whole tile.
  void scatter(TileValue tile, ValueId value, const TilePosition& at);

  // Accesses element by element so far, and the values whose buffers' shapes made them so.
  int64_t scattered() const { return scattered_; }
  const std::set<ValueId>& unfit() const { return unfit_; }
  // Why an access was not possible.
  const std::optional<std::string>& failure() const { return failure_; }

 private:
  struct Place {
    kernel::BufferId buffer = kernel::BufferId::none;
    Shape shape;
    TilePosition at;
  };
  Place place_of(ValueId value, const TilePosition& at);
  std::optional<TileValue> load_vector(const Place& place, Spread spread);
  std::optional<TilePlace> plain(const Place& place) const;
  TileValue gather(ValueId value, const Place& place);
  TileIndex offset_of(ValueId value, const Place& place, std::vector<kernel::Index>& at);

  TileMath& math_;
  TileMaker& maker_;
  const Program& program_;
  std::map<ValueId, kernel::BufferId> buffers_;
  int64_t scattered_ = 0;
  std::set<ValueId> unfit_;
  std::optional<std::string> failure_;
};

}  // namespace stepc
