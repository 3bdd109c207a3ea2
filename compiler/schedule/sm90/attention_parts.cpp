// Tiles, rings and copies that all attention kernels use.
#include <algorithm>
#include <cmath>

#include "compiler/schedule/sm90/attention.h"
#include "compiler/schedule/sm90/attention_tail.h"
#include "ir/kernel/builder_hopper.h"
#include "ir/support/check.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Op;
using kernel::Ref;
using kernel::Value;

constexpr int64_t kSwizzle = 128;
constexpr int64_t kElementBytes = 2;

}  // namespace

Shape attention_workspace_shape(const AttentionSizes& sizes, GradientForm form) {
  const int64_t tiles = (sizes.tokens + kAttentionTile - 1) / kAttentionTile;
  const int64_t sum_rows = form == GradientForm::atomic ? sizes.dim : 0;
  return {sizes.batch * sizes.heads, tiles * kGroups, kStatsRows + sum_rows, kAttentionBlock};
}

AttentionParts::AttentionParts(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config)
    : b_(builder), sizes_(sizes), config_(config) {
  STEPC_CHECK(sizes.dim % kAttentionBlock == 0, "heads of {}", sizes.dim);
  b_.set_grid(config.tasks);
}

double AttentionParts::scale_base2() const { return sizes_.scale * std::log2(std::exp(1.0)); }

// ---- memory
// ----------------------------------------------------------------------------------------------------------

BufferId AttentionParts::map_of(const HeadTensor& tensor) {
  const auto known = maps_.find(tensor.buffer);
  if (known != maps_.end()) return known->second;
  Shape box{1, kAttentionBlock, 1, kAttentionBlock};
  if (tensor.part) box = {1, kAttentionBlock, 1, 1, kAttentionBlock};
  const std::string name = b_.kernel().buffer(tensor.buffer).name + "_map";
  return maps_[tensor.buffer] = b_.tensor_map(name, tensor.buffer, box, kSwizzle);
}

std::vector<Index> AttentionParts::place(const HeadTensor& tensor, const AttentionTile& tile, Index token,
                                         int64_t panel) const {
  if (tensor.part) return {tile.batch, token, *tensor.part, tile.head, panel * kAttentionBlock};
  return {tile.batch, token, tile.head, panel * kAttentionBlock};
}

Ring AttentionParts::ring(const std::string& name, int64_t rows, int64_t stages, int64_t more_bytes) {
  const BufferId tile = b_.shared(name, Dtype::bf16, {stages, panels(), rows, kAttentionBlock}, kSwizzle);
  Ring ring = ring_of(tile, name, stages, rows * sizes_.dim * kElementBytes + more_bytes);
  ring.rows = rows;
  return ring;
}

Ring AttentionParts::ring_of(BufferId tile, const std::string& name, int64_t stages, int64_t bytes) {
  Ring ring{tile, {}, {}, 0, stages, bytes};
  ring.full = b_.barriers(name + "_full", stages, 1);
  ring.empty = b_.barriers(name + "_empty", stages, kGroups * kAttentionWarps);
  return ring;
}

Ref AttentionParts::full(const Ring& ring, Index turn) { return b_.ref(ring.full, {turn % ring.stages}); }
Ref AttentionParts::empty(const Ring& ring, Index turn) { return b_.ref(ring.empty, {turn % ring.stages}); }
Ref AttentionParts::at(const Ring& ring, Index turn, Index row) {
  return b_.ref(ring.tile, {turn % ring.stages, 0, row, 0});
}

// ---- roles
// -----------------------------------------------------------------------------------------------------------

void AttentionParts::producer(const std::function<void()>& body) {
  b_.begin_role("producer", kAttentionWarps, static_cast<int>(config_.producer_registers));
  b_.once(body);
}

void AttentionParts::consumer(const std::function<void()>& body) {
  b_.begin_role("consumer", kAttentionWarps, static_cast<int>(config_.consumer_registers), kGroups);
  body();
}

void AttentionParts::for_tiles(int64_t most_turns, const std::function<Index(const AttentionTile&, Index)>& body) {
  const int64_t tiles = sizes_.batch * sizes_.heads * row_tiles();
  const Index waves = ceil_div(tiles - b_.task(), config_.tasks);
  const int64_t most_before = (tiles - 1) / config_.tasks * most_turns;
  b_.loop("wave", 0, waves, 1, {b_.constant(0, Dtype::i32)}, [&](Index wave, const std::vector<Value>& carried) {
    const Index done = b_.to_index(carried[0], {0, most_before}, "done");
    const Index next = done + body(tile_at(wave), done);
    return std::vector<Value>{b_.from_index(next)};
  });
}

// Heads in groups, the longest tiles of a group first. Where waves turn back, the last, which may be short, does not.
AttentionTile AttentionParts::tile_at(Index wave) {
  const int64_t heads = config_.group_heads, tiles = sizes_.batch * sizes_.heads * row_tiles();
  const Index backwards = config_.turns_back ? wave % 2 * less(wave, tiles / config_.tasks) : Index(0);
  const Index column = b_.task() + backwards * (config_.tasks - 1 - b_.task() * 2);
  const Index number = b_.name("number", wave * config_.tasks + column);
  const Index in_group = number % (heads * row_tiles());
  const Index bh = b_.name("bh", number / (heads * row_tiles()) * heads + in_group % heads);
  return {wave, b_.name("batch", bh / sizes_.heads), b_.name("head", bh % sizes_.heads), bh,
          b_.name("rank", in_group / heads)};
}

// ---- producer
// --------------------------------------------------------------------------------------------------------

void AttentionParts::begin_fill(const Ring& ring, Index turn) {
  kernel::hopper::wait(b_, empty(ring, turn), (turn / ring.stages + 1) % 2);
  kernel::hopper::expect(b_, full(ring, turn), ring.bytes);
}

void AttentionParts::load(const Ring& ring, Index turn, const HeadTensor& source, const AttentionTile& tile,
                          Index token) {
  for (int64_t panel = 0; panel < panels(); ++panel)
    for (int64_t row = 0; row < ring.rows; row += kAttentionBlock)
      kernel::hopper::tma_load(b_, b_.ref(map_of(source), place(source, tile, token + row, panel)),
                               b_.ref(ring.tile, {turn % ring.stages, panel, row, 0}), full(ring, turn));
}

void AttentionParts::fill(const Ring& ring, Index turn, const HeadTensor& source, const AttentionTile& tile,
                          Index token) {
  begin_fill(ring, turn);
  load(ring, turn, source, tile, token);
}

// ---- consumer
// --------------------------------------------------------------------------------------------------------

void AttentionParts::wait_full(const Ring& ring, Index turn) {
  kernel::hopper::wait(b_, full(ring, turn), turn / ring.stages % 2);
}

void AttentionParts::release(const Ring& ring, Index turn) { kernel::hopper::arrive(b_, empty(ring, turn)); }

void AttentionParts::release_loaded(const Ring& ring, Index turn) {
  kernel::hopper::fence_async(b_);
  release(ring, turn);
}

// The wait keeps this group from releasing a turn before the other has released the one before it.
void AttentionParts::skip(const Ring& ring, Index turn) {
  wait_full(ring, turn);
  release(ring, turn);
}

// Compares positions, not distances: sums with a tile's position are not worth keeping for the next tile, so that no
// register is taken by every column of the mask while products run.
Value AttentionParts::hide_future(Value scores, Value hidden_score, bool transposed, Index first_row,
                                  Index first_column) {
  const Shape shape = b_.shape(scores);
  const Value row = b_.pointwise(Op::add, {b_.lane(shape, 0), b_.from_index(first_row)});
  const Value column = b_.pointwise(Op::add, {b_.lane(shape, 1), b_.from_index(first_column)});
  const Value hidden = transposed ? b_.pointwise(Op::less, {column, row}) : b_.pointwise(Op::less, {row, column});
  return b_.pointwise(Op::select, {hidden, hidden_score, scores});
}

std::vector<Value> AttentionParts::tail_panels(Value gradient, const HeadTensor& target, const AttentionTile& where,
                                               Index token) {
  return tail_ ? tail_->panels(gradient, *target.part, where, token) : std::vector<Value>{};
}

void AttentionParts::store(const std::vector<Value>& made, const HeadTensor& target, const AttentionTile& where,
                           Index token) {
  store_panels(target, where, token, [&](BufferId out) {
    for (size_t panel = 0; panel < made.size(); ++panel)
      kernel::hopper::stmatrix(b_, made[panel], b_.ref(out, {b_.copy(), static_cast<int64_t>(panel), 0, 0}));
  });
}

void AttentionParts::store(Value tile, const HeadTensor& target, const AttentionTile& where, Index token) {
  if (tail_) return store(tail_panels(tile, target, where, token), target, where, token);
  const Value rounded = b_.cast(tile, Dtype::bf16);
  store_panels(target, where, token, [&](BufferId out) {
    for (int64_t panel = 0; panel < panels(); ++panel)
      kernel::hopper::stmatrix(b_, kernel::hopper::columns(b_, rounded, panel * kAttentionBlock, kAttentionBlock),
                               b_.ref(out, {b_.copy(), panel, 0, 0}));
  });
}

// One thread stores, so that it can wait for its own copies before the tile's place is written again.
void AttentionParts::store_panels(const HeadTensor& target, const AttentionTile& where, Index token,
                                  const std::function<void(BufferId)>& write) {
  if (out_ == BufferId::none)
    out_ = b_.shared("out_tile", Dtype::bf16, {kGroups, panels(), kAttentionBlock, kAttentionBlock}, kSwizzle);
  const BufferId map = map_of(target);
  const Index barrier = b_.copy() + 1;
  b_.once([&] { kernel::hopper::bulk_wait(b_, 0); });
  kernel::hopper::sync(b_, barrier, kAttentionWarps);
  write(out_);
  kernel::hopper::fence_async(b_);
  kernel::hopper::sync(b_, barrier, kAttentionWarps);
  b_.once([&] {
    for (int64_t panel = 0; panel < panels(); ++panel)
      kernel::hopper::tma_store(b_, b_.ref(out_, {b_.copy(), panel, 0, 0}),
                                b_.ref(map, place(target, where, token, panel)));
    kernel::hopper::bulk_commit(b_);
  });
}

void AttentionParts::finish_stores() {
  b_.once([&] { kernel::hopper::bulk_wait(b_, 0); });
}

std::vector<Value> AttentionParts::load_panels(const Ring& ring, Index turn) {
  wait_full(ring, turn);
  std::vector<Value> loaded;
  for (int64_t panel = 0; panel < panels(); ++panel)
    loaded.push_back(b_.load(ring.tile, {turn % ring.stages, panel, b_.copy() * kAttentionBlock, 0},
                             {kAttentionBlock, kAttentionBlock}));
  return loaded;
}

Value AttentionParts::row_products(const std::vector<Value>& out, const std::vector<Value>& dout) {
  Value products = zeros(kAttentionBlock);
  for (size_t panel = 0; panel < out.size(); ++panel)
    products = b_.pointwise(Op::fma, {b_.cast(out[panel], Dtype::f32), b_.cast(dout[panel], Dtype::f32), products});
  return products;
}

QueryStats AttentionParts::store_stats(const AttentionGradient& tensors, const AttentionTile& tile, Index row_tile,
                                       Index token, Value products) {
  QueryStats stats;
  stats.delta = b_.named("delta", b_.reduce(Op::reduce_sum, products));
  const Value lse = load_rows(tensors.lse, tile, token);
  stats.lse = b_.named("minus_lse", scaled(lse, -std::log2(std::exp(1.0))));
  const Index block = row_tile * kGroups + b_.copy();
  b_.store(stats.lse, tensors.workspace, {tile.batch_head, block, 0, 0});
  b_.store(stats.delta, tensors.workspace, {tile.batch_head, block, 1, 0});
  return stats;
}

Value AttentionParts::constant(double value, Value like) { return b_.constant(value, Dtype::f32, b_.shape(like)); }
Value AttentionParts::scaled(Value tile, double factor) {
  return b_.pointwise(Op::mul, {tile, constant(factor, tile)});
}
Value AttentionParts::zeros(int64_t columns) { return b_.constant(0, Dtype::f32, {kAttentionBlock, columns}); }

Value AttentionParts::load_rows(BufferId buffer, const AttentionTile& tile, Index token) {
  const auto load = [&] {
    const std::vector<Index> at{tile.batch, tile.head, token};
    return std::vector{b_.load_first(buffer, at, {kAttentionBlock}, min(sizes_.tokens - token, kAttentionBlock))};
  };
  const auto none = [&] { return std::vector{b_.constant(0, Dtype::f32, {kAttentionBlock})}; };
  return b_.branch(less(token, sizes_.tokens), load, none)[0];
}

void AttentionParts::store_rows(Value rows, BufferId buffer, const AttentionTile& tile, Index token) {
  b_.when(less(token, sizes_.tokens), [&] {
    b_.store_first(rows, buffer, {tile.batch, tile.head, token}, min(sizes_.tokens - token, kAttentionBlock));
  });
}

}  // namespace stepc::sm90
