// Attention: a task is a block of queries of one head; blocks of keys and values pass through two shared places. The
// softmax is online and in powers of two: rows keep their largest score so far and the sum of what they have added.
#include "compiler/schedule/cuda/attention.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace stepc::cuda {
namespace {

using kernel::Op;

class Attention {
 public:
  Attention(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionBuffers& buffers, Index batch,
            Index head)
      : b_(builder), sizes_(sizes), buffers_(buffers), head_(builder, sizes, batch, head) {}
  void emit(Index query_block);

 private:
  struct State {
    Value out;      // f32[64, d], times 2^largest
    Value largest;  // f32[64]
    Value sum;      // f32[64], times 2^largest
  };
  void copy_block(Index block);
  State step(const State& state, Index block, bool masked);
  Value masked_scores(Value scores, Index first_key);
  void store(const State& state);

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionBuffers& buffers_;
  AttentionHead head_;
  BufferId q_ = BufferId::none;
  BufferId kv_ = BufferId::none;  // [2, k or v, ..]
  Index first_query_;
  Index key_blocks_;
};

void Attention::copy_block(Index block) {
  for (int64_t part = 0; part < 2; ++part)
    head_.copy(buffers_.qkv, part + 1, block * kAttentionBlock, kv_, {block % 2, part});
}

// Blocks whose keys are all visible to all queries need no mask.
void Attention::emit(Index query_block) {
  q_ = head_.tiles("q", {});
  kv_ = head_.tiles("kv", {2, 2});
  first_query_ = query_block * kAttentionBlock;
  key_blocks_ = sizes_.causal ? query_block + 1 : Index(head_.blocks());
  const bool tail = sizes_.tokens % kAttentionBlock != 0;
  const Index full = sizes_.causal ? query_block : Index(head_.blocks() - (tail ? 1 : 0));
  head_.copy(buffers_.qkv, 0, first_query_, q_, {});
  copy_block(0);
  gpu::copy_commit(b_);
  const std::vector<Value> start{head_.zero(sizes_.dim), head_.row(-std::numeric_limits<double>::infinity()),
                                 head_.row(0)};
  const auto sweep = [&](std::vector<Value> state, Index low, Index high, bool masked) {
    return b_.loop("block", low, high, 1, std::move(state), [&](Index block, const std::vector<Value>& carried) {
      const State next = step({carried[0], carried[1], carried[2]}, block, masked);
      return std::vector{next.out, next.largest, next.sum};
    });
  };
  const std::vector<Value> unmasked = sweep(start, 0, full, false);
  const std::vector<Value> end = sweep(unmasked, full, key_blocks_, true);
  store({end[0], end[1], end[2]});
}

Value Attention::masked_scores(Value scores, Index first_key) {
  const Value lowest =
      b_.constant(-std::numeric_limits<double>::infinity(), Dtype::f32, {kAttentionBlock, kAttentionBlock});
  if (sizes_.causal)
    return b_.pointwise(Op::select, {head_.lane_less(kAttentionBlock, 0, first_query_, 1, first_key), lowest, scores});
  return b_.pointwise(Op::select, {head_.column_below(first_key, sizes_.tokens), scores, lowest});
}

// The next block's copy runs while this one is worked on.
Attention::State Attention::step(const State& state, Index block, bool masked) {
  gpu::copy_wait(b_, 0);
  gpu::sync_task(b_);
  b_.when(less(block + 1, key_blocks_), [&] { copy_block(block + 1); });
  gpu::copy_commit(b_);
  const Index stage = b_.name("stage", block % 2);
  const Value raw = head_.scores(head_.tile(q_, {}), head_.tile(kv_, {stage, 0}));
  Value scores = head_.times(raw, sizes_.scale * std::numbers::log2e);
  if (masked) scores = masked_scores(scores, block * kAttentionBlock);
  State next;
  next.largest = b_.pointwise(Op::max, {state.largest, b_.reduce(Op::reduce_max, scores)});
  const Value below = b_.pointwise(Op::sub, {scores, head_.wide(next.largest, kAttentionBlock)});
  const Value weights = b_.pointwise(Op::exp2, {below});
  const Value shrink = b_.pointwise(Op::exp2, {b_.pointwise(Op::sub, {state.largest, next.largest})});
  next.sum = b_.pointwise(Op::fma, {state.sum, shrink, b_.reduce(Op::reduce_sum, weights)});
  const Value out = b_.pointwise(Op::mul, {state.out, head_.wide(shrink, sizes_.dim)});
  next.out = head_.weighted_sum(out, weights, head_.tile(kv_, {stage, 1}));
  return next;
}

void Attention::store(const State& state) {
  if (buffers_.out != BufferId::none) {
    const Value inverse = b_.pointwise(Op::div, {head_.row(1), state.sum});
    const Value out = b_.pointwise(Op::mul, {state.out, head_.wide(inverse, sizes_.dim)});
    head_.store_tile(out, buffers_.out, 0, first_query_);
  }
  if (buffers_.lse == BufferId::none) return;
  const Value log_sum = b_.pointwise(Op::log, {state.sum});
  const Value lse = b_.pointwise(Op::fma, {state.largest, head_.row(std::numbers::ln2), log_sum});
  head_.store_rows(lse, buffers_.lse, first_query_);
}

}  // namespace

int64_t attention_tasks(const AttentionSizes& sizes) {
  return sizes.batch * sizes.heads * ((sizes.tokens + kAttentionBlock - 1) / kAttentionBlock);
}

// Late blocks of queries see the most keys: they start first.
void emit_attention(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionBuffers& buffers) {
  builder.begin_role("main", kAttentionWarps);
  const int64_t heads = sizes.batch * sizes.heads;
  const int64_t blocks = attention_tasks(sizes) / heads;
  const Index batch = builder.name("batch", builder.task() % heads / sizes.heads);
  const Index head = builder.name("head", builder.task() % sizes.heads);
  Attention(builder, sizes, buffers, batch, head)
      .emit(builder.name("query_block", blocks - 1 - builder.task() / heads));
}

}  // namespace stepc::cuda
