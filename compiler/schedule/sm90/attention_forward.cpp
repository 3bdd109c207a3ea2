// Attention: a tile is 128 queries of one head, a block 128 keys. Each group of warps keeps 64 rows of the output and
// their softmax statistics in registers. The scores of the next block are under way while the product of this one's
// probabilities with V is, and the exponentials of the next run beside the latter.
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

// What is known of 64 rows after some blocks of keys.
struct Softmax {
  Value largest;  // [64], of the scores before scaling
  Value sums;     // [64, 8]: each thread's own columns
};
constexpr int64_t kSumColumns = 8;

class Forward {
 public:
  Forward(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
          const AttentionForward& tensors)
      : b_(builder), sizes_(sizes), tensors_(tensors), parts_(builder, sizes, config) {
    q_ = parts_.ring("q", kAttentionTile, 1);
    k_ = parts_.ring("k", kAttentionTile, config.stages);
    v_ = parts_.ring("v", kAttentionTile, config.stages);
  }

  void emit() {
    parts_.producer([&] {
      parts_.for_tiles(parts_.row_tiles(), [&](const AttentionTile& tile, Index done) { return load(tile, done); });
    });
    parts_.consumer([&] {
      parts_.for_tiles(parts_.row_tiles(), [&](const AttentionTile& tile, Index done) { return compute(tile, done); });
      parts_.finish_stores();
    });
  }

 private:
  // Blocks go from the diagonal to the first keys.
  Index query_tile(const AttentionTile& tile) { return b_.name("query_tile", parts_.row_tiles() - 1 - tile.rank); }

  Index load(const AttentionTile& tile, Index done) {
    const Index last = query_tile(tile);
    parts_.fill(k_, done, tensors_.k, tile, last * kAttentionTile);
    parts_.fill(q_, tile.wave, tensors_.q, tile, last * kAttentionTile);
    b_.loop("i", 0, last, 1, [&](Index i) {
      const Index turn = b_.name("turn", done + i);
      parts_.fill(k_, turn + 1, tensors_.k, tile, (last - 1 - i) * kAttentionTile);
      parts_.fill(v_, turn, tensors_.v, tile, (last - i) * kAttentionTile);
    });
    parts_.fill(v_, done + last, tensors_.v, tile, 0);
    return last + 1;
  }

  Value scores(const AttentionTile& tile, Index turn) {
    parts_.wait_full(k_, turn);
    return kernel::hopper::wgmma(b_, parts_.zeros(kAttentionTile),
                                 parts_.at(q_, tile.wave, b_.copy() * kAttentionBlock), Major::k, parts_.at(k_, turn),
                                 Major::k, sizes_.dim);
  }

  Value add_values(Value out, Value p, Index turn) {
    parts_.wait_full(v_, turn);
    return kernel::hopper::wgmma_rs(b_, out, p, parts_.at(v_, turn), Major::mn, kAttentionTile);
  }

  Index compute(const AttentionTile& tile, Index done) {
    const Index last = query_tile(tile);
    parts_.wait_full(q_, tile.wave);
    Value s = wgmma_wait(b_, {scores(tile, done)}, 0)[0];
    parts_.release(k_, done);
    s = parts_.hide_future(s, parts_.constant(-std::numeric_limits<double>::infinity(), s), false,
                           last * kAttentionTile + b_.copy() * kAttentionBlock, last * kAttentionTile);
    Softmax first{b_.reduce(Op::reduce_max, s), {}};
    Value p = exponentials(s, first.largest);
    first.sums = column_sums(p);
    const std::vector<Value> initial{parts_.zeros(sizes_.dim), b_.cast(p, Dtype::bf16), first.largest, first.sums};
    const auto end = b_.loop("i", 0, last, 1, initial, [&](Index i, const std::vector<Value>& carried) {
      return block(tile, b_.name("turn", done + i), carried);
    });
    parts_.release(q_, tile.wave);
    finish(tile, end, done + last, last * kAttentionTile + b_.copy() * kAttentionBlock);
    return last + 1;
  }

  // Scores of turn + 1, and the product of the probabilities of `turn` with V.
  std::vector<Value> block(const AttentionTile& tile, Index turn, const std::vector<Value>& carried) {
    const Value s_flying = scores(tile, turn + 1);
    const Value out_flying = add_values(carried[0], carried[1], turn);
    const Value s = wgmma_wait(b_, {s_flying}, 1)[0];
    parts_.release(k_, turn + 1);
    const Value largest = b_.pointwise(Op::max, {carried[2], b_.reduce(Op::reduce_max, s)});
    const Value shrink = exponentials(carried[2], largest);
    const Value p = exponentials(s, largest);
    const Value sums =
        b_.pointwise(Op::fma, {carried[3], b_.splat_column(shrink, {kAttentionBlock, kSumColumns}), column_sums(p)});
    const Value out = wgmma_wait(b_, {out_flying}, 0)[0];
    parts_.release(v_, turn);
    const Value rescaled = b_.pointwise(Op::mul, {out, b_.splat_column(shrink, b_.shape(out))});
    return {rescaled, b_.cast(p, Dtype::bf16), largest, sums};
  }

  void finish(const AttentionTile& tile, const std::vector<Value>& end, Index turn, Index token) {
    const Value flying = add_values(end[0], end[1], turn);
    const Value sum = b_.named("sum", b_.reduce(Op::reduce_sum, end[3]));
    const Value inverse = b_.pointwise(Op::div, {parts_.constant(1, sum), sum});
    const Value out = wgmma_wait(b_, {flying}, 0)[0];
    parts_.release(v_, turn);
    if (tensors_.lse) {
      const Value log = b_.pointwise(Op::log, {sum});
      const Value lse = b_.pointwise(Op::fma, {end[2], parts_.constant(sizes_.scale, sum), log});
      parts_.store_rows(b_.named("lse", lse), *tensors_.lse, tile, token);
    }
    parts_.store(b_.pointwise(Op::mul, {out, b_.splat_column(inverse, b_.shape(out))}), tensors_.out, tile, token);
  }

  // 2^((x - largest) * scale), with a row's largest.
  Value exponentials(Value x, Value largest) {
    const Value negated = parts_.scaled(largest, -parts_.scale_base2());
    const Value offset = b_.shape(x).size() == 2 ? b_.splat_column(negated, b_.shape(x)) : negated;
    return b_.pointwise(Op::exp2, {b_.pointwise(Op::fma, {x, parts_.constant(parts_.scale_base2(), x), offset})});
  }

  // Adds columns that one thread holds.
  Value column_sums(Value p) {
    while (b_.shape(p)[1] > kSumColumns) {
      const int64_t half = b_.shape(p)[1] / 2;
      p = b_.pointwise(Op::add, {kernel::hopper::columns(b_, p, 0, half), kernel::hopper::columns(b_, p, half, half)});
    }
    return p;
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionForward& tensors_;
  AttentionParts parts_;
  Ring q_, k_, v_;
};

}  // namespace

void emit_attention_forward(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                            const AttentionForward& tensors) {
  Forward(builder, sizes, config, tensors).emit();
}

}  // namespace stepc::sm90
