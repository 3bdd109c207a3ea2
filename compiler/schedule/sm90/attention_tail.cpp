#include "compiler/schedule/sm90/attention_tail.h"

#include "ir/graph/fused.h"
#include "ir/kernel/builder_hopper.h"
#include "ir/support/check.h"

namespace stepc::sm90 {
namespace {

using kernel::Index;
using kernel::Value;

constexpr int64_t kParts = 3;  // q, k and v

MatmulGroup as_product(const Program& program, const Group& group, const AttentionGroup& attention) {
  const AttentionSizes& sizes = attention.sizes;
  MatmulGroup product;
  product.sizes.batch = sizes.batch;
  product.sizes.m = sizes.tokens;
  product.sizes.n = kParts * sizes.heads * sizes.dim;
  product.product = attention.results[0];
  const ValueId result = group_results(program, group).at(0);
  MatmulStore store{result, std::vector<int64_t>(program.type(result).shape.size(), 0), result, {}, false};
  product.stores.push_back(std::move(store));
  return product;
}

}  // namespace

AttentionTail::AttentionTail(kernel::KernelBuilder& builder, const Program& program, const Group& group,
                             const AttentionGroup& attention, std::map<ValueId, kernel::BufferId> buffers)
    : b_(builder),
      sizes_(attention.sizes),
      as_product_(as_product(program, group, attention)),
      region_(builder, program, group, as_product_, std::move(buffers), kAttentionBlock) {
  region_.on_store([this](const TileStore& store) {
    made_.push_back(store.value);
    return true;
  });
}

std::vector<Value> AttentionTail::panels(Value gradient, int64_t part, const AttentionTile& tile, Index token) {
  made_.clear();
  const Index batch = sizes_.batch == 1 ? Index(0) : tile.batch;
  for (int64_t first = 0; first < sizes_.dim; first += kAttentionBlock) {
    const Index column = (tile.head + part * sizes_.heads) * sizes_.dim + first;
    region_.store_inside({batch, token, column, {kernel::hopper::columns(b_, gradient, first, kAttentionBlock)}});
  }
  STEPC_CHECK(static_cast<int64_t>(made_.size()) == sizes_.dim / kAttentionBlock, "{} panels of a head of {}",
              made_.size(), sizes_.dim);
  return made_;
}

std::optional<std::string> AttentionTail::failure() const { return region_.failure(); }

}  // namespace stepc::sm90
