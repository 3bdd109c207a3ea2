// The second half of attention's gradient, or nearly all of it: dK and dV, and in the atomic form dQ. A tile is 128
// keys of one head, a block 64 queries. Scores are computed transposed, keys by queries, so that P and dS leave the
// accumulators as register operands of dV += P^T dO and dK += dS^T Q, which each group of warps sums for its 64 keys.
// The scores of the next block are under way while these products are.
//
// For dQ, dS goes through shared memory once. Where heads have two panels of columns each group multiplies the dS of
// both groups with its panel of K; else each multiplies its own. The f32 additions of 64 columns of 64 queries are
// made by the second-level cache, by a bulk reduction.
#include <limits>
#include <optional>

#include "compiler/schedule/sm90/attention.h"
#include "ir/kernel/builder_hopper.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Op;
using kernel::Ref;
using kernel::Value;
using kernel::hopper::Major;
using kernel::hopper::wgmma_wait;

constexpr int64_t kStatsBytes = kStatsRows * kAttentionBlock * kFloatBytes;
constexpr int64_t kSumBytes = kAttentionBlock * kAttentionBlock * kFloatBytes;

// The way of dS to dQ: two turns of dS in shared memory, so that a group may write the next while the other still
// multiplies the last.
class QuerySums {
 public:
  QuerySums(KernelBuilder& builder, AttentionParts& parts, BufferId workspace)
      : b_(builder), parts_(parts), workspace_(workspace) {
    written_ = b_.barriers("ds_full", is_shared() ? kTurns : kGroups * kTurns,
                           is_shared() ? kGroups * kAttentionWarps : kAttentionWarps);
    ds_ = b_.shared("ds", Dtype::bf16, {kTurns, kGroups, kAttentionBlock, kAttentionBlock}, 128);
    out_ = b_.shared("dq", Dtype::f32, {kGroups, kAttentionBlock / kSumColumns, kAttentionBlock, kSumColumns});
  }

  bool is_shared() const { return parts_.panels() == kGroups; }

  // dS of the group's keys, transposed.
  void put(Value ds, Index turn) {
    kernel::hopper::stmatrix(b_, ds, b_.ref(ds_, {turn % kTurns, b_.copy(), 0, 0}), true);
    kernel::hopper::fence_async(b_);
    pass(turn);
  }
  void pass(Index turn) { kernel::hopper::arrive(b_, written(turn)); }  // a turn without dS
  // Starts dS K: 64 queries, the group's 64 columns. A group that is here has multiplied the dS of the turn before,
  // which is why its place may be written again by whoever has waited here once more.
  Value multiply(const Ring& k, Index turn) {
    kernel::hopper::wait(b_, written(turn), turn / kTurns % 2);
    const Index keys = is_shared() ? Index(0) : b_.copy() * kAttentionBlock;
    const Index panel = is_shared() ? b_.copy() : Index(0);
    return kernel::hopper::wgmma(
        b_, parts_.zeros(kAttentionBlock), b_.ref(ds_, {turn % kTurns, is_shared() ? Index(0) : b_.copy(), 0, 0}),
        Major::k, b_.ref(k.tile, {0, panel, keys, 0}), Major::mn, is_shared() ? kAttentionTile : kAttentionBlock);
  }
  void add(Value dq, const AttentionTile& tile, Index block) {
    const Index row = (is_shared() ? b_.copy() * kAttentionBlock : Index(0)) + kStatsRows;
    const Ref sums = b_.ref(workspace_, {tile.batch_head, block, row, 0});
    const Index barrier = b_.copy() + kStageBarrier;
    b_.once([&] { kernel::hopper::bulk_wait(b_, 0); });
    kernel::hopper::sync(b_, barrier, kAttentionWarps);
    for (int64_t column = 0; column < kAttentionBlock; column += kSumColumns)
      b_.store(kernel::hopper::columns(b_, dq, column, kSumColumns), out_, {b_.copy(), column / kSumColumns, 0, 0});
    kernel::hopper::fence_async(b_);
    kernel::hopper::sync(b_, barrier, kAttentionWarps);
    b_.once([&] {
      kernel::hopper::bulk_reduce(b_, b_.ref(out_, {b_.copy(), 0, 0, 0}), sums, kSumBytes);
      kernel::hopper::bulk_commit(b_);
    });
  }

 private:
  static constexpr int64_t kTurns = 2;
  static constexpr int64_t kStageBarrier = 1 + kGroups;  // after those of stores

  Ref written(Index turn) { return b_.ref(written_, {turn % kTurns + (is_shared() ? Index(0) : b_.copy() * kTurns)}); }

  KernelBuilder& b_;
  AttentionParts& parts_;
  BufferId workspace_;
  BufferId ds_ = BufferId::none;
  BufferId written_ = BufferId::none;  // dS of a turn, by all whose dS is multiplied together
  BufferId out_ = BufferId::none;
};

class Keys {
 public:
  Keys(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
       const AttentionGradient& tensors, GradientForm form)
      : b_(builder), sizes_(sizes), tensors_(tensors), parts_(builder, sizes, config) {
    k_ = parts_.ring("k", kAttentionTile, 1);
    v_ = parts_.ring("v", kAttentionTile, 1);
    q_ = parts_.ring("q", kAttentionBlock, config.stages, kStatsBytes);
    dout_ = parts_.ring("dout", kAttentionBlock, config.stages);
    stats_ = b_.shared("stat", Dtype::f32, {config.stages, kStatsRows, kAttentionBlock});
    parts_.set_tail(tensors.tail);
    if (form == GradientForm::atomic) sums_.emplace(b_, parts_, tensors_.workspace);
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
      kernel::hopper::bulk_load(b_, b_.ref(tensors_.workspace, {tile.batch_head, block, 0, 0}),
                                b_.ref(stats_, {turn % q_.stages, 0, 0}), parts_.full(q_, turn), kStatsBytes);
      parts_.fill(dout_, turn, tensors_.dout, tile, block * kAttentionBlock);
    });
    return blocks() - first;
  }

  Index compute(const AttentionTile& tile, Index done) {
    const Index token = tile.rank * kAttentionTile + b_.copy() * kAttentionBlock;
    parts_.wait_full(k_, tile.wave);
    // The first block lies before all keys of the second group.
    b_.when(equal(b_.copy(), 1), [&] { skip_first(tile, done); });
    const Index first = b_.name("first", done + b_.copy());
    const Index last = b_.name("last", done + blocks() - 1 - tile.rank * 2);
    const Value s = exponents(wgmma_wait(b_, {scores(tile, first)}, 0)[0], first);
    const Value visible =
        parts_.hide_future(s, parts_.constant(-std::numeric_limits<double>::infinity(), s), true, token, token);
    parts_.wait_full(v_, tile.wave);
    const std::vector<Value> initial{parts_.zeros(sizes_.dim), parts_.zeros(sizes_.dim), visible};
    auto end = b_.loop("i", 0, last - first, 1, initial, [&](Index i, const std::vector<Value>& carried) {
      return any_block(tile, done, b_.name("turn", first + i), carried, true);
    });
    if (!sums_) parts_.release(k_, tile.wave);
    end = any_block(tile, done, last, end, false);
    if (sums_) parts_.release(k_, tile.wave);
    store(tile, end[0], end[1], token);
    return blocks() - tile.rank * 2;
  }

  // What a tail reads for dK is asked for before dV's way to memory is waited for.
  void store(const AttentionTile& tile, Value dk, Value dv, Index token) {
    const std::vector<Value> dv_panels = parts_.tail_panels(dv, tensors_.dv, tile, token);
    if (dv_panels.empty()) {
      parts_.store(dv, tensors_.dv, tile, token);
      return parts_.store(parts_.scaled(dk, sizes_.scale), tensors_.dk, tile, token);
    }
    const std::vector<Value> dk_panels = parts_.tail_panels(parts_.scaled(dk, sizes_.scale), tensors_.dk, tile, token);
    parts_.store(dv_panels, tensors_.dv, tile, token);
    parts_.store(dk_panels, tensors_.dk, tile, token);
  }

  // Its dS is 0. What the first group's makes of the second group's columns of dQ is left.
  void skip_first(const AttentionTile& tile, Index done) {
    parts_.skip(q_, done);
    parts_.skip(dout_, done);
    if (!sums_) return;
    if (!sums_->is_shared()) return sums_->pass(done);
    sums_->put(b_.constant(0, Dtype::bf16, {kAttentionBlock, kAttentionBlock}), done);
    sums_->add(wgmma_wait(b_, {sums_->multiply(k_, done)}, 0)[0], tile, tile.rank * 2);
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
  std::vector<Value> any_block(const AttentionTile& tile, Index done, Index turn, const std::vector<Value>& carried,
                               bool more) {
    return sums_ ? block_with_queries(tile, tile.rank * 2 + turn - done, turn, carried, more)
                 : block(tile, turn, carried, more);
  }

  struct Products {
    Value dk_flying, dv_flying;
    Value ds;
  };
  Products multiply(const AttentionTile& tile, Index turn, const std::vector<Value>& carried, bool more) {
    Products made;
    parts_.wait_full(dout_, turn);
    const Value dp_flying =
        kernel::hopper::wgmma(b_, parts_.zeros(kAttentionBlock), parts_.at(v_, tile.wave, b_.copy() * kAttentionBlock),
                              Major::k, parts_.at(dout_, turn), Major::k, sizes_.dim);
    const Value p = b_.pointwise(Op::exp2, {carried[2]});
    made.dv_flying = kernel::hopper::wgmma_rs(b_, carried[1], b_.cast(p, Dtype::bf16), parts_.at(dout_, turn),
                                              Major::mn, kAttentionBlock);
    const Value dp = wgmma_wait(b_, {dp_flying}, 1)[0];
    if (!more) parts_.release(v_, tile.wave);
    const Value ds = b_.pointwise(Op::mul, {p, b_.pointwise(Op::sub, {dp, stats(turn, 1, dp)})});
    made.ds = b_.cast(ds, Dtype::bf16);
    if (sums_) sums_->put(made.ds, turn);
    made.dk_flying = kernel::hopper::wgmma_rs(b_, carried[0], made.ds, parts_.at(q_, turn), Major::mn, kAttentionBlock);
    return made;
  }

  std::vector<Value> block(const AttentionTile& tile, Index turn, const std::vector<Value>& carried, bool more) {
    const auto [dk_flying, dv_flying, ds] = multiply(tile, turn, carried, more);
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

  // The same with dQ, which begins after the next scores: by then the other group has written its dS too, unless it is
  // far behind. dV is complete before that: with all products under way at once, registers would run out.
  std::vector<Value> block_with_queries(const AttentionTile& tile, Index block, Index turn,
                                        const std::vector<Value>& carried, bool more) {
    const Products flying = multiply(tile, turn, carried, more);
    const Value dv = wgmma_wait(b_, {flying.dv_flying}, 1)[0];
    parts_.release(dout_, turn);
    const Value next_flying = more ? scores(tile, turn + 1) : Value{};
    const Value dq_flying = sums_->multiply(k_, turn);
    std::vector<Value> results{wgmma_wait(b_, {flying.dk_flying}, more ? 2 : 1)[0], dv};
    parts_.release(q_, turn);
    if (more) results.push_back(exponents(wgmma_wait(b_, {next_flying}, 1)[0], turn + 1));
    sums_->add(wgmma_wait(b_, {dq_flying}, 0)[0], tile, block);
    return results;
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionGradient& tensors_;
  AttentionParts parts_;
  Ring k_, v_, q_, dout_;
  BufferId stats_ = BufferId::none;
  std::optional<QuerySums> sums_;  // in the atomic form
};

}  // namespace

void emit_attention_keys(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                         const AttentionGradient& tensors, GradientForm form) {
  Keys(builder, sizes, config, tensors, form).emit();
}

}  // namespace stepc::sm90
