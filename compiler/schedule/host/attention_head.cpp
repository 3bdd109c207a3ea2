// Where a head's rows lie, and the copies, tiles and stores that attention and its gradient have in common.
#include "compiler/schedule/host/attention.h"
#include "ir/support/check.h"

namespace stepc::host {

AttentionTiles attention_tiles(const HostTarget& target) {
  const int64_t lanes = target.vector_bytes / 4;
  return {lanes, target.vector_bytes == 64 ? 8 : 4, 2 * lanes};
}

// Transposed packs write whole vectors of units.
BufferId AttentionHead::panels(const std::string& name, int64_t depth, int64_t columns, int64_t cols) {
  const int64_t units = round_up((std::max<int64_t>(depth, 1) + 1) / 2, 16);
  const int64_t count = (std::max<int64_t>(columns, 1) + cols - 1) / cols;
  return b_.shared(name, Dtype::bf16, {count, units, cols, 2});
}

void AttentionHead::pack_transposed(BufferId source, int64_t part, BufferId target, Index tokens) {
  b_.pack(b_.ref(source, {row(0), column(part)}), b_.ref(target, {0, 0, 0, 0}), sizes_.dim, tokens, true);
}

void AttentionHead::pack_rows(BufferId source, int64_t part, BufferId target, Index first, Index tokens) {
  b_.pack(b_.ref(source, {row(first), column(part)}), b_.ref(target, {0, 0, 0, 0}), tokens, sizes_.dim, false);
}

BufferId AttentionHead::rows_buffer(const std::string& name, int64_t rows, int64_t columns) {
  constexpr int64_t kLine = 32;
  return b_.shared(name, Dtype::bf16, {rows, round_up(std::max<int64_t>(columns, 1), 2 * kLine) + kLine});
}

void AttentionHead::copy_rows(BufferId source, int64_t part, BufferId target, Index first, Index count) {
  const int64_t step = 2 * tiles_.lanes;
  b_.loop("row", 0, count, 1, [&](Index r) {
    for (int64_t c = 0; c < sizes_.dim; c += step) {
      const Fragment loaded =
          b_.load_first(source, {row(first + r), column(part) + c}, {step}, std::min(step, sizes_.dim - c));
      b_.store(loaded, target, {r, c});
    }
  });
}

Fragment AttentionHead::multiply(Fragment acc, BufferId a, Index m, BufferId b_panels, Index column, Index depth) {
  const kernel::Ref b = b_.ref(b_panels, {column / tiles_.cols, 0, 0, 0});
  return b_.mma(acc, b_.ref(a, {m, 0}), b, depth, "rows");
}

void AttentionHead::store_rows(Fragment tile, BufferId target, int64_t part, Index first, int64_t at, int64_t count) {
  b_.store_first(b_.cast(tile, Dtype::bf16), target, {row(first), column(part) + at}, count);
}

void AttentionHead::for_elements(const std::function<void(int64_t, int64_t, int64_t)>& body) const {
  for (int64_t column = 0; column < sizes_.dim; column += tiles_.cols) {
    const int64_t cols = std::min(tiles_.cols, sizes_.dim - column);
    body(column, cols, round_up(cols, tiles_.lanes));
  }
}

void AttentionHead::for_row_tiles(Index count, const std::function<void(Index, int64_t)>& body) {
  const int64_t tail = sizes_.tokens % tiles_.rows;
  const Index full = count / tiles_.rows * tiles_.rows;
  b_.loop("m", 0, full, tiles_.rows, [&](Index m) { body(m, tiles_.rows); });
  if (tail != 0) b_.when(less(full, count), [&] { body(full, tail); });
}

}  // namespace stepc::host
