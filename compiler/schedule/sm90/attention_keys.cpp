// The second half of attention's gradient: dK and dV. A tile is 128 keys of one head, a block 64 queries. Scores are
// computed transposed, keys by queries, so that P and dS leave the accumulators as register operands of dV += P^T dO
// and dK += dS^T Q, which each group of warps sums for its 64 keys. The scores of the next block are under way while
// these products are.
#include <limits>

#include "compiler/schedule/sm90/attention.h"
#include "ir/kernel/builder_hopper.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Op;
using kernel::Value;
using kernel::hopper::Major;
using kernel::hopper::wgmma_wait;

constexpr int64_t kStatsBytes = 2 * kAttentionBlock * 4;

class Keys {
 public:
  Keys(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
       const AttentionGradient& tensors)
      : b_(builder), sizes_(sizes), tensors_(tensors), parts_(builder, sizes, config) {
    k_ = parts_.ring("k", kAttentionTile, 1);
    v_ = parts_.ring("v", kAttentionTile, 1);
    q_ = parts_.ring("q", kAttentionBlock, config.stages, kStatsBytes);
    dout_ = parts_.ring("dout", kAttentionBlock, config.stages);
    stats_ = b_.shared("stat", Dtype::f32, {config.stages, 2, kAttentionBlock});
  }

  void emit() {
    parts_.producer(
        [&] { parts_.for_tiles(blocks(), [&](const AttentionTile& tile, Index done) { return load(tile, done); }); });
    parts_.consumer([&] {
      parts_.for_tiles(blocks(), [&](const AttentionTile& tile, Index done) { return compute(tile, done); });
      parts_.finish_stores();
    });
  }

 private:
  // Of queries, with those that fill the last tile: every group of keys then has at least one.
  int64_t blocks() const { return 2 * parts_.row_tiles(); }

  Index load(const AttentionTile& tile, Index done) {
    parts_.fill(k_, tile.wave, tensors_.k, tile, tile.rank * kAttentionTile);
    parts_.fill(v_, tile.wave, tensors_.v, tile, tile.rank * kAttentionTile);
    const Index first = tile.rank * 2;
    b_.loop("block", first, blocks(), 1, [&](Index block) {
      const Index turn = b_.name("turn", done + block - first);
      parts_.begin_fill(q_, turn);
      parts_.load(q_, turn, tensors_.q, tile, block * kAttentionBlock);
      kernel::hopper::bulk_load(b_, b_.ref(tensors_.stats, {tile.batch_head, block, 0, 0}),
                                b_.ref(stats_, {turn % q_.stages, 0, 0}), parts_.full(q_, turn), kStatsBytes);
      parts_.fill(dout_, turn, tensors_.dout, tile, block * kAttentionBlock);
    });
    return blocks() - first;
  }

  Index compute(const AttentionTile& tile, Index done) {
    const Index token = tile.rank * kAttentionTile + b_.copy() * kAttentionBlock;
    // The first block lies before all keys of the second group.
    b_.when(equal(b_.copy(), 1), [&] {
      parts_.skip(q_, done);
      parts_.skip(dout_, done);
    });
    const Index first = b_.name("first", done + b_.copy());
    const Index last = b_.name("last", done + blocks() - 1 - tile.rank * 2);
    parts_.wait_full(k_, tile.wave);
    const Value s = exponents(wgmma_wait(b_, {scores(tile, first)}, 0)[0], first);
    const Value visible =
        parts_.hide_future(s, parts_.constant(-std::numeric_limits<double>::infinity(), s), true, token, token);
    parts_.wait_full(v_, tile.wave);
    const std::vector<Value> initial{parts_.zeros(sizes_.dim), parts_.zeros(sizes_.dim), visible};
    auto end = b_.loop("i", 0, last - first, 1, initial, [&](Index i, const std::vector<Value>& carried) {
      return block(tile, b_.name("turn", first + i), carried, true);
    });
    parts_.release(k_, tile.wave);
    end = block(tile, last, end, false);
    parts_.store(end[1], tensors_.dv, tile, token);
    parts_.store(parts_.scaled(end[0], sizes_.scale), tensors_.dk, tile, token);
    return blocks() - tile.rank * 2;
  }

  Value scores(const AttentionTile& tile, Index turn) {
    parts_.wait_full(q_, turn);
    return kernel::hopper::wgmma(b_, parts_.zeros(kAttentionBlock),
                                 parts_.at(k_, tile.wave, b_.copy() * kAttentionBlock), Major::k, parts_.at(q_, turn),
                                 Major::k, sizes_.dim);
  }

  // A number per query, in every row.
  Value stats(Index turn, int64_t which, Value like) {
    const Value row = b_.load(stats_, {turn % q_.stages, which, 0}, {kAttentionBlock});
    return b_.splat(row, b_.shape(like));
  }

  // Of 2: scores, less the query's log-sum-exp. These are carried, not the scores: the hidden ones of the first block
  // would have to be put into the very registers in which the next product leaves its own.
  Value exponents(Value s, Index turn) {
    return b_.pointwise(Op::fma, {s, parts_.constant(parts_.scale_base2(), s), stats(turn, 0, s)});
  }

  // `carried`: dK, dV and the exponents of the turn. With `more`, those of the next are the third result; else it is
  // the tile's last block, and V is not needed any more.
  std::vector<Value> block(const AttentionTile& tile, Index turn, const std::vector<Value>& carried, bool more) {
    parts_.wait_full(dout_, turn);
    const Value dp_flying =
        kernel::hopper::wgmma(b_, parts_.zeros(kAttentionBlock), parts_.at(v_, tile.wave, b_.copy() * kAttentionBlock),
                              Major::k, parts_.at(dout_, turn), Major::k, sizes_.dim);
    const Value p = b_.pointwise(Op::exp2, {carried[2]});
    const Value dv_flying = kernel::hopper::wgmma_rs(b_, carried[1], b_.cast(p, Dtype::bf16), parts_.at(dout_, turn),
                                                     Major::mn, kAttentionBlock);
    const Value dp = wgmma_wait(b_, {dp_flying}, 1)[0];
    if (!more) parts_.release(v_, tile.wave);
    const Value ds = b_.pointwise(Op::mul, {p, b_.pointwise(Op::sub, {dp, stats(turn, 1, dp)})});
    const Value dk_flying = kernel::hopper::wgmma_rs(b_, carried[0], b_.cast(ds, Dtype::bf16), parts_.at(q_, turn),
                                                     Major::mn, kAttentionBlock);
    if (!more) {
      const auto sums = wgmma_wait(b_, {dk_flying, dv_flying}, 0);
      parts_.release(dout_, turn);
      parts_.release(q_, turn);
      return sums;
    }
    const Value next_flying = scores(tile, turn + 1);
    auto results = wgmma_wait(b_, {dk_flying, dv_flying}, 1);
    parts_.release(dout_, turn);
    parts_.release(q_, turn);
    results.push_back(exponents(wgmma_wait(b_, {next_flying}, 0)[0], turn + 1));
    return results;
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionGradient& tensors_;
  AttentionParts parts_;
  Ring k_, v_, q_, dout_;
  BufferId stats_ = BufferId::none;
};

}  // namespace

void emit_attention_keys(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                         const AttentionGradient& tensors) {
  Keys(builder, sizes, config, tensors).emit();
}

}  // namespace stepc::sm90
