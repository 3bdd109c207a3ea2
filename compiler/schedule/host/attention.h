// What attention and its gradient share on the host: sizes, tiles, and where a head's rows lie. Both see qkv
// as a matrix [B * T, 3 * H * d] and outputs as [B * T, H * d], so that a head is a run of columns.
#pragma once

#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/attention_group.h"

namespace stepc::host {

struct AttentionTiles {
  int64_t lanes = 16;
  int64_t rows = 8;   // of an accumulator tile
  int64_t cols = 32;  // two vectors
};

AttentionTiles attention_tiles(const HostTarget& target);
inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Helpers for one (batch, head) of one kernel.
class AttentionHead {
 public:
  AttentionHead(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionTiles& tiles, Index batch,
                Index head)
      : b_(builder), sizes_(sizes), tiles_(tiles), batch_(batch), head_(head) {}

  Index row(Index token) const { return batch_ * sizes_.tokens + token; }
  // The head's first column of q (part 0), k (1) or v (2) in qkv, and in outputs.
  Index column(int64_t part) const { return (head_ + part * sizes_.heads) * sizes_.dim; }

  // Panels for mma: [columns / cols][units][cols][2].
  BufferId panels(const std::string& name, int64_t depth, int64_t columns, int64_t cols);
  // B[k, n] = source[token n, element k] of the first `tokens` tokens.
  void pack_transposed(BufferId source, int64_t part, BufferId target, Index tokens);
  // B[k, n] = source[token first + k, element n].
  void pack_rows(BufferId source, int64_t part, BufferId target, Index first, Index tokens);
  // A scratch matrix of bf16 rows: an even number of lines apart would crowd one set of the cache.
  BufferId rows_buffer(const std::string& name, int64_t rows, int64_t columns);
  // Copies a head's rows [first, first + count) to scratch; elements from `dim` on are 0 up to a whole vector.
  void copy_rows(BufferId source, int64_t part, BufferId target, Index first, Index count);
  // The tile's product: A's rows are in scratch from row `m` on.
  Fragment multiply(Fragment acc, BufferId a, Index m, BufferId b_panels, Index column, Index depth);
  // Stores columns [column, column + count) of rows from token `first` on, rounded to bf16.
  void store_rows(Fragment tile, BufferId target, int64_t part, Index first, int64_t column, int64_t count);
  Fragment zeros(int64_t rows, int64_t cols) { return b_.constant(0, Dtype::f32, {rows, cols}); }
  // Runs `body(column, cols, width)` for the tiles of the head's elements: `cols` of them, computed as `width`.
  void for_elements(const std::function<void(int64_t column, int64_t cols, int64_t width)>& body) const;
  // Runs `body(m, rows)` for the tiles of rows [0, count), where count is a multiple of the tile's rows or ends
  // at the last token.
  void for_row_tiles(Index count, const std::function<void(Index m, int64_t rows)>& body);

 private:
  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionTiles& tiles_;
  Index batch_;
  Index head_;
};

}  // namespace stepc::host
