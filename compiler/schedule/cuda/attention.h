// The portable attention templates (sm_80 and later): blocks of 64 queries by 64 keys on tensor cores, four warps a
// CTA. A kernel sees qkv as [B, T, 3 * H, d] and outputs as [B, T, H, d].
#pragma once

#include <functional>

#include "compiler/schedule/region/attention_group.h"
#include "ir/kernel/builder_gpu.h"

namespace stepc::cuda {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Value;
namespace gpu = kernel::gpu;

constexpr int64_t kAttentionBlock = 64;  // queries, and keys
constexpr int kAttentionWarps = 4;
constexpr int64_t kLargestHead = 128;  // elements; more do not fit registers and shared memory
constexpr int64_t kHeadUnit = 16;      // elements are whole steps of the product

inline bool fits_attention(const AttentionSizes& sizes) {
  return sizes.dim > 0 && sizes.dim % kHeadUnit == 0 && sizes.dim <= kLargestHead;
}

// BufferId::none: nobody reads it.
struct AttentionBuffers {
  BufferId qkv = BufferId::none;
  BufferId out = BufferId::none;
  BufferId lse = BufferId::none;
};
struct AttentionGradBuffers {
  BufferId qkv = BufferId::none;
  BufferId out = BufferId::none;
  BufferId lse = BufferId::none;
  BufferId dout = BufferId::none;
  BufferId dqkv = BufferId::none;
  BufferId stats = BufferId::none;  // f32[2 * B, H, T]: -lse in powers of two, then the sums of out * dout
};

int64_t attention_tasks(const AttentionSizes& sizes);
int64_t attention_grad_tasks(const AttentionSizes& sizes);
// Make the kernel's role; its grid is the number of tasks above, which is not 0.
void emit_attention(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionBuffers& buffers);
void emit_attention_stats(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionGradBuffers& buffers);
void emit_attention_grad(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionGradBuffers& buffers);

// What one (batch, head) of either kernel is made of.
class AttentionHead {
 public:
  AttentionHead(KernelBuilder& builder, const AttentionSizes& sizes, Index batch, Index head)
      : b_(builder), sizes_(sizes), batch_(batch), head_(head) {}

  int64_t blocks() const { return (sizes_.tokens + kAttentionBlock - 1) / kAttentionBlock; }
  // Shared tiles [.., panels, 64 tokens, 64 elements], `leading` dimensions before them.
  BufferId tiles(std::string name, Shape leading);
  // Starts the copy of 64 tokens of the head's q (part 0), k or v in `from` to the tile at `to`; tokens past the last
  // become 0.
  void copy(BufferId from, int64_t part, Index first, BufferId tiles, const std::vector<Index>& to);
  // From its row `row` on.
  kernel::Ref tile(BufferId tiles, std::vector<Index> at, Index row = 0);
  // The products of 64 rows with `count` rows of another tile, over the head's elements.
  Value scores(kernel::Ref rows, kernel::Ref columns, int64_t count = kAttentionBlock);
  // acc[64, d] + weights[64, n] (rounded to bf16) * n rows of a tile.
  Value weighted_sum(Value acc, Value weights, kernel::Ref rows);
  Value zero(int64_t columns) { return b_.constant(0, Dtype::f32, {kAttentionBlock, columns}); }
  Value row(double value) { return b_.constant(value, Dtype::f32, {kAttentionBlock}); }
  Value wide(Value rows, int64_t columns) { return b_.splat_column(rows, {kAttentionBlock, columns}); }
  Value times(Value tile, double factor);
  // pred[64, columns] of a tile: lane number + at < lane number + other_at, along an axis each.
  Value lane_less(int64_t columns, int64_t axis, Index at, int64_t other_axis, Index other_at);
  // pred[64, 64]: column + lane number < limit.
  Value column_below(Index column, int64_t limit);
  // `count` numbers of the tokens from `first` on; 0 past the last. `part`: of source [parts * B, H, T].
  Value load_rows(BufferId source, Index first, int64_t part = 0, int64_t count = kAttentionBlock);
  void store_rows(Value rows, BufferId target, Index first, int64_t part = 0);
  void store_tile(Value tile, BufferId target, int64_t part, Index first);
  // The head's elements of 64 tokens from memory, columns [column, column + count).
  Value load_tile(BufferId source, Index first, int64_t column, int64_t count);

 private:
  Index rest(Index first, int64_t count = kAttentionBlock) const {
    return sizes_.tokens % kAttentionBlock == 0 ? Index(count) : sizes_.tokens - first;
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  Index batch_, head_;
};

}  // namespace stepc::cuda
