// Attention: a task is a block of queries of one head. K and V are packed once a task; then groups of rows go
// through scores, softmax and the product with V, with the group's scores whole in scratch, so no rescaling
// is needed. Tiles above the diagonal are not computed when the attention is causal.
#include "compiler/schedule/host/attention.h"

#include <algorithm>
#include <limits>

namespace stepc::host {
namespace {

constexpr int64_t kGroup = 32;  // query rows that share a sweep over the keys
constexpr int64_t kWantedTasks = 16;
constexpr int64_t kLargestBlock = 256;  // queries of a task: packing K and V is paid once for them
constexpr int64_t kSmallestBlock = 64;

int64_t pick_block(const AttentionSizes& sizes) {
  const auto tasks = [&](int64_t block) { return sizes.batch * sizes.heads * ((sizes.tokens + block - 1) / block); };
  int64_t block = kLargestBlock;
  while (block > kSmallestBlock && tasks(block) < kWantedTasks) block /= 2;
  return block;
}

class Attention {
 public:
  Attention(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionTiles& tiles, Index batch, Index head)
      : b_(builder), sizes_(sizes), tiles_(tiles), head_(builder, sizes, tiles, batch, head), batch_(batch), h_(head) {}

  BufferId qkv = BufferId::none;
  BufferId out = BufferId::none;
  BufferId lse = BufferId::none;  // or none: nobody reads it
  void emit(Index first_query, int64_t block);

 private:
  void group(Index first, Index rows);
  void score_tiles(Index first, Index rows);
  void softmax_row(Index first, Index row);
  void store_lse(Index first, Index rows);
  void output_tiles(Index first, Index rows);
  // Keys that the tile of queries from `query` on may see.
  Index keys_of(Index query) const {
    return sizes_.causal ? min(query + tiles_.rows, sizes_.tokens) : Index(sizes_.tokens);
  }
  Fragment visible_lanes(Index visible, Index column) {
    const Fragment limit = b_.splat(b_.from_index(visible - column), {tiles_.cols});
    return b_.pointwise(kernel::Op::less, {b_.lane({tiles_.cols}), limit});
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionTiles& tiles_;
  AttentionHead head_;
  Index batch_, h_;
  BufferId k_panels_ = BufferId::none;
  BufferId v_panels_ = BufferId::none;
  BufferId q_rows_ = BufferId::none;
  BufferId scores_ = BufferId::none;
  BufferId stats_ = BufferId::none;  // the largest score of each row, and its sum of exponentials
  BufferId p_rows_ = BufferId::none;
};

void Attention::emit(Index first_query, int64_t block) {
  const int64_t tokens = sizes_.tokens;
  k_panels_ = head_.panels("k_panels", sizes_.dim, tokens, tiles_.cols);
  v_panels_ = head_.panels("v_panels", tokens, sizes_.dim, tiles_.cols);
  q_rows_ = head_.rows_buffer("q_rows", kGroup, sizes_.dim);
  scores_ = b_.shared("scores", Dtype::f32, {kGroup, round_up(std::max<int64_t>(tokens, 1), 32) + 16});
  stats_ = b_.shared("stats", Dtype::f32, {2, kGroup});
  p_rows_ = head_.rows_buffer("p_rows", kGroup, tokens);
  const Index end = tokens % block == 0 ? first_query + block : min(first_query + block, tokens);
  const Index keys = sizes_.causal ? end : Index(tokens);
  head_.pack_transposed(qkv, 1, k_panels_, keys);
  head_.pack_rows(qkv, 2, v_panels_, 0, keys);
  b_.loop("first", first_query, end, kGroup, [&](Index first) {
    const Index rows = tokens % kGroup == 0 ? Index(kGroup) : b_.name("rows", min(end - first, kGroup));
    group(first, rows);
  });
}

void Attention::group(Index first, Index rows) {
  head_.copy_rows(qkv, 0, q_rows_, first, rows);
  score_tiles(first, rows);
  b_.loop("row", 0, rows, 1, [&](Index row) { softmax_row(first, row); });
  store_lse(first, rows);
  output_tiles(first, rows);
}

// Rows past the last token hold whatever was there; nothing of theirs is read.
void Attention::score_tiles(Index first, Index rows) {
  const Shape shape{tiles_.rows, tiles_.cols};
  b_.loop("m", 0, rows, tiles_.rows, [&](Index m) {
    b_.loop("n", 0, keys_of(first + m), tiles_.cols, [&](Index n) {
      const Fragment scores =
          head_.multiply(head_.zeros(tiles_.rows, tiles_.cols), q_rows_, m, k_panels_, n, sizes_.dim);
      const Fragment scale = b_.constant(sizes_.scale, Dtype::f32, shape);
      b_.store(b_.pointwise(kernel::Op::mul, {scores, scale}), scores_, {m, n});
    });
  });
}

// Three sweeps: the largest score, the sum of exponentials, the probabilities.
void Attention::softmax_row(Index first, Index row) {
  const Shape lanes{tiles_.cols};
  const Index query = b_.name("query", first + row);
  const Index visible = sizes_.causal ? query + 1 : Index(sizes_.tokens);
  const Index keys = keys_of(first + row / tiles_.rows * tiles_.rows);
  const Fragment lowest = b_.constant(-std::numeric_limits<double>::infinity(), Dtype::f32, lanes);
  const Fragment zero = b_.constant(0, Dtype::f32, lanes);
  const auto sweep = [&](Fragment start, const std::function<Fragment(Index, Fragment)>& step) {
    return b_.loop("c", 0, keys, tiles_.cols, {start},
                   [&](Index c, const std::vector<Fragment>& carried) { return std::vector{step(c, carried[0])}; })[0];
  };
  const Fragment largest_lanes = sweep(lowest, [&](Index c, Fragment so_far) {
    const Fragment x =
        b_.pointwise(kernel::Op::select, {visible_lanes(visible, c), b_.load(scores_, {row, c}, lanes), lowest});
    return b_.pointwise(kernel::Op::max, {so_far, x});
  });
  const Fragment largest = b_.reduce(kernel::Op::reduce_max, largest_lanes);
  const Fragment largest_wide = b_.splat(largest, lanes);
  const Fragment sum_lanes = sweep(zero, [&](Index c, Fragment so_far) {
    const Fragment below = b_.pointwise(kernel::Op::sub, {b_.load(scores_, {row, c}, lanes), largest_wide});
    const Fragment e =
        b_.pointwise(kernel::Op::select, {visible_lanes(visible, c), b_.pointwise(kernel::Op::exp, {below}), zero});
    b_.store(e, scores_, {row, c});
    return b_.pointwise(kernel::Op::add, {so_far, e});
  });
  const Fragment sum = b_.reduce(kernel::Op::reduce_sum, sum_lanes);
  const Fragment inverse = b_.pointwise(kernel::Op::div, {b_.constant(1, Dtype::f32), sum});
  const Fragment inverse_wide = b_.splat(inverse, lanes);
  b_.loop("c", 0, keys, tiles_.cols, [&](Index c) {
    const Fragment p = b_.pointwise(kernel::Op::mul, {b_.load(scores_, {row, c}, lanes), inverse_wide});
    b_.store(b_.cast(p, Dtype::bf16), p_rows_, {row, c});
  });
  b_.store(largest, stats_, {0, row});
  b_.store(sum, stats_, {1, row});
}

void Attention::store_lse(Index first, Index rows) {
  if (lse == BufferId::none) return;
  const Fragment log = b_.pointwise(kernel::Op::log, {b_.load(stats_, {1, 0}, {kGroup})});
  const Fragment sum = b_.pointwise(kernel::Op::add, {b_.load(stats_, {0, 0}, {kGroup}), log});
  b_.store_first(sum, lse, {batch_, h_, first}, rows);
}

void Attention::output_tiles(Index first, Index rows) {
  if (out == BufferId::none) return;
  head_.for_row_tiles(rows, [&](Index m, int64_t tile_rows) {
    head_.for_elements([&](int64_t column, int64_t cols, int64_t width) {
      const Fragment tile =
          head_.multiply(head_.zeros(tile_rows, width), p_rows_, m, v_panels_, column, keys_of(first + m));
      head_.store_rows(tile, out, 0, first + m, column, cols);
    });
  });
}

}  // namespace

Result<Draft> build_attention(const Problem& problem) {
  const AttentionGroup group = analyse_attention(problem.program, problem.group);
  const AttentionSizes& sizes = group.sizes;
  const AttentionTiles tiles = attention_tiles(problem.target);
  const int64_t block = pick_block(sizes);
  const int64_t blocks = (sizes.tokens + block - 1) / block;
  const int64_t tasks = sizes.batch * sizes.heads * blocks;
  Problem shaped = problem;
  shaped.shapes[group.operands[0]] = {sizes.batch * sizes.tokens, 3 * sizes.heads * sizes.dim};
  shaped.shapes[group.results[0]] = {sizes.batch * sizes.tokens, sizes.heads * sizes.dim};
  return build_kernel(shaped, [&](KernelBuilder& builder, Region&) {
    builder.set_grid(tasks);
    builder.begin_role("main");
    const auto result = [&](size_t i) {
      const auto at = std::find(problem.results.begin(), problem.results.end(), group.results[i]);
      if (at == problem.results.end()) return BufferId::none;
      return static_cast<BufferId>(problem.operands.size() + static_cast<size_t>(at - problem.results.begin()));
    };
    if (tasks == 0) return Built{0, "nothing to do"};
    const Index batch = builder.name("batch", builder.task() / (blocks * sizes.heads));
    const Index head = builder.name("head", builder.task() / blocks % sizes.heads);
    Attention attention(builder, sizes, tiles, batch, head);
    attention.qkv = static_cast<BufferId>(0);
    attention.out = result(0);
    attention.lse = result(1);
    attention.emit(builder.name("first_query", builder.task() % blocks * block), block);
    return Built{tasks,
                 fmt::format("blocks of {} queries, groups of {}, tile {}x{}", block, kGroup, tiles.rows, tiles.cols)};
  });
}

}  // namespace stepc::host
