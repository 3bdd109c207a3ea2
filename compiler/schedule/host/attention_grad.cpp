// The gradient of attention: a task is one head, so that dK and dV are summed in a fixed order. Groups of
// queries pass one after the other: probabilities and score gradients of the group against all visible keys
// go to scratch as bf16 rows; dQ follows from the rows, and, packed once more with keys as columns, they add
// the group's share to dK and dV, which stay in scratch as f32 until the end.
#include <algorithm>

#include "compiler/schedule/host/attention.h"

namespace stepc::host {
namespace {

constexpr int64_t kGroup = 64;     // queries
constexpr int64_t kKeyPanel = 16;  // columns of the panels with keys as A's rows

class AttentionGrad {
 public:
  AttentionGrad(KernelBuilder& builder, const AttentionSizes& sizes, const AttentionTiles& tiles, Index batch,
                Index head)
      : b_(builder), sizes_(sizes), tiles_(tiles), head_(builder, sizes, tiles, batch, head), batch_(batch), h_(head) {}

  BufferId qkv = BufferId::none;
  BufferId out = BufferId::none;
  BufferId lse = BufferId::none;
  BufferId dout = BufferId::none;
  BufferId dqkv = BufferId::none;
  void emit();

 private:
  void declare();
  void group(Index first, Index rows);
  void row_sums(Index first, Index rows);
  void score_tile(Index first, Index m, Index n);
  void score_row(Index first, Index m, Index n, Index r);
  void clear_hidden(Index m, Index from, Index to);
  void query_tiles(Index first, Index rows);
  void key_tiles(Index first, Index rows, Index keys);
  void store_keys();
  Index keys_of(Index query, int64_t rows) const {
    return sizes_.causal ? min(query + rows, sizes_.tokens) : Index(sizes_.tokens);
  }
  Fragment scaled(Fragment tile) {
    const Fragment scale = b_.constant(sizes_.scale, Dtype::f32, b_.shape(tile));
    return b_.pointwise(kernel::Op::mul, {tile, scale});
  }

  KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionTiles& tiles_;
  AttentionHead head_;
  Index batch_, h_;
  int64_t padded_keys_ = 0;
  // Of all tokens: K and V as the right sides of scores, dP and dQ.
  BufferId k_by_key_ = BufferId::none;
  BufferId v_by_key_ = BufferId::none;
  BufferId k_by_element_ = BufferId::none;
  // Of the group.
  BufferId q_rows_ = BufferId::none;
  BufferId dout_rows_ = BufferId::none;
  BufferId q_panels_ = BufferId::none;
  BufferId dout_panels_ = BufferId::none;
  BufferId delta_ = BufferId::none;  // per query: sum of out * dout
  BufferId p_rows_ = BufferId::none;
  BufferId ds_rows_ = BufferId::none;
  BufferId p_panels_ = BufferId::none;
  BufferId ds_panels_ = BufferId::none;
  BufferId score_tile_ = BufferId::none;  // scores, then dP
  BufferId dkv_ = BufferId::none;         // f32 sums of dK, then dV
};

void AttentionGrad::declare() {
  const int64_t tokens = sizes_.tokens;
  padded_keys_ = round_up(tokens, 32);
  k_by_key_ = head_.panels("k_by_key", sizes_.dim, tokens, tiles_.cols);
  v_by_key_ = head_.panels("v_by_key", sizes_.dim, tokens, tiles_.cols);
  k_by_element_ = head_.panels("k_by_element", tokens, sizes_.dim, tiles_.cols);
  q_rows_ = head_.rows_buffer("q_rows", kGroup, sizes_.dim);
  dout_rows_ = head_.rows_buffer("dout_rows", kGroup, sizes_.dim);
  q_panels_ = head_.panels("q_panels", kGroup, sizes_.dim, tiles_.cols);
  dout_panels_ = head_.panels("dout_panels", kGroup, sizes_.dim, tiles_.cols);
  delta_ = b_.shared("delta", Dtype::f32, {kGroup});
  p_rows_ = head_.rows_buffer("p_rows", kGroup, padded_keys_);
  ds_rows_ = head_.rows_buffer("ds_rows", kGroup, padded_keys_);
  p_panels_ = head_.panels("p_panels", kGroup, padded_keys_, kKeyPanel);
  ds_panels_ = head_.panels("ds_panels", kGroup, padded_keys_, kKeyPanel);
  score_tile_ = b_.shared("score_tile", Dtype::f32, {2, tiles_.rows, tiles_.cols});
  dkv_ = b_.shared("dkv", Dtype::f32, {2, padded_keys_, round_up(sizes_.dim, tiles_.cols)});
}

void AttentionGrad::emit() {
  declare();
  const int64_t tokens = sizes_.tokens;
  head_.pack_transposed(qkv, 1, k_by_key_, tokens);
  head_.pack_transposed(qkv, 2, v_by_key_, tokens);
  head_.pack_rows(qkv, 1, k_by_element_, 0, tokens);
  b_.loop("part", 0, 2, 1, [&](Index part) {
    b_.loop("key", 0, tokens, tiles_.rows, [&](Index key) {
      head_.for_elements([&](int64_t column, int64_t, int64_t width) {
        b_.store(head_.zeros(tiles_.rows, width), dkv_, {part, key, column});
      });
    });
  });
  b_.loop("first", 0, tokens, kGroup, [&](Index first) {
    group(first, tokens % kGroup == 0 ? Index(kGroup) : b_.name("rows", min(tokens - first, kGroup)));
  });
  store_keys();
}

void AttentionGrad::group(Index first, Index rows) {
  const Index keys = sizes_.causal ? b_.name("keys", min(first + kGroup, sizes_.tokens)) : Index(sizes_.tokens);
  head_.copy_rows(qkv, 0, q_rows_, first, rows);
  head_.copy_rows(dout, 0, dout_rows_, first, rows);
  head_.pack_rows(qkv, 0, q_panels_, first, rows);
  head_.pack_rows(dout, 0, dout_panels_, first, rows);
  row_sums(first, rows);
  b_.loop("m", 0, rows, tiles_.rows, [&](Index m) {
    const Index seen = keys_of(first + m, tiles_.rows);
    b_.loop("n", 0, seen, tiles_.cols, [&](Index n) { score_tile(first, m, n); });
    clear_hidden(m, (seen + (tiles_.cols - 1)) / tiles_.cols * tiles_.cols, keys);
  });
  query_tiles(first, rows);
  key_tiles(first, rows, keys);
}

void AttentionGrad::row_sums(Index first, Index rows) {
  const int64_t width = tiles_.cols;
  b_.loop("row", 0, rows, 1, [&](Index r) {
    Fragment sum = b_.constant(0, Dtype::f32, {width});
    for (int64_t c = 0; c < sizes_.dim; c += width) {
      const Index count = std::min(width, sizes_.dim - c);
      const std::vector<Index> at{head_.row(first + r), head_.column(0) + c};
      const Fragment x = b_.cast(b_.load_first(out, at, {width}, count), Dtype::f32);
      const Fragment y = b_.cast(b_.load_first(dout, at, {width}, count), Dtype::f32);
      sum = b_.pointwise(kernel::Op::add, {sum, b_.pointwise(kernel::Op::mul, {x, y})});
    }
    b_.store(b_.reduce(kernel::Op::reduce_sum, sum), delta_, {r});
  });
}

// Scores and dP of one tile, row by row to P and dS. Rows past the last token come out as 0, so that they add
// nothing to dK and dV.
void AttentionGrad::score_tile(Index first, Index m, Index n) {
  const auto product = [&](BufferId a, BufferId b) {
    return head_.multiply(head_.zeros(tiles_.rows, tiles_.cols), a, m, b, n, sizes_.dim);
  };
  b_.store(product(q_rows_, k_by_key_), score_tile_, {0, 0, 0});
  b_.store(product(dout_rows_, v_by_key_), score_tile_, {1, 0, 0});
  const int64_t rows = tiles_.rows;
  const Index inside = sizes_.tokens % rows == 0 ? Index(rows) : min(sizes_.tokens - first - m, rows);
  b_.loop("r", 0, inside, 1, [&](Index r) { score_row(first, m, n, r); });
}

void AttentionGrad::score_row(Index first, Index m, Index n, Index r) {
  using kernel::Op;
  const Shape lanes{tiles_.cols};
  const Index query = first + m + r;
  const Index visible = sizes_.causal ? query + 1 : Index(sizes_.tokens);
  const Fragment scale = b_.constant(sizes_.scale, Dtype::f32, lanes);
  const Fragment score = b_.load(score_tile_, {0, r, 0}, lanes);
  const Fragment minus_lse = b_.pointwise(Op::neg, {b_.splat(b_.load(lse, {batch_, h_, query}, {}), lanes)});
  const Fragment everywhere = b_.pointwise(Op::exp, {b_.pointwise(Op::fma, {score, scale, minus_lse})});
  const Fragment limit = b_.splat(b_.from_index(visible - n), lanes);
  const Fragment shown = b_.pointwise(Op::less, {b_.lane(lanes), limit});
  const Fragment p = b_.pointwise(Op::select, {shown, everywhere, b_.constant(0, Dtype::f32, lanes)});
  const Fragment delta = b_.splat(b_.load(delta_, {m + r}, {}), lanes);
  const Fragment dp = b_.pointwise(Op::sub, {b_.load(score_tile_, {1, r, 0}, lanes), delta});
  // A hidden key's dP may be anything, infinite even.
  const Fragment ds =
      b_.pointwise(Op::select, {shown, b_.pointwise(Op::mul, {p, dp}), b_.constant(0, Dtype::f32, lanes)});
  b_.store(b_.cast(p, Dtype::bf16), p_rows_, {m + r, n});
  b_.store(b_.cast(ds, Dtype::bf16), ds_rows_, {m + r, n});
}

// Keys of the group that this tile of queries does not see.
void AttentionGrad::clear_hidden(Index m, Index from, Index to) {
  if (!sizes_.causal) return;
  const Fragment zero = b_.constant(0, Dtype::bf16, {tiles_.rows, tiles_.cols});
  b_.loop("n", from, to, tiles_.cols, [&](Index n) {
    b_.store(zero, p_rows_, {m, n});
    b_.store(zero, ds_rows_, {m, n});
  });
}

void AttentionGrad::query_tiles(Index first, Index rows) {
  head_.for_row_tiles(rows, [&](Index m, int64_t tile_rows) {
    head_.for_elements([&](int64_t column, int64_t cols, int64_t width) {
      const Fragment tile = head_.multiply(head_.zeros(tile_rows, width), ds_rows_, m, k_by_element_, column,
                                           keys_of(first + m, tile_rows));
      head_.store_rows(scaled(tile), dqkv, 0, first + m, column, cols);
    });
  });
}

// A causal tile of keys begins with its first query, where that is in the group.
void AttentionGrad::key_tiles(Index first, Index rows, Index keys) {
  b_.pack(b_.ref(ds_rows_, {0, 0}), b_.ref(ds_panels_, {0, 0, 0, 0}), rows, keys, false);
  b_.pack(b_.ref(p_rows_, {0, 0}), b_.ref(p_panels_, {0, 0, 0, 0}), rows, keys, false);
  b_.loop("key", 0, keys, tiles_.rows, [&](Index key) {
    const Index hidden = sizes_.causal ? b_.name("hidden", max(key - first, 0) / 2 * 2) : Index(0);
    head_.for_elements([&](int64_t column, int64_t, int64_t width) {
      for (int64_t part = 0; part < 2; ++part) {
        const BufferId a = part == 0 ? ds_panels_ : p_panels_;
        const BufferId b = part == 0 ? q_panels_ : dout_panels_;
        const Fragment so_far = b_.load(dkv_, {part, key, column}, {tiles_.rows, width});
        const Fragment sum = b_.mma(so_far, b_.ref(a, {key / kKeyPanel, hidden / 2, key % kKeyPanel, 0}),
                                    b_.ref(b, {column / tiles_.cols, hidden / 2, 0, 0}), rows - hidden, "panel");
        b_.store(sum, dkv_, {part, key, column});
      }
    });
  });
}

void AttentionGrad::store_keys() {
  head_.for_row_tiles(sizes_.tokens, [&](Index key, int64_t rows) {
    head_.for_elements([&](int64_t column, int64_t cols, int64_t width) {
      const Fragment dk = b_.load(dkv_, {0, key, column}, {rows, width});
      const Fragment dv = b_.load(dkv_, {1, key, column}, {rows, width});
      head_.store_rows(scaled(dk), dqkv, 1, key, column, cols);
      head_.store_rows(dv, dqkv, 2, key, column, cols);
    });
  });
}

}  // namespace

Result<Draft> build_attention_grad(const Problem& problem) {
  const AttentionGroup group = analyse_attention(problem.program, problem.group);
  STEPC_TRY(check_nothing_follows(problem.program, problem.group, group));
  const AttentionSizes& sizes = group.sizes;
  const AttentionTiles tiles = attention_tiles(problem.target);
  const int64_t tasks = sizes.batch * sizes.heads * std::min<int64_t>(sizes.tokens, 1);
  const int64_t rows = sizes.batch * sizes.tokens;
  const int64_t columns = sizes.heads * sizes.dim;
  Problem shaped = problem;
  shaped.shapes[group.operands[0]] = {rows, 3 * columns};
  shaped.shapes[group.operands[1]] = {rows, columns};
  shaped.shapes[group.operands[2]] = {sizes.batch, sizes.heads, sizes.tokens};
  shaped.shapes[group.operands[3]] = {rows, columns};
  shaped.shapes[group.results[0]] = {rows, 3 * columns};
  return build_kernel(shaped, [&](KernelBuilder& builder, Region&) {
    builder.set_grid(tasks);
    builder.begin_role("main");
    if (tasks == 0) return Built{0, "nothing to do"};
    const auto operand = [&](size_t i) {
      const auto at = std::find(problem.operands.begin(), problem.operands.end(), group.operands[i]);
      return static_cast<BufferId>(at - problem.operands.begin());
    };
    const Index batch = builder.name("batch", builder.task() / sizes.heads);
    const Index head = builder.name("head", builder.task() % sizes.heads);
    AttentionGrad gradient(builder, sizes, tiles, batch, head);
    gradient.qkv = operand(0);
    gradient.out = operand(1);
    gradient.lse = operand(2);
    gradient.dout = operand(3);
    gradient.dqkv = static_cast<BufferId>(problem.operands.size());
    gradient.emit();
    return Built{tasks, fmt::format("groups of {} queries, tile {}x{}", kGroup, tiles.rows, tiles.cols)};
  });
}

}  // namespace stepc::host
