// The first half of attention's gradient: dQ. A tile is 128 queries of one head, a block 64 keys; each group of warps
// sums dQ of its 64 rows in registers, dQ += dS K with dS = P * (dO V^T - delta). Scores and dP of the next block are
// under way while dS of this one is multiplied. Also leaves what the second half needs of each query.
//
// Products with 64 keys would read as much shared memory in a clock as there is, did their left sides come from there
// too. These stay the same for a tile: kept in registers, they also make room for those of the next tile.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/schedule/sm90/attention.h"
#include "ir/kernel/builder_hopper.h"

namespace stepc::sm90 {
namespace {

using kernel::Index;
using kernel::KernelBuilder;
using kernel::Op;
using kernel::Value;
using kernel::hopper::Major;
using kernel::hopper::wgmma_wait;

class Queries {
 public:
  Queries(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
          const AttentionGradient& tensors)
      : b_(builder), sizes_(sizes), config_(config), tensors_(tensors), parts_(builder, sizes, config) {
    q_ = parts_.ring("q", kAttentionTile, 1);
    dout_ = parts_.ring("dout", kAttentionTile, 1);
    out_ = parts_.ring("out", kAttentionTile, 1);
    k_ = parts_.ring("k", kAttentionBlock, config.stages);
    v_ = parts_.ring("v", kAttentionBlock, config.stages);
    parts_.set_tail(tensors.tail);
  }

  void emit() {
    const int64_t most = 2 * parts_.row_tiles();
    parts_.producer(
        [&] { parts_.for_tiles(most, [&](const AttentionTile& tile, Index done) { return load(tile, done); }); });
    parts_.consumer([&] {
      parts_.for_tiles(most, [&](const AttentionTile& tile, Index done) { return compute(tile, done); });
      parts_.finish_stores();
    });
  }

 private:
  // 64 rows: panels of Q and dO, if they are kept in registers, and what is known of each row.
  struct Rows {
    std::vector<Value> q;
    std::vector<Value> dout;
    QueryStats stats;
    Index token;  // of the first
  };

  Index query_tile(const AttentionTile& tile) { return b_.name("query_tile", parts_.row_tiles() - 1 - tile.rank); }

  // Blocks from the second group's diagonal on, down to the first keys.
  Index load(const AttentionTile& tile, Index done) {
    const Index row_tile = query_tile(tile);
    parts_.fill(out_, tile.wave, tensors_.out, tile, row_tile * kAttentionTile);
    parts_.fill(dout_, tile.wave, tensors_.dout, tile, row_tile * kAttentionTile);
    parts_.fill(q_, tile.wave, tensors_.q, tile, row_tile * kAttentionTile);
    const Index blocks = row_tile * 2 + 2;
    b_.loop("i", 0, blocks, 1, [&](Index i) {
      const Index turn = b_.name("turn", done + i);
      parts_.fill(k_, turn, tensors_.k, tile, (blocks - 1 - i) * kAttentionBlock);
      parts_.fill(v_, turn, tensors_.v, tile, (blocks - 1 - i) * kAttentionBlock);
    });
    return blocks;
  }

  Index compute(const AttentionTile& tile, Index done) {
    const Index row_tile = query_tile(tile);
    const Index token = b_.name("token", row_tile * kAttentionTile + b_.copy() * kAttentionBlock);
    // The first block lies after all queries of the first group.
    b_.when(equal(b_.copy(), 0), [&] {
      parts_.skip(k_, done);
      parts_.skip(v_, done);
    });
    const Index first = b_.name("first", done + 1 - b_.copy());
    const Index rest = b_.name("rest", row_tile * 2 + b_.copy());  // blocks after the diagonal one
    const Rows rows = load_rows(tile, row_tile, token);
    const Value ds = first_block(tile, first, rows);
    const auto end = b_.loop("i", 0, rest, 1, {parts_.zeros(sizes_.dim), ds}, [&](Index i, const auto& carried) {
      return block(tile, b_.name("turn", first + i), rows, carried);
    });
    if (rows.q.empty()) parts_.release(q_, tile.wave);
    if (rows.dout.empty()) parts_.release(dout_, tile.wave);
    const Value flying = add_keys(end[0], end[1], first + rest);
    const Value dq = wgmma_wait(b_, {flying}, 0)[0];
    parts_.release(k_, first + rest);
    parts_.store(parts_.scaled(dq, sizes_.scale), tensors_.dq, tile, token);
    return row_tile * 2 + 2;
  }

  Rows load_rows(const AttentionTile& tile, Index row_tile, Index token) {
    Rows rows;
    rows.token = token;
    const std::vector<Value> out = parts_.load_panels(out_, tile.wave);
    rows.dout = parts_.load_panels(dout_, tile.wave);
    const Value products = parts_.row_products(out, rows.dout);
    parts_.release_loaded(out_, tile.wave);
    if (config_.kept_operands < 2)
      rows.dout.clear();
    else
      parts_.release_loaded(dout_, tile.wave);
    rows.stats = parts_.store_stats(tensors_, tile, row_tile, token, products);
    if (config_.kept_operands < 1) {
      parts_.wait_full(q_, tile.wave);
    } else {
      rows.q = parts_.load_panels(q_, tile.wave);
      parts_.release_loaded(q_, tile.wave);
    }
    return rows;
  }

  // How many products one with these left sides is made of.
  static int64_t products_of(const std::vector<Value>& panels) {
    return std::max<int64_t>(static_cast<int64_t>(panels.size()), 1);
  }

  // The 64 rows times 64 keys, transposed, of the turn.
  Value times_keys(const std::vector<Value>& panels, const Ring& rows, const AttentionTile& tile, const Ring& keys,
                   Index turn) {
    parts_.wait_full(keys, turn);
    Value sum = parts_.zeros(kAttentionBlock);
    if (panels.empty())
      return kernel::hopper::wgmma(b_, sum, parts_.at(rows, tile.wave, b_.copy() * kAttentionBlock), Major::k,
                                   parts_.at(keys, turn), Major::k, sizes_.dim);
    for (size_t panel = 0; panel < panels.size(); ++panel)
      sum = kernel::hopper::wgmma_rs(b_, sum, panels[panel],
                                     b_.ref(keys.tile, {turn % keys.stages, static_cast<int64_t>(panel), 0, 0}),
                                     Major::k, kAttentionBlock);
    return sum;
  }
  Value scores(const AttentionTile& tile, const Rows& rows, Index turn) {
    return times_keys(rows.q, q_, tile, k_, turn);
  }
  Value probability_gradients(const AttentionTile& tile, const Rows& rows, Index turn) {
    return times_keys(rows.dout, dout_, tile, v_, turn);
  }

  Value add_keys(Value dq, Value ds, Index turn) {
    return kernel::hopper::wgmma_rs(b_, dq, ds, parts_.at(k_, turn), Major::mn, kAttentionBlock);
  }

  Value probabilities(Value s, const Rows& rows) {
    const Value lse = b_.splat_column(rows.stats.lse, b_.shape(s));
    return b_.pointwise(Op::exp2, {b_.pointwise(Op::fma, {s, parts_.constant(parts_.scale_base2(), s), lse})});
  }

  Value score_gradients(Value p, Value dp, const Rows& rows) {
    const Value centred = b_.pointwise(Op::sub, {dp, b_.splat_column(rows.stats.delta, b_.shape(dp))});
    return b_.pointwise(Op::mul, {p, centred});
  }

  Value first_block(const AttentionTile& tile, Index turn, const Rows& rows) {
    const Value s_flying = scores(tile, rows, turn);
    const Value dp_flying = probability_gradients(tile, rows, turn);
    const Value s = wgmma_wait(b_, {s_flying}, products_of(rows.dout))[0];
    const Value visible = parts_.hide_future(s, parts_.constant(-std::numeric_limits<double>::infinity(), s), false,
                                             rows.token, rows.token);
    const Value p = probabilities(visible, rows);
    const Value dp = wgmma_wait(b_, {dp_flying}, 0)[0];
    parts_.release(v_, turn);
    return b_.cast(score_gradients(p, dp, rows), Dtype::bf16);
  }

  // dS of turn + 1, and the product of the dS of `turn` with K.
  std::vector<Value> block(const AttentionTile& tile, Index turn, const Rows& rows, const std::vector<Value>& carried) {
    const Value s_flying = scores(tile, rows, turn + 1);
    const Value dp_flying = probability_gradients(tile, rows, turn + 1);
    const Value dq_flying = add_keys(carried[0], carried[1], turn);
    const Value s = wgmma_wait(b_, {s_flying}, products_of(rows.dout) + 1)[0];
    const Value p = probabilities(s, rows);
    const Value dp = wgmma_wait(b_, {dp_flying}, 1)[0];
    parts_.release(v_, turn + 1);
    const Value ds = score_gradients(p, dp, rows);
    const Value dq = wgmma_wait(b_, {dq_flying}, 0)[0];
    parts_.release(k_, turn);
    return {dq, b_.cast(ds, Dtype::bf16)};
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionConfig& config_;
  const AttentionGradient& tensors_;
  AttentionParts parts_;
  Ring q_, dout_, out_, k_, v_;
};

}  // namespace

void emit_attention_queries(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                            const AttentionGradient& tensors) {
  Queries(builder, sizes, config, tensors).emit();
}

}  // namespace stepc::sm90
