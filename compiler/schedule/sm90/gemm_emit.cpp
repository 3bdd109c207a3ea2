// The roles. All walk the same tiles and count the same turns: turn t uses stage t % stages, and its parity is
// that of t / stages. The first block of k of a tile starts the accumulators, so nothing is cleared; a tile without
// blocks, of zeros by its count, takes no turn and has an epilogue only.
#include <algorithm>

#include "compiler/schedule/sm90/gemm.h"
#include "compiler/schedule/sm90/gemm_handoff.h"
#include "compiler/schedule/sm90/gemm_stream.h"
#include "compiler/schedule/sm90/gemm_tiles.h"
#include "ir/kernel/builder_hopper.h"
#include "ir/support/check.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Ref;
using kernel::Value;
using kernel::hopper::Major;

class GemmEmitter {
 public:
  GemmEmitter(KernelBuilder& builder, const MatmulProblem& problem, const GemmConfig& config,
              const GemmBuffers& buffers, const GemmEpilogue& epilogue)
      : builder_(builder),
        problem_(problem),
        config_(config),
        epilogue_(epilogue),
        tiles_(builder, problem, config, buffers.count) {
    declare(buffers);
  }

  void producer() {
    const int warps = config_.hands_over ? 1 : kGroupWarps;
    builder_.begin_role("producer", warps, static_cast<int>(config_.producer_registers));
    builder_.once([&] {
      tiles_.each_in_step([&](const GemmTile& tile) {
        builder_.when(tile.live,
                      [&] { builder_.loop("k", 0, tile.blocks, 1, [&](Index k) { load(tile, k, tile.turn + k); }); });
        builder_.loop("piece", 0, config_.result_turns, 1, [&](Index piece) { load_results(tile, piece); });
      });
    });
  }

  void consumer() {
    builder_.begin_role("consumer", kGroupWarps, static_cast<int>(config_.consumer_registers), kConsumers);
    tiles_.each([&](const GemmTile& tile) {
      if (handoff_)
        handoff_->put(tile.number, sums_of(tile)[0]);
      else
        store(tile, sums_of(tile));
    });
    if (!handoff_ && epilogue_.finish) epilogue_.finish();
  }

  // The warps that the producer leaves idle take a tile's strips in turn.
  void epilogue() {
    if (!handoff_) return;
    builder_.begin_role("epilogue", 1, 0, kStorers);
    tiles_.each([&](const GemmTile& tile) {
      builder_.loop("strip", builder_.copy(), config_.tile_m / kStripRows, kStorers, [&](Index strip) {
        if (epilogue_.begin_tile) epilogue_.begin_tile();
        handoff_->wait(tile.number, strip);
        store_strip(tile, strip);
        handoff_->release(strip);
      });
    });
    if (epilogue_.finish) epilogue_.finish();
  }

 private:
  void declare(const GemmBuffers& buffers) {
    const int64_t columns = config_.tile_columns(problem_);
    const int64_t shared_columns = columns / config_.cluster;  // of B that one task of the cluster brings
    const Shape box_a = problem_.transpose_a ? Shape{1, kBlockK, kPanel} : Shape{1, config_.tile_m, kBlockK};
    const Shape box_b = problem_.transpose_b ? Shape{1, shared_columns, kBlockK} : Shape{1, kBlockK, kPanel};
    map_a_ = builder_.tensor_map("a_map", buffers.a, box_a, 128);
    map_b_ = builder_.tensor_map("b_map", buffers.b, box_b, 128);
    const int64_t stages = config_.stages, m = config_.tile_m, n = config_.tile_n;
    a_ = builder_.shared("tile_a", Dtype::bf16,
                         problem_.transpose_a ? Shape{stages, m / kPanel, kBlockK, kPanel} : Shape{stages, m, kBlockK},
                         128);
    b_ = builder_.shared("tile_b", Dtype::bf16,
                         problem_.transpose_b ? Shape{stages, n, kBlockK} : Shape{stages, n / kPanel, kBlockK, kPanel},
                         128);
    full_ = builder_.barriers("full", stages, 1);
    empty_ = builder_.barriers("empty", stages, kConsumers * kGroupWarps * config_.cluster);
    if (config_.hands_over) handoff_.emplace(builder_, config_);
    if (epilogue_.stream) epilogue_.stream->declare({stages, a_, b_, full_, empty_});
  }

  Ref full(Index stage) { return builder_.ref(full_, {stage}); }
  Ref empty(Index stage) { return builder_.ref(empty_, {stage}); }
  Index stage_of(Index turn) { return builder_.name("stage", turn % config_.stages); }
  Index parity_of(Index turn) { return turn / config_.stages % 2; }

  // ---- producer ----------------------------------------------------------------------------------------------------
  void load(const GemmTile& tile, Index k, Index turn_number) {
    const Index turn = builder_.name("turn", turn_number);
    const Index stage = stage_of(turn);
    kernel::hopper::wait(builder_, empty(stage), (turn / config_.stages + 1) % 2);
    kernel::hopper::expect(builder_, full(stage), config_.stage_bytes());
    load_a(tile, k * kBlockK, stage);
    load_b(tile, k * kBlockK, stage);
  }

  // What the results are made of beside the product, some columns of the tile.
  void load_results(const GemmTile& tile, Index piece) {
    const Index turn = builder_.name("turn", tile.results + piece);
    const Index stage = stage_of(turn);
    kernel::hopper::wait(builder_, empty(stage), (turn / config_.stages + 1) % 2);
    epilogue_.stream->load({tile.batch, tile.row}, tile.column + piece * kStreamColumns, stage);
  }

  void load_a(const GemmTile& tile, Index k, Index stage) {
    if (!problem_.transpose_a) {
      kernel::hopper::tma_load(builder_, builder_.ref(map_a_, {tile.batch, tile.row, k}),
                               builder_.ref(a_, {stage, 0, 0}), full(stage));
      return;
    }
    for (int64_t panel = 0; panel < config_.tile_m / kPanel; ++panel)
      kernel::hopper::tma_load(builder_, builder_.ref(map_a_, {tile.batch, k, tile.row + panel * kPanel}),
                               builder_.ref(a_, {stage, panel, 0, 0}), full(stage));
  }

  // A task of a cluster brings its share of every part of B to all of them.
  void load_b(const GemmTile& tile, Index k, Index stage) {
    const bool multicast = config_.cluster > 1;
    const int64_t columns = config_.tile_columns(problem_), share = columns / config_.cluster;
    for (int64_t part = 0; part < problem_.parts(); ++part) {
      const Index here = part * columns + tiles_.rank() * share;  // in the tile
      const Index column = tile.column + part * problem_.columns() + tiles_.rank() * share;
      if (problem_.transpose_b) {
        kernel::hopper::tma_load(builder_, builder_.ref(map_b_, {tile.batch, column, k}),
                                 builder_.ref(b_, {stage, here, 0}), full(stage), multicast);
        continue;
      }
      for (int64_t panel = 0; panel < share / kPanel; ++panel)
        kernel::hopper::tma_load(builder_, builder_.ref(map_b_, {tile.batch, k, column + panel * kPanel}),
                                 builder_.ref(b_, {stage, here / kPanel + panel, 0, 0}), full(stage), multicast);
    }
  }

  // ---- consumer ----------------------------------------------------------------------------------------------------
  std::vector<Value> zeros() {
    const Value zero = builder_.constant(0, Dtype::f32, {kGroupRows, config_.tile_n});
    return std::vector<Value>(static_cast<size_t>(config_.blocks()), zero);
  }

  std::vector<Value> sums_of(const GemmTile& tile) {
    return builder_.branch(tile.live, [&] { return multiply(tile); }, [&] { return zeros(); });
  }

  std::vector<Value> multiply(const GemmTile& tile) {
    const Index turn = builder_.name("turn", tile.turn);
    std::vector<Value> sums = products(turn, zeros());
    sums = builder_.loop("k", 1, tile.blocks, 1, sums, [&](Index k, const std::vector<Value>& carried) {
      const std::vector<Value> next = products(builder_.name("turn", turn + k), carried);
      kernel::hopper::wgmma_wait(builder_, {}, config_.blocks());
      release(turn + k - 1);
      return next;
    });
    sums = kernel::hopper::wgmma_wait(builder_, sums, 0);
    release(turn + (tile.blocks - 1));
    return sums;
  }

  std::vector<Value> products(Index turn, const std::vector<Value>& sums) {
    const Index stage = stage_of(turn);
    kernel::hopper::wait(builder_, full(stage), parity_of(turn));
    std::vector<Value> next;
    for (int64_t block = 0; block < config_.blocks(); ++block) {
      const Index part = builder_.copy() * config_.blocks() + block;  // of 64 rows
      const Ref a = problem_.transpose_a ? builder_.ref(a_, {stage, part, 0, 0})
                                         : builder_.ref(a_, {stage, part * kGroupRows, 0});
      const Ref b = problem_.transpose_b ? builder_.ref(b_, {stage, 0, 0}) : builder_.ref(b_, {stage, 0, 0, 0});
      next.push_back(kernel::hopper::wgmma(builder_, sums[static_cast<size_t>(block)], a,
                                           problem_.transpose_a ? Major::mn : Major::k, b,
                                           problem_.transpose_b ? Major::k : Major::mn, kBlockK));
    }
    return next;
  }

  void release(Index turn) {
    const Ref barrier = empty(turn % config_.stages);
    if (config_.cluster > 1)
      kernel::hopper::arrive_cluster(builder_, barrier);
    else
      kernel::hopper::arrive(builder_, barrier);
  }

  void store(const GemmTile& tile, const std::vector<Value>& sums) {
    if (epilogue_.begin_tile) epilogue_.begin_tile();
    const int64_t columns = config_.tile_columns(problem_);
    const int64_t width = epilogue_.slice_columns > 0 ? std::min(epilogue_.slice_columns, columns) : columns;
    for (int64_t block = 0; block < config_.blocks(); ++block) {
      const Index row = tile.row + (builder_.copy() * config_.blocks() + block) * kGroupRows;
      if (epilogue_.stream) epilogue_.stream->begin_tile({tile.batch, row, tile.column}, tile.results);
      for (int64_t first = 0; first < columns; first += width) {
        ProductTile slice{tile.batch, row, tile.column + first, {}};
        for (int64_t part = 0; part < problem_.parts(); ++part)
          slice.sums.push_back(
              kernel::hopper::columns(builder_, sums[static_cast<size_t>(block)], part * columns + first, width));
        epilogue_.store(slice);
      }
    }
  }

  void store_strip(const GemmTile& tile, Index strip) {
    const int64_t columns = config_.tile_columns(problem_);
    for (int64_t first = 0; first < columns; first += kPanel) {
      ProductTile slice{tile.batch, tile.row + strip * kStripRows, tile.column + first, {}};
      for (int64_t part = 0; part < problem_.parts(); ++part)
        slice.sums.push_back(handoff_->columns(strip, part * columns + first));
      epilogue_.store(slice);
    }
  }

  KernelBuilder& builder_;
  const MatmulProblem& problem_;
  const GemmConfig& config_;
  const GemmEpilogue& epilogue_;
  GemmTiles tiles_;
  BufferId map_a_{}, map_b_{}, a_{}, b_{}, full_{}, empty_{};
  std::optional<ProductHandoff> handoff_;
};

}  // namespace

void emit_gemm(KernelBuilder& builder, const MatmulProblem& problem, const GemmConfig& config,
               const GemmBuffers& buffers, const GemmEpilogue& epilogue) {
  STEPC_CHECK((config.result_turns > 0) == (epilogue.stream != nullptr), "a ring for results that nobody fills");
  STEPC_CHECK(!epilogue.stream || (config.cluster == 1 && config.blocks() == 1),
              "results through the ring of a cluster, or of two blocks of rows a consumer");
  STEPC_CHECK(config.shared_bytes() <= kSharedBytes, "{} bytes of shared memory", config.shared_bytes());
  GemmEmitter emitter(builder, problem, config, buffers, epilogue);
  emitter.producer();
  emitter.epilogue();
  emitter.consumer();
}

// ---- results through shared memory
// -----------------------------------------------------------------------------------

// A box is free once its last store has read it. The thread that stores is one and the same, so it counts its own
// groups; the others wait for it at a barrier of the consumer's warps. Tiles that are no whole number of rounds start
// the ring anew.
int64_t PanelStores::pending() const {
  if (!per_tile_) return 0;
  return done_ == 0 && *per_tile_ % boxes_ != 0 ? 0 : boxes_ - 1;
}

void PanelStores::put(Value panel, BufferId map, const std::vector<Index>& at) {
  if (!out_) out_ = builder_.shared("out", Dtype::bf16, {storers_, boxes_, rows_, kPanel}, 128);
  const int64_t still = pending();
  const Index box = done_++ % boxes_;
  const Index barrier = builder_.copy() + first_barrier_;
  const int64_t warps = rows_ / kStripRows;
  builder_.once([&] { kernel::hopper::bulk_wait(builder_, still); });
  kernel::hopper::sync(builder_, barrier, warps);
  const Ref place = builder_.ref(*out_, {builder_.copy(), box, 0, 0});
  kernel::hopper::stmatrix(builder_, panel, place);
  kernel::hopper::fence_async(builder_);
  kernel::hopper::sync(builder_, barrier, warps);
  builder_.once([&] {
    kernel::hopper::tma_store(builder_, place, builder_.ref(map, at));
    kernel::hopper::bulk_commit(builder_);
  });
}

void PanelStores::finish() {
  if (out_) builder_.once([&] { kernel::hopper::bulk_wait(builder_, 0); });
}

}  // namespace stepc::sm90
