// What runs before and after the atomic form of attention's gradient, a tile of 128 queries of one head at a time: the
// first pass reads O and dO for what is known of every query and clears the sums of dQ, the second rounds them.
#include "compiler/schedule/sm90/attention.h"
#include "ir/kernel/builder_hopper.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Value;

}  // namespace

void emit_attention_stats(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                          const AttentionGradient& tensors) {
  AttentionParts parts(builder, sizes, config);
  const Ring out = parts.ring("out", kAttentionTile, config.stages);
  const Ring dout = parts.ring("dout", kAttentionTile, config.stages);
  parts.producer([&] {
    parts.for_tiles(1, [&](const AttentionTile& tile, Index done) {
      parts.fill(out, done, tensors.out, tile, tile.rank * kAttentionTile);
      parts.fill(dout, done, tensors.dout, tile, tile.rank * kAttentionTile);
      return Index(1);
    });
  });
  parts.consumer([&] {
    parts.for_tiles(1, [&](const AttentionTile& tile, Index done) {
      const Index token = tile.rank * kAttentionTile + builder.copy() * kAttentionBlock;
      const Value zero = parts.zeros(kAttentionBlock);
      for (int64_t row = kStatsRows; row < kStatsRows + sizes.dim; row += kAttentionBlock)
        builder.store(zero, tensors.workspace, {tile.batch_head, tile.rank * kGroups + builder.copy(), row, 0});
      const auto out_panels = parts.load_panels(out, done);
      const Value products = parts.row_products(out_panels, parts.load_panels(dout, done));
      parts.release_loaded(out, done);
      parts.release_loaded(dout, done);
      parts.store_stats(tensors, tile, tile.rank, token, products);
      return Index(1);
    });
  });
}

namespace {

class Rounding {
 public:
  Rounding(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
           const AttentionGradient& tensors)
      : b_(builder), sizes_(sizes), config_(config), tensors_(tensors), parts_(builder, sizes, config) {
    const Shape shape{config.stages, kGroups, sizes.dim / kSumColumns, kAttentionBlock, kSumColumns};
    ring_ = parts_.ring_of(b_.shared("sums", Dtype::f32, shape), "sums", config.stages, kGroups * bytes());
  }

  void emit() {
    parts_.producer(
        [&] { parts_.for_tiles(1, [&](const AttentionTile& tile, Index turn) { return load(tile, turn); }); });
    parts_.consumer([&] {
      parts_.for_tiles(1, [&](const AttentionTile& tile, Index turn) {
        parts_.wait_full(ring_, turn);
        const Index token = tile.rank * kAttentionTile + b_.copy() * kAttentionBlock;
        parts_.store_panels(tensors_.dq, tile, token, [&](BufferId out) { round(out, turn); });
        return Index(1);
      });
      parts_.finish_stores();
    });
  }

 private:
  int64_t bytes() const { return kAttentionBlock * sizes_.dim * kFloatBytes; }  // of a group

  Index load(const AttentionTile& tile, Index turn) {
    parts_.begin_fill(ring_, turn);
    for (int64_t group = 0; group < kGroups; ++group)
      kernel::hopper::bulk_load(
          b_, b_.ref(tensors_.workspace, {tile.batch_head, tile.rank * kGroups + group, kStatsRows, 0}),
          b_.ref(ring_.tile, {turn % config_.stages, group, 0, 0, 0}), parts_.full(ring_, turn), bytes());
    return 1;
  }

  void round(BufferId out, Index turn) {
    constexpr int64_t kEights = kAttentionBlock / kSumColumns;  // of a panel
    for (int64_t eight = 0; eight < sizes_.dim / kSumColumns; ++eight) {
      const Value sum =
          b_.load(ring_.tile, {turn % config_.stages, b_.copy(), eight, 0, 0}, {kAttentionBlock, kSumColumns});
      b_.store(b_.cast(parts_.scaled(sum, sizes_.scale), Dtype::bf16), out,
               {b_.copy(), eight / kEights, 0, eight % kEights * kSumColumns});
    }
    parts_.release_loaded(ring_, turn);
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionConfig& config_;
  const AttentionGradient& tensors_;
  AttentionParts parts_;
  Ring ring_;
};

}  // namespace

void emit_attention_rounding(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                             const AttentionGradient& tensors) {
  Rounding(builder, sizes, config, tensors).emit();
}

}  // namespace stepc::sm90
