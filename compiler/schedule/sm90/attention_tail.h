// What follows attention's gradient in its kernel group, RoPE's own gradient for one, made as the gradient leaves the
// accumulators. The gradient [batch, token, 3, head, d] is seen as a product of `token` rows and 3 * heads * d columns,
// of which a head has d: so the epilogue of contractions (region/tile_region.h) makes it.
#pragma once

#include <map>
#include <vector>

#include "compiler/schedule/region/tile_region.h"
#include "compiler/schedule/sm90/attention.h"

namespace stepc::sm90 {

class AttentionTail {
 public:
  AttentionTail(kernel::KernelBuilder& builder, const Program& program, const Group& group,
                const AttentionGroup& attention, std::map<ValueId, kernel::BufferId> buffers);

  // The group's result, as bf16 panels of 64 columns, where the gradient of one of q, k and v is f32[64, d] for 64
  // tokens of a head, `token` the first. All tiles are whole (takes_tail).
  std::vector<kernel::Value> panels(kernel::Value gradient, int64_t part, const AttentionTile& tile,
                                    kernel::Index token);
  // Why the code made so far is wrong, if it is.
  std::optional<std::string> failure() const;

 private:
  kernel::KernelBuilder& b_;
  const AttentionSizes& sizes_;
  MatmulGroup as_product_;
  TileRegion region_;
  std::vector<kernel::Value> made_;  // panels of the head under way
};

}  // namespace stepc::sm90
