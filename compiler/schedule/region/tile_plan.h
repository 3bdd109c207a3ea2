// Decides, before a kernel is built, how a contraction's group is evaluated on tiles: which columns must meet, how
// many are worked on at once and how operands and results are declared; or why it cannot be done.
#pragma once

#include <map>
#include <string>

#include "compiler/graph/fuse_check.h"
#include "compiler/schedule/region/matmul_group.h"
#include "compiler/schedule/region/tile_region.h"

namespace stepc {

struct TilePlan {
  ColumnMap columns = ColumnMap::identity;
  int64_t step = 0;        // columns that TileRegion works on at once
  int64_t scattered = 0;   // accesses of a step that go element by element
  int64_t tile_loads = 0;  // tiles of operands that a step reads
  // How the kernel declares operands and results; as the graph does where none is given. The product's operands are
  // [batch, m, k] (transposed: [batch, k, m]) and [batch, k, n], its count is [batch].
  std::map<ValueId, Shape> shapes;
};

// Columns of all tiles that may be in registers at one time, beside the product's own: a thread has half as many
// numbers.
constexpr int64_t kLiveColumns = 160;

// For fragments [tile_rows, tile_columns] whose rows and columns start at multiples of that. At most `max_step` columns
// at once, and fewer where many tiles of operands and results are in registers at one time.
Result<TilePlan> plan_tiles(const Program& program, const Group& group, const MatmulGroup& matmul, int64_t tile_rows,
                            int64_t tile_columns, int64_t max_step = 64, int64_t live_columns = kLiveColumns);

}  // namespace stepc
