// The contraction's loops: blocks of k, row panels, tiles.
#include <algorithm>

#include "compiler/schedule/host/matmul.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Value;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

class MatmulEmitter {
 public:
  MatmulEmitter(KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config,
                const MatmulBuffers& buffers, const MatmulEpilogue& epilogue);
  void emit();

 private:
  // The current block of k.
  struct Depth {
    Index first;  // k
    Index count;
    Index is_first;
    Index is_last;
  };
  void declare_scratch();
  void pack_b(const Depth& depth);
  void pack_a(const Depth& depth);
  void copy_rows(const Depth& depth, Index m, int64_t rows);
  void row_panels(const Depth& depth);
  void row_panel(const Depth& depth, Index m, int64_t rows);
  void tile(const Depth& depth, Index m, int64_t rows, Index n, int64_t cols);
  Value partial_sum(const Depth& depth, const MatmulTile& tile, Index m, Index n, int64_t part);
  void prefetch(const Depth& depth, Index m, Index n);
  std::vector<Index> panel_place(BufferId buffer, Index panel, Index column) const;

  KernelBuilder& b_;
  const MatmulProblem& p_;
  const MatmulConfig& c_;
  const MatmulBuffers& in_;
  const MatmulEpilogue& epilogue_;
  int64_t unit_ = 1;      // elements of k in 32 bits
  int64_t a_panel_ = 16;  // columns of A's panels
  int64_t n_panels_ = 1;  // of one part of a block
  bool one_block_k_ = true;
  BufferId packed_a_ = BufferId::none;
  BufferId packed_b_ = BufferId::none;
  BufferId sums_ = BufferId::none;  // partial sums between blocks of k
  Index batch_, m0_, n0_, rows_, cols_;
};

MatmulEmitter::MatmulEmitter(KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config,
                             const MatmulBuffers& buffers, const MatmulEpilogue& epilogue)
    : b_(builder), p_(problem), c_(config), in_(buffers), epilogue_(epilogue) {
  unit_ = p_.math_dtype == Dtype::bf16 ? 2 : 1;
  n_panels_ = c_.block_n / c_.tile_cols;
  one_block_k_ = p_.k <= c_.block_k;
}

// Units a panel has room for: transposed packs write whole vectors of units.
void MatmulEmitter::declare_scratch() {
  const int64_t deepest = std::min(c_.block_k, std::max<int64_t>(p_.k, 1));
  const int64_t units = round_up((deepest + unit_ - 1) / unit_, 16);
  const auto panels = [&](std::string name, int64_t count, int64_t cols) {
    Shape shape{count, units, cols};
    if (unit_ == 2) shape.push_back(2);
    return b_.shared(std::move(name), p_.math_dtype, std::move(shape));
  };
  packed_b_ = panels("b_panels", p_.parts() * n_panels_, c_.tile_cols);
  if (c_.a_mode == AMode::panels) packed_a_ = panels("a_panels", (c_.block_m + a_panel_ - 1) / a_panel_, a_panel_);
  // A line more than the data, so that the rows do not all fall into one set of the cache.
  if (c_.a_mode == AMode::copied) packed_a_ = b_.shared("a_rows", p_.math_dtype, {c_.tile_rows, (units + 16) * unit_});
  if (!one_block_k_) sums_ = b_.shared("sums", Dtype::f32, {p_.parts(), c_.block_m, round_up(c_.block_n, 64)});
}

std::vector<Index> MatmulEmitter::panel_place(BufferId buffer, Index panel, Index column) const {
  std::vector<Index> at{panel, Index(0), column};
  if (b_.kernel().buffer(buffer).shape.size() == 4) at.emplace_back(0);
  return at;
}

void MatmulEmitter::pack_b(const Depth& depth) {
  for (int64_t part = 0; part < p_.parts(); ++part) {
    const Index n = n0_ + part * p_.columns();
    const std::vector<Index> from =
        p_.transpose_b ? std::vector{batch_, n, depth.first} : std::vector{batch_, depth.first, n};
    b_.pack(b_.ref(in_.b, from), b_.ref(packed_b_, panel_place(packed_b_, part * n_panels_, 0)), depth.count, cols_,
            p_.transpose_b);
  }
}

void MatmulEmitter::pack_a(const Depth& depth) {
  if (c_.a_mode != AMode::panels) return;
  b_.pack(b_.ref(in_.a, {batch_, depth.first, m0_}), b_.ref(packed_a_, panel_place(packed_a_, 0, 0)), depth.count,
          rows_, false);
}

// Rows of A as the product wants them; an odd last pair is completed by the zeros that `load` gives.
void MatmulEmitter::copy_rows(const Depth& depth, Index m, int64_t rows) {
  const int64_t step = c_.lanes * unit_;
  b_.loop("row", 0, rows, 1, [&](Index row) {
    b_.loop("k", 0, depth.count, step, [&](Index k) {
      const Value loaded =
          b_.load_first(in_.a, {batch_, m0_ + m + row, depth.first + k}, {step}, min(depth.count - k, step));
      b_.store(b_.cast(loaded, p_.math_dtype), packed_a_, {row, k});
    });
  });
}

// Reads what is needed next while the tile computes: the next row panel of A, or the next block of k.
void MatmulEmitter::prefetch(const Depth& depth, Index m, Index n) {
  const int64_t tile = n_panels_;
  if (!p_.transpose_a) {
    const int64_t share = (c_.tile_rows + tile - 1) / tile;
    const Index row = m0_ + m + c_.tile_rows + n / c_.tile_cols * share;
    b_.when(less(n, (c_.tile_rows + share - 1) / share * c_.tile_cols), [&] {
      b_.prefetch(b_.ref(in_.a, {batch_, row, depth.first}), {share, std::min(c_.block_k, p_.k)}, false);
    });
    return;
  }
  if (one_block_k_) return;
  const int64_t tiles = c_.block_m / c_.tile_rows * tile;
  const int64_t share = (c_.block_k + tiles - 1) / tiles;
  const Index row = depth.first + c_.block_k + (m / c_.tile_rows * tile + n / c_.tile_cols) * share;
  b_.when(less(row, p_.k), [&] {
    b_.prefetch(b_.ref(in_.a, {batch_, row, m0_}), {share, std::min(c_.block_m, p_.m)}, false);
    if (p_.transpose_b) return;
    for (int64_t part = 0; part < p_.parts(); ++part)
      b_.prefetch(b_.ref(in_.b, {batch_, row, n0_ + part * p_.columns()}), {share, std::min(c_.block_n, p_.columns())},
                  false);
  });
}

Value MatmulEmitter::partial_sum(const Depth& depth, const MatmulTile& tile, Index m, Index n, int64_t part) {
  const Shape shape{tile.rows, round_up(tile.columns, c_.lanes)};
  const auto zero = [&] { return std::vector{b_.constant(0, Dtype::f32, shape)}; };
  const auto so_far = [&] { return std::vector{b_.load(sums_, {part, m, n}, shape)}; };
  const Value start = b_.branch(depth.is_first, zero, so_far)[0];
  const Index panel = part * n_panels_ + n / c_.tile_cols;
  const kernel::Ref b = b_.ref(packed_b_, panel_place(packed_b_, panel, 0));
  switch (c_.a_mode) {
    case AMode::direct: return b_.mma(start, b_.ref(in_.a, {batch_, m0_ + m, depth.first}), b, depth.count, "rows");
    case AMode::copied: return b_.mma(start, b_.ref(packed_a_, {0, 0}), b, depth.count, "rows");
    case AMode::panels:
      return b_.mma(start, b_.ref(packed_a_, panel_place(packed_a_, m / a_panel_, m % a_panel_)), b, depth.count,
                    "panel");
  }
  STEPC_UNREACHABLE("a mode");
}

void MatmulEmitter::tile(const Depth& depth, Index m, int64_t rows, Index n, int64_t cols) {
  MatmulTile tile{batch_, m0_ + m, n0_ + n, rows, cols, {}};
  prefetch(depth, m, n);
  if (epilogue_.before) b_.when(depth.is_last, [&] { epilogue_.before(tile); });
  for (int64_t part = 0; part < p_.parts(); ++part) tile.sums.push_back(partial_sum(depth, tile, m, n, part));
  const auto keep = [&] {
    for (int64_t part = 0; part < p_.parts(); ++part)
      b_.store(tile.sums[static_cast<size_t>(part)], sums_, {part, m, n});
    return std::vector<Value>{};
  };
  const auto finish = [&] {
    epilogue_.store(tile);
    return std::vector<Value>{};
  };
  b_.branch(depth.is_last, finish, keep);
}

void MatmulEmitter::row_panel(const Depth& depth, Index m, int64_t rows) {
  if (c_.a_mode == AMode::copied) copy_rows(depth, m, rows);
  const int64_t tail = p_.columns() % c_.tile_cols;
  const Index full = cols_ / c_.tile_cols * c_.tile_cols;
  b_.loop("n", 0, full, c_.tile_cols, [&](Index n) { tile(depth, m, rows, n, c_.tile_cols); });
  if (tail != 0) b_.when(less(full, cols_), [&] { tile(depth, m, rows, full, tail); });
}

void MatmulEmitter::row_panels(const Depth& depth) {
  const int64_t tail = p_.m % c_.tile_rows;
  const Index full = rows_ / c_.tile_rows * c_.tile_rows;
  b_.loop("m", 0, full, c_.tile_rows, [&](Index m) { row_panel(depth, m, c_.tile_rows); });
  if (tail != 0) b_.when(less(full, rows_), [&] { row_panel(depth, full, tail); });
}

void MatmulEmitter::emit() {
  declare_scratch();
  const int64_t n_tasks = c_.n_tasks(p_);
  const int64_t m_tasks = c_.m_tasks(p_);
  const auto share = [&](int64_t extent, int64_t block, Index first) {
    return extent % block == 0 ? Index(block) : min(extent - first, block);
  };
  batch_ = b_.name("batch", b_.task() / (n_tasks * m_tasks));
  m0_ = b_.name("m0", b_.task() / n_tasks % m_tasks * c_.block_m);
  n0_ = b_.name("n0", b_.task() % n_tasks * c_.block_n);
  rows_ = b_.name("rows", share(p_.m, c_.block_m, m0_));
  cols_ = b_.name("cols", share(p_.columns(), c_.block_n, n0_));
  b_.loop("k0", 0, std::max<int64_t>(p_.k, 1), c_.block_k, [&](Index k0) {
    Depth depth{k0, one_block_k_ ? Index(p_.k) : share(p_.k, c_.block_k, k0), Index(1), Index(1)};
    if (!one_block_k_) {
      depth.is_first = equal(k0, 0);
      depth.is_last = less(p_.k - 1, k0 + c_.block_k);
    }
    pack_b(depth);
    pack_a(depth);
    row_panels(depth);
  });
}

}  // namespace

void emit_matmul(KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config,
                 const MatmulBuffers& buffers, const MatmulEpilogue& epilogue) {
  MatmulEmitter(builder, problem, config, buffers, epilogue).emit();
}

}  // namespace stepc::host
