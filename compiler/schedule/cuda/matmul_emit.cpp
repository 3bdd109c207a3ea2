// The contraction's ring of shared tiles and its loop over k.
#include <algorithm>

#include "compiler/schedule/cuda/matmul.h"
#include "ir/kernel/builder_gpu.h"
#include "ir/support/check.h"

namespace stepc::cuda {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Value;
namespace gpu = kernel::gpu;

constexpr int64_t kPanel = 64;  // columns of a bf16 tile
constexpr int64_t kPad = 4;     // columns beside an f32 tile, so that its rows start in different banks

// One operand: rows of its tiles are its own extent (m or n) where k is contiguous in memory, else k.
struct Side {
  BufferId global = BufferId::none;
  BufferId tiles = BufferId::none;  // [stages, share, panels, rows, columns]
  gpu::Major major = gpu::Major::k;
  int64_t extent = 0;  // of the tile along m or n
  int64_t panels = 1;
  int64_t rows = 0;
  int64_t columns = 0;  // of a panel that are filled
};

// A run of neighbouring rows (columns) of an operand that are neighbours in its tile too.
struct Piece {
  Index first;        // in the operand
  int64_t limit = 0;  // rows (columns) at this index and after do not exist
  bool whole = true;  // none of the run is at the limit
  int64_t at = 0;     // in the tile
  int64_t extent = 0;
};

class MatmulEmitter {
 public:
  MatmulEmitter(KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config)
      : b_(builder), p_(problem), c_(config) {}
  MatmulTile product(const MatmulBuffers& buffers);
  MatmulTile split_sum(BufferId parts);

 private:
  Side side(std::string name, BufferId global, bool mn_major, int64_t extent, int64_t shares);
  void place_task();
  void copy_block(Index block, Index stage);
  void copy_piece(const Side& side, const Piece& piece, Index share, Index block, Index stage, bool divided);
  Value multiply(Value acc, Index stage);
  Index end_of_blocks();
  Value sum();
  MatmulTile tile(std::vector<Value> sums);

  bool whole_m() const { return p_.m % c_.block_m == 0; }
  bool whole_n() const { return p_.columns() % (c_.block_n / p_.parts()) == 0; }
  bool is_f32() const { return p_.math_dtype == Dtype::f32; }
  KernelBuilder& b_;
  const MatmulProblem& p_;
  const MatmulConfig& c_;
  Side a_, b_side_;
  BufferId count_ = BufferId::none;
  Index split_, batch_, m0_, n0_, copy_;
};

Side MatmulEmitter::side(std::string name, BufferId global, bool mn_major, int64_t extent, int64_t shares) {
  Side side{.global = global, .major = mn_major ? gpu::Major::mn : gpu::Major::k, .extent = extent};
  side.rows = mn_major ? c_.block_k : extent;
  const int64_t columns = mn_major ? extent : c_.block_k;
  if (is_f32()) {
    side.columns = columns;
    side.tiles = b_.shared(std::move(name), Dtype::f32, {c_.stages, shares, 1, side.rows, columns + kPad});
    return side;
  }
  side.columns = std::min(columns, kPanel);
  side.panels = (columns + kPanel - 1) / kPanel;
  side.tiles = b_.shared(std::move(name), Dtype::bf16, {c_.stages, shares, side.panels, side.rows, kPanel}, 128);
  return side;
}

// Tiles of a group of row blocks go down the group first.
void MatmulEmitter::place_task() {
  const int64_t m_tasks = c_.m_tasks(p_);
  const int64_t n_tasks = c_.n_tasks(p_);
  split_ = b_.name("split", b_.task() / c_.tasks(p_));
  const Index task = b_.task() % c_.tasks(p_);
  batch_ = b_.name("batch", task / (m_tasks * n_tasks));
  const Index in_batch = task % (m_tasks * n_tasks);
  const Index in_group = in_batch % (c_.group * n_tasks);
  m0_ = b_.name("m0", (in_batch / (c_.group * n_tasks) * c_.group + in_group % c_.group) * c_.block_m);
  copy_ = b_.copy();
  n0_ = b_.name("n0", in_group / c_.group * (c_.block_n / p_.parts()) + copy_ * (c_.share() / p_.parts()));
}

// `divided`: every copy of the role brings a part of the rows.
void MatmulEmitter::copy_piece(const Side& side, const Piece& piece, Index share, Index block, Index stage,
                               bool divided) {
  const bool k_major = side.major == gpu::Major::k;
  const Index k0 = block * c_.block_k;
  const int64_t all_rows = k_major ? piece.extent : side.rows;
  const int64_t rows = divided ? all_rows / c_.copies : all_rows;
  const Index row = divided ? copy_ * rows : Index(0);
  // What is left of an operand from an index on, of a run of so many; the run where it is whole.
  const auto rest = [](bool whole, int64_t extent, int64_t limit, Index first) {
    return whole ? Index(extent) : limit - first;
  };
  const bool whole_k = p_.k % c_.block_k == 0;
  for (int64_t panel = 0; panel < (k_major ? 1 : side.panels); ++panel) {
    const int64_t column = panel * kPanel;
    const int64_t columns = k_major ? side.columns : std::min(side.columns, piece.extent - column);
    const Index from_row = (k_major ? piece.first : k0) + row;
    const Index from_column = k_major ? k0 : piece.first + column;
    const Index height = k_major ? rest(piece.whole, rows, piece.limit, from_row) : rest(whole_k, rows, p_.k, from_row);
    const Index width =
        k_major ? rest(whole_k, columns, p_.k, from_column) : rest(piece.whole, columns, piece.limit, from_column);
    gpu::copy_async(
        b_, b_.ref(side.global, {batch_, from_row, from_column}),
        b_.ref(side.tiles, {stage, share, panel, k_major ? row + piece.at : row, Index(k_major ? 0 : piece.at)}),
        {rows, columns}, height, width);
  }
}

// Starts the copies of one block of k.
void MatmulEmitter::copy_block(Index block, Index stage) {
  copy_piece(a_, {m0_, p_.m, whole_m(), 0, a_.extent}, 0, block, stage, c_.copies > 1);
  const int64_t extent = b_side_.extent / p_.parts();
  for (int64_t part = 0; part < p_.parts(); ++part) {
    const int64_t skipped = part * p_.columns();
    copy_piece(b_side_, {n0_ + skipped, skipped + p_.columns(), whole_n(), part * extent, extent}, copy_, block, stage,
               false);
  }
}

// A block of f32 is multiplied in steps, to keep the code short.
Value MatmulEmitter::multiply(Value acc, Index stage) {
  const auto product = [&](Value sum_so_far, Index k, int64_t depth) {
    const auto place = [&](const Side& side, Index share) {
      const bool k_major = side.major == gpu::Major::k;
      return b_.ref(side.tiles, {stage, share, 0, k_major ? Index(0) : k, k_major ? k : Index(0)});
    };
    return gpu::mma_sync(b_, sum_so_far, place(a_, 0), a_.major, place(b_side_, copy_), b_side_.major, depth);
  };
  if (!is_f32()) return product(acc, 0, c_.block_k);
  constexpr int64_t kStep = 8;
  return b_.loop("k", 0, c_.block_k, kStep, {acc},
                 [&](Index k, const std::vector<Value>& sums) { return std::vector{product(sums[0], k, kStep)}; })[0];
}

// The number of blocks of k, but for those that the count promises to be zeros. Splits are where they are without it,
// so that sums are the same to the bit.
Index MatmulEmitter::end_of_blocks() {
  const int64_t blocks = c_.k_blocks(p_);
  if (p_.counted == CountedAxis::none) return blocks;
  const Index count = b_.load_index(count_, {batch_}, {0, INT32_MAX});
  if (p_.counted == CountedAxis::m) return less(m0_, count) * blocks;
  return ceil_div(min(count, p_.k), c_.block_k);
}

// The split's blocks go through the stages in turn; stages - 1 of them are under way ahead of the one multiplied.
Value MatmulEmitter::sum() {
  const int64_t ahead = c_.stages - 1;
  const int64_t share = (c_.k_blocks(p_) + c_.splits - 1) / c_.splits;
  const Index low = b_.name("first_block", split_ * share);
  const Index high = b_.name("end_block", min(split_ * share + share, end_of_blocks()));
  for (int64_t i = 0; i < ahead; ++i) {
    b_.when(less(low + i, high), [&] { copy_block(low + i, i); });
    gpu::copy_commit(b_);
  }
  const Value zero = b_.constant(0, Dtype::f32, {c_.block_m, c_.share()});
  return b_.loop("block", low, high, 1, {zero}, [&](Index block, const std::vector<Value>& sums) {
    gpu::copy_wait(b_, ahead - 1);
    gpu::sync_task(b_);
    b_.when(less(block + ahead, high),
            [&] { copy_block(block + ahead, b_.name("free", (block - low + ahead) % c_.stages)); });
    gpu::copy_commit(b_);
    return std::vector{multiply(sums[0], b_.name("stage", (block - low) % c_.stages))};
  })[0];
}

MatmulTile MatmulEmitter::tile(std::vector<Value> sums) {
  const int64_t columns = c_.share() / p_.parts();
  MatmulTile tile{.split = split_, .batch = batch_, .row = m0_, .column = n0_, .rows = c_.block_m, .columns = columns};
  tile.height = whole_m() ? Index(tile.rows) : p_.m - m0_;
  tile.width = whole_n() ? Index(columns) : p_.columns() - n0_;
  tile.sums = std::move(sums);
  return tile;
}

MatmulTile MatmulEmitter::product(const MatmulBuffers& buffers) {
  a_ = side("a", buffers.a, p_.transpose_a, c_.block_m, 1);
  b_side_ = side("b", buffers.b, !p_.transpose_b, c_.share(), c_.copies);
  count_ = buffers.count;
  place_task();
  const Value acc = sum();
  return tile(p_.halves ? kernel::hopper::halves(b_, acc) : std::vector{acc});
}

MatmulTile MatmulEmitter::split_sum(BufferId parts) {
  place_task();
  MatmulTile made = tile({});
  for (int64_t part = 0; part < p_.parts(); ++part) {
    const Value zero = b_.constant(0, Dtype::f32, {made.rows, made.columns});
    made.sums.push_back(b_.loop("split", 0, c_.splits, 1, {zero}, [&](Index split, const std::vector<Value>& so_far) {
      const Value more = b_.load_tile(parts, {split * p_.batch + batch_, m0_, n0_ + part * p_.columns()},
                                      {made.rows, made.columns}, 1, made.width, made.height);
      return std::vector{b_.pointwise(kernel::Op::add, {so_far[0], more})};
    })[0]);
  }
  return made;
}

}  // namespace

void emit_matmul(KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config,
                 const MatmulBuffers& buffers, const std::function<void(const MatmulTile&)>& epilogue) {
  builder.begin_role("main", config.warps, 0, config.copies);
  epilogue(MatmulEmitter(builder, problem, config).product(buffers));
}

void emit_split_sum(KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config, BufferId parts,
                    const std::function<void(const MatmulTile&)>& epilogue) {
  builder.begin_role("main", config.warps, 0, config.copies);
  epilogue(MatmulEmitter(builder, problem, config).split_sum(parts));
}

}  // namespace stepc::cuda
