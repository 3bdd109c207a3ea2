// The gradient of attention, without atomics: a task is either a block of keys of one head, which runs over the blocks
// of queries that see it and sums dK and dV, or a block of queries, which runs over its keys and sums dQ. Both make
// the scores again, 7 products instead of 5, and every sum has a fixed order. In a task of keys scores are transposed,
// so that probabilities leave the accumulator as the left side of the next product.
#include <algorithm>
#include <numbers>

#include "compiler/schedule/cuda/attention.h"

namespace stepc::cuda {
namespace {

using kernel::Op;

constexpr int64_t kPanel = 64;

class AttentionGrad {
 public:
  AttentionGrad(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionGradBuffers& buffers, Index batch,
                Index head)
      : b_(builder), sizes_(sizes), buffers_(buffers), head_(builder, sizes, batch, head) {
    own_ = head_.tiles("own", {2});
    other_ = head_.tiles("other", {2, 2});
  }
  void keys(Index key_block);
  void queries(Index query_block);

 private:
  void copy_queries(Index block, BufferId tiles, std::vector<Index> to);
  void copy_keys(Index block, BufferId tiles, std::vector<Index> to);
  // Waits for the block of the loop's turn and starts the copy of the next one, if there is one.
  void turn(Index has_next, const std::function<void()>& copy_next);
  // exp(scale * scores - lse); -lse in powers of two, as wide as the scores.
  Value probabilities(Value scores, Value minus_lse);
  // Neighbouring queries of a block that passes through.
  struct Queries {
    Index first;
    Index stage;
    Index row;  // in the block
    int64_t count = kAttentionBlock;
  };
  std::vector<Value> key_step(const std::vector<Value>& sums, const Queries& queries, Index first_key, bool masked);
  Value query_step(Value sum, Index key_block, Value minus_lse, Value row_delta, Index first_query, bool masked);
  Value hide(Value tile, Value hidden) {
    return b_.pointwise(Op::select, {hidden, b_.constant(0, Dtype::f32, b_.shape(tile)), tile});
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionGradBuffers& buffers_;
  AttentionHead head_;
  BufferId own_ = BufferId::none;    // of the task: k and v, or q and dout
  BufferId other_ = BufferId::none;  // [2, ..]: passing through: q and dout, or k and v
};

void AttentionGrad::copy_queries(Index block, BufferId tiles, std::vector<Index> to) {
  to.emplace_back(0);
  head_.copy(buffers_.qkv, 0, block * kAttentionBlock, tiles, to);
  to.back() = 1;
  head_.copy(buffers_.dout, 0, block * kAttentionBlock, tiles, to);
}

void AttentionGrad::copy_keys(Index block, BufferId tiles, std::vector<Index> to) {
  to.emplace_back(0);
  head_.copy(buffers_.qkv, 1, block * kAttentionBlock, tiles, to);
  to.back() = 1;
  head_.copy(buffers_.qkv, 2, block * kAttentionBlock, tiles, to);
}

void AttentionGrad::turn(Index has_next, const std::function<void()>& copy_next) {
  gpu::copy_wait(b_, 0);
  gpu::sync_task(b_);
  b_.when(has_next, copy_next);
  gpu::copy_commit(b_);
}

Value AttentionGrad::probabilities(Value scores, Value minus_lse) {
  const Value factor = b_.constant(sizes_.scale * std::numbers::log2e, Dtype::f32, b_.shape(scores));
  return b_.pointwise(Op::exp2, {b_.pointwise(Op::fma, {scores, factor, minus_lse})});
}

// ---- dK and dV ---------------------------------------------------------------------------------------------------

void AttentionGrad::keys(Index key_block) {
  const Index first_key = key_block * kAttentionBlock;
  const Index first = sizes_.causal ? key_block : Index(0);
  const Index end = head_.blocks();
  // Both sums of a long head leave registers for half a block of scores.
  const int64_t at_once = sizes_.dim > kPanel ? kAttentionBlock / 2 : kAttentionBlock;
  copy_keys(key_block, own_, {});
  copy_queries(first, other_, {0});
  gpu::copy_commit(b_);
  const auto sweep = [&](std::vector<Value> sums, Index low, Index high, bool masked) {
    return b_.loop("query_block", low, high, 1, std::move(sums), [&](Index block, const std::vector<Value>& carried) {
      turn(less(block + 1, end), [&] { copy_queries(block + 1, other_, {(block - first + 1) % 2}); });
      const Index stage = b_.name("stage", (block - first) % 2);
      return b_.loop("row", 0, kAttentionBlock, at_once, carried, [&](Index row, const std::vector<Value>& so_far) {
        return key_step(so_far, {block * kAttentionBlock + row, stage, row, at_once}, first_key, masked);
      });
    });
  };
  // Only the first block of queries is before some of its keys.
  const Index unmasked = sizes_.causal ? first + 1 : first;
  std::vector<Value> sums{head_.zero(sizes_.dim), head_.zero(sizes_.dim)};
  sums = sweep(std::move(sums), first, unmasked, true);
  sums = sweep(std::move(sums), unmasked, end, false);
  head_.store_tile(head_.times(sums[0], sizes_.scale), buffers_.dqkv, 1, first_key);
  head_.store_tile(sums[1], buffers_.dqkv, 2, first_key);
}

// Queries past the last are zeros, and so are their log-sum-exps: they add nothing.
std::vector<Value> AttentionGrad::key_step(const std::vector<Value>& sums, const Queries& queries, Index first_key,
                                           bool masked) {
  const int64_t count = queries.count;
  const Shape shape{kAttentionBlock, count};
  const auto query = [&] { return head_.tile(other_, {queries.stage, 0}, queries.row); };
  const auto dout = [&] { return head_.tile(other_, {queries.stage, 1}, queries.row); };
  const Value minus_lse = head_.load_rows(buffers_.stats, queries.first, 0, count);
  const Value delta = head_.load_rows(buffers_.stats, queries.first, 1, count);
  Value p = probabilities(head_.scores(head_.tile(own_, {0}), query(), count), b_.splat(minus_lse, shape));
  const Value hidden = masked ? head_.lane_less(count, 1, queries.first, 0, first_key) : Value{};
  if (masked) p = hide(p, hidden);
  const Value dv = head_.weighted_sum(sums[1], p, dout());
  const Value dp = head_.scores(head_.tile(own_, {1}), dout(), count);
  Value ds = b_.pointwise(Op::mul, {p, b_.pointwise(Op::sub, {dp, b_.splat(delta, shape)})});
  if (masked) ds = hide(ds, hidden);
  return {head_.weighted_sum(sums[0], ds, query()), dv};
}

// ---- dQ ------------------------------------------------------------------------------------------------------------

void AttentionGrad::queries(Index query_block) {
  const Index first_query = query_block * kAttentionBlock;
  const bool tail = sizes_.tokens % kAttentionBlock != 0;
  const Index end = sizes_.causal ? query_block + 1 : Index(head_.blocks());
  const Index masked_from = sizes_.causal ? query_block : Index(head_.blocks() - (tail ? 1 : 0));
  copy_queries(query_block, own_, {});
  copy_keys(0, other_, {0});
  gpu::copy_commit(b_);
  const Value minus_lse = head_.load_rows(buffers_.stats, first_query);
  const Value row_delta = head_.load_rows(buffers_.stats, first_query, 1);
  const auto sweep = [&](Value sum, Index low, Index high, bool masked) {
    return b_.loop("key_block", low, high, 1, {sum}, [&](Index block, const std::vector<Value>& carried) {
      turn(less(block + 1, end), [&] { copy_keys(block + 1, other_, {(block + 1) % 2}); });
      return std::vector{query_step(carried[0], block, minus_lse, row_delta, first_query, masked)};
    })[0];
  };
  Value sum = sweep(head_.zero(sizes_.dim), 0, masked_from, false);
  sum = sweep(sum, masked_from, end, true);
  head_.store_tile(head_.times(sum, sizes_.scale), buffers_.dqkv, 0, first_query);
}

Value AttentionGrad::query_step(Value sum, Index key_block, Value minus_lse, Value row_delta, Index first_query,
                                bool masked) {
  const Index stage = b_.name("stage", key_block % 2);
  const Index first_key = key_block * kAttentionBlock;
  const auto key = [&] { return head_.tile(other_, {stage, 0}); };
  const Value p = probabilities(head_.scores(head_.tile(own_, {0}), key()), head_.wide(minus_lse, kAttentionBlock));
  const Value dp = head_.scores(head_.tile(own_, {1}), head_.tile(other_, {stage, 1}));
  Value ds = b_.pointwise(Op::mul, {p, b_.pointwise(Op::sub, {dp, head_.wide(row_delta, kAttentionBlock)})});
  if (masked) {
    const Value shown = sizes_.causal ? Value{} : head_.column_below(first_key, sizes_.tokens);
    const Value hidden = sizes_.causal ? head_.lane_less(kAttentionBlock, 0, first_query, 1, first_key)
                                       : b_.pointwise(Op::logical_not, {shown});
    ds = hide(ds, hidden);
  }
  return head_.weighted_sum(sum, ds, key());
}

}  // namespace

void emit_attention_stats(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionGradBuffers& buffers) {
  builder.begin_role("main", kAttentionWarps);
  const int64_t heads = sizes.batch * sizes.heads;
  const Index batch = builder.name("batch", builder.task() % heads / sizes.heads);
  AttentionHead head(builder, sizes, batch, builder.name("head", builder.task() % sizes.heads));
  const Index first = builder.task() / heads * kAttentionBlock;
  Value delta;
  for (int64_t column = 0; column < sizes.dim; column += kPanel) {
    const int64_t count = std::min(kPanel, sizes.dim - column);
    const Value out = head.load_tile(buffers.out, first, column, count);
    const Value dout = head.load_tile(buffers.dout, first, column, count);
    const Value part = builder.reduce(Op::reduce_sum, builder.pointwise(Op::mul, {out, dout}));
    delta = delta.valid() ? builder.pointwise(Op::add, {delta, part}) : part;
  }
  const Value lse = builder.pointwise(Op::mul, {head.load_rows(buffers.lse, first), head.row(-std::numbers::log2e)});
  head.store_rows(lse, buffers.stats, first);
  head.store_rows(delta, buffers.stats, first, 1);
}

int64_t attention_grad_tasks(const AttentionSizes& sizes) { return 2 * attention_tasks(sizes); }

void emit_attention_grad(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionGradBuffers& buffers) {
  builder.begin_role("main", kAttentionWarps);
  const int64_t heads = sizes.batch * sizes.heads;
  const int64_t key_tasks = attention_tasks(sizes);
  const int64_t blocks = key_tasks / heads;
  const Index batch = builder.name("batch", builder.task() % heads / sizes.heads);
  const Index head = builder.name("head", builder.task() % sizes.heads);
  const Index block = builder.task() / heads % blocks;
  AttentionGrad gradient(builder, sizes, buffers, batch, head);
  // The longest tasks start first: early keys, then late queries.
  const auto keys = [&] {
    gradient.keys(builder.name("key_block", block));
    return std::vector<Value>{};
  };
  const auto queries = [&] {
    gradient.queries(builder.name("query_block", blocks - 1 - block));
    return std::vector<Value>{};
  };
  builder.branch(less(builder.task(), key_tasks), keys, queries);
}

}  // namespace stepc::cuda
