// Evaluates a contraction's group on whole tiles of the product: the epilogue of a template that holds the product
// as fragments [rows, columns]. From each result it goes back through the graph to the product's tile and to loads of
// the operands; only core ops of kernel IR are made.
//
// A template makes tiles of `columns()` columns (matmul_group.h); in ColumnMap::halves each comes as two fragments,
// columns c, c + 1, ... and n / 2 + c, n / 2 + c + 1, ... Fragments are taken apart into pieces of `step` columns,
// so that few registers are needed beside the product's own. Plan first (tile_plan.h): it says which step to take,
// how to declare the kernel's buffers, and whether the group can be made at all.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/schedule/region/matmul_group.h"
#include "compiler/schedule/region/tile_access.h"

namespace stepc {

// A finished tile of the product.
struct ProductTile {
  kernel::Index batch;
  kernel::Index row;                // of its first element; may lie behind the last row
  kernel::Index column;             // in columns(); may lie behind the last
  std::vector<kernel::Value> sums;  // f32[rows, columns]: one, or two in ColumnMap::halves
};

// A piece of a result that is ready to be stored: fragment [rows, step] of the result's dtype.
struct TileStore {
  ValueId result = ValueId::none;
  kernel::Value value;
  std::optional<TilePlace> place;  // none: its elements do not lie as a tile
  // Whether it lies in the result as the product does: result [batch, m, width] has it at (batch, row, column + shift).
  bool in_order = false;
  int64_t shift = 0;        // columns of the result before the piece's (halves, concat)
  int64_t tile_column = 0;  // of the piece in the tile
  kernel::Index height;     // valid rows and columns
  kernel::Index count;
};

// A piece that a template brings operands for: what lies there as the product does may be at hand already.
struct TilePace {
  // Around the piece that begins at this column of the tile; called for every piece, if it exists or not.
  std::function<void(int64_t first)> before;
  std::function<void(int64_t first)> after;
  // The piece of an operand [batch, m, n], or nothing: then it is loaded.
  std::function<std::optional<kernel::Value>(ValueId operand)> operand;
};

class TileRegion {
 public:
  // True: it is stored, else the default is to do it.
  using Store = std::function<bool(const TileStore&)>;

  TileRegion(kernel::KernelBuilder& builder, const Program& program, const Group& group, const MatmulGroup& matmul,
             std::map<ValueId, kernel::BufferId> buffers, int64_t step);
  void on_store(Store store) { store_ = std::move(store); }
  // One piece after the other, none looked at before its turn.
  void set_pace(TilePace pace) { pace_ = std::move(pace); }

  // Stores the group's results at the tile. What lies outside of the product is left out.
  void store(const ProductTile& tile);
  // The same where the tile's first row is known to be in the product: not in a branch of its own.
  void store_inside(const ProductTile& tile);

  int64_t scattered() const { return access_.scattered(); }
  const std::set<ValueId>& unfit() const { return access_.unfit(); }
  // Why the code made so far is wrong, if it is.
  std::optional<std::string> failure() const {
    if (math_.overflowed()) return "an index of a tile's elements does not fit 32 bits";
    return failure_ ? failure_ : access_.failure();
  }

 private:
  // Some columns of the tile, and what is to be stored there.
  struct Ready {
    const MatmulStore* store = nullptr;
    TileValue value;
    TilePosition at;
  };
  struct Piece {
    TileLanes lanes;
    kernel::Index column;  // in columns()
    int64_t first = 0;     // in the tile
    std::vector<Ready> results;
  };
  struct Target {
    const MatmulStore* store = nullptr;
    TilePosition where;
  };
  using Known = std::map<std::vector<int64_t>, TileValue>;  // values at positions
  void pieces(int64_t columns);
  void paced_pieces(int64_t columns);
  Piece piece_at(int64_t first);
  void evaluate_scalars();
  void forget_columns();
  Known loads_of(Piece& piece);
  void load_ahead(ValueId value, const TilePosition& where, Known& loads, std::set<std::vector<int64_t>>& seen);
  std::vector<Target> targets();
  void evaluate(Piece& piece);
  void finish(const Piece& piece);
  void finish(const Piece& piece, const Ready& ready);
  // The columns before it in a buffer [batch, m, width] where it lies at the piece's own row; nothing elsewhere.
  std::optional<int64_t> shift_of(const TilePlace& place, const kernel::Index& column) const;
  // An operand's tile that the template has brought.
  std::optional<kernel::Value> at_hand(ValueId value, const TilePosition& where);

  TileValue at(ValueId value, const TilePosition& where);
  TileValue evaluate(ValueId value, const TilePosition& where);
  TileValue product(const TilePosition& where);
  TileValue load(ValueId value, const TilePosition& where);
  std::optional<std::pair<TilePosition, std::vector<int64_t>>> moved(ValueId value, const TilePosition& where);
  std::optional<std::vector<int64_t>> lanes_of(const TileIndex& column, int64_t part) const;
  TileValue leaf(ValueId value, const Node& node, const TilePosition& where);
  TileValue pointwise(ValueId value, const Node& node, const TilePosition& where);
  TileValue view(ValueId value, const Node& node, const TilePosition& where);
  TileValue pad(ValueId value, const Node& node, const TilePosition& where);
  TileValue concat(ValueId value, const Node& node, const TilePosition& where);
  TileValue reduction(ValueId value, const Node& node, const TilePosition& where);
  TileValue gather_rows(ValueId value, const Node& node, const TilePosition& where);
  kernel::Index index_at(ValueId value, const TilePosition& where, kernel::Range range);
  TileValue zeros(ValueId value) { return maker_.constant(0, program_.type(value).dtype); }
  TileValue unsupported(ValueId value, std::string_view reason);
  bool contains(ValueId value) const { return inside_[index_of(program_.value(value).producer)]; }
  void scope(const std::function<void()>& body);
  // Places of the tile under way in [batch, m, width], and there in a tensor of as many elements.
  TilePosition place(int64_t part, int64_t width);

  kernel::KernelBuilder& builder_;
  const Program& program_;
  const Group& group_;
  const MatmulGroup& matmul_;
  int64_t step_;
  TileMaker maker_;
  TileMath math_;
  TileAccess access_;
  Store store_;
  std::optional<TilePace> pace_;
  std::vector<bool> inside_;  // by node
  Known known_;               // of the open scopes
  std::map<std::vector<int64_t>, kernel::Index> known_indices_;
  const ProductTile* tile_ = nullptr;
  const Piece* piece_ = nullptr;  // under way
  std::optional<std::string> failure_;
};

}  // namespace stepc
