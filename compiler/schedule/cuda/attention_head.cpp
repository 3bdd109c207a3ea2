// Where a head's rows lie, and the copies, products and stores that attention and its gradient have in common.
#include <algorithm>

#include "compiler/schedule/cuda/attention.h"

namespace stepc::cuda {
namespace {

constexpr int64_t kPanel = 64;  // elements

}  // namespace

BufferId AttentionHead::tiles(std::string name, Shape leading) {
  Shape shape = std::move(leading);
  shape.insert(shape.end(), {(sizes_.dim + kPanel - 1) / kPanel, kAttentionBlock, kPanel});
  return b_.shared(std::move(name), Dtype::bf16, std::move(shape), 128);
}

kernel::Ref AttentionHead::tile(BufferId tiles, std::vector<Index> at, Index row) {
  at.insert(at.end(), {Index(0), row, Index(0)});
  return b_.ref(tiles, std::move(at));
}

void AttentionHead::copy(BufferId from, int64_t part, Index first, BufferId tiles, const std::vector<Index>& to) {
  for (int64_t column = 0; column < sizes_.dim; column += kPanel) {
    const int64_t columns = std::min(kPanel, sizes_.dim - column);
    std::vector<Index> at = to;
    at.insert(at.end(), {Index(column / kPanel), Index(0), Index(0)});
    gpu::copy_async(b_, b_.ref(from, {batch_, first, head_ + part * sizes_.heads, column}),
                    b_.ref(tiles, std::move(at)), {kAttentionBlock, columns, 1}, rest(first), columns);
  }
}

Value AttentionHead::scores(kernel::Ref rows, kernel::Ref columns, int64_t count) {
  return gpu::mma_sync(b_, zero(count), std::move(rows), gpu::Major::k, std::move(columns), gpu::Major::k, sizes_.dim);
}

Value AttentionHead::weighted_sum(Value acc, Value weights, kernel::Ref rows) {
  return gpu::mma_sync_rs(b_, acc, b_.cast(weights, Dtype::bf16), std::move(rows), gpu::Major::mn,
                          b_.shape(weights)[1]);
}

Value AttentionHead::times(Value tile, double factor) {
  return b_.pointwise(kernel::Op::mul, {tile, b_.constant(factor, Dtype::f32, b_.shape(tile))});
}

Value AttentionHead::lane_less(int64_t columns, int64_t axis, Index at, int64_t other_axis, Index other_at) {
  const Shape shape{kAttentionBlock, columns};
  const Value shift = b_.splat(b_.from_index(other_at - at), shape);
  const Value other = b_.pointwise(kernel::Op::add, {b_.lane(shape, other_axis), shift});
  return b_.pointwise(kernel::Op::less, {b_.lane(shape, axis), other});
}

Value AttentionHead::column_below(Index column, int64_t limit) {
  const Shape shape{kAttentionBlock, kAttentionBlock};
  return b_.pointwise(kernel::Op::less, {b_.lane(shape), b_.splat(b_.from_index(limit - column), shape)});
}

Value AttentionHead::load_rows(BufferId source, Index first, int64_t part, int64_t count) {
  return b_.load_first(source, {batch_ + part * sizes_.batch, head_, first}, {count}, rest(first, count));
}

void AttentionHead::store_rows(Value rows, BufferId target, Index first, int64_t part) {
  b_.store_first(rows, target, {batch_ + part * sizes_.batch, head_, first}, rest(first));
}

void AttentionHead::store_tile(Value tile, BufferId target, int64_t part, Index first) {
  b_.store_tile(b_.cast(tile, Dtype::bf16), target, {batch_, first, head_ + part * sizes_.heads, 0}, 1, sizes_.dim,
                rest(first));
}

Value AttentionHead::load_tile(BufferId source, Index first, int64_t column, int64_t count) {
  const Value tile =
      b_.load_tile(source, {batch_, first, head_, column}, {kAttentionBlock, count}, 1, count, rest(first));
  return b_.cast(tile, Dtype::f32);
}

}  // namespace stepc::cuda
