// Hopper's contraction template: persistent and warp-specialised. One producer thread brings tiles of both operands
// by TMA through a ring of stages; two groups of four warps each own half of a tile's rows in their accumulators,
// keep one product under way while they release the stage of the one before, and store their rows while the
// producer runs ahead into the next tile. Either operand may be stored with k or with its own extent contiguous, so
// forward, data gradient and weight gradient are one template; TMA fills what lies past the edges with zeros.
// Where results take much beside the product, a third role makes them (gemm_handoff.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule/region/tile_region.h"
#include "compiler/schedule/schedule.h"
#include "ir/kernel/builder.h"

namespace stepc::sm90 {

constexpr int64_t kBlockK = 64;           // bf16 columns of one 128-byte row of a swizzled tile
constexpr int64_t kPanel = 64;            // columns of a panel
constexpr int64_t kConsumers = 2;         // groups of warps that own accumulators
constexpr int64_t kGroupWarps = 4;        // of each, and of the producer
constexpr int64_t kGroupRows = 64;        // of one wgmma
constexpr int64_t kStripRows = 16;        // of a tile, that one warp has
constexpr int64_t kStorers = 3;           // warps that make the results where a product is handed over
constexpr int64_t kSharedBytes = 232448;  // that a task may have

struct GemmConfig {
  int64_t tile_m = 128;  // a multiple of 128
  int64_t tile_n = 256;  // columns of the accumulators: in halves, both of them
  int64_t stages = 4;
  int64_t cluster = 1;   // tasks, neighbours along m, that share the tile of B
  int64_t group_m = 16;  // tiles along m that run next to one another, for the second-level cache
  int64_t boxes = 2;     // of a consumer, 64 x 64 bf16, on their way out
  // Turns of the ring that bring what a tile's results are made of beside the product (gemm_stream.h).
  int64_t result_turns = 0;
  // The product goes through shared memory, as bf16, to warps that make the results while the next is under way.
  bool hands_over = false;
  int64_t producer_registers = 40;  // 0: as many as any thread
  int64_t consumer_registers = 232;
  int64_t processors = 132;  // of the target

  int64_t blocks() const { return tile_m / (kConsumers * kGroupRows); }  // accumulators of a consumer
  int64_t tile_columns(const MatmulProblem& problem) const { return tile_n / problem.parts(); }
  int64_t tiles_m(const MatmulProblem& problem) const;
  int64_t tiles_n(const MatmulProblem& problem) const;
  int64_t units_m(const MatmulProblem& problem) const;  // clusters along m
  int64_t units(const MatmulProblem& problem) const;    // tiles of a cluster, of all batches
  int64_t tasks(const MatmulProblem& problem) const;    // the grid
  int64_t storers() const { return hands_over ? kStorers : kConsumers; }
  int64_t store_rows() const { return hands_over ? kStripRows : kGroupRows; }
  int64_t handoff_bytes() const { return hands_over ? tile_m * tile_n * 2 : 0; }
  int64_t stage_bytes() const { return (tile_m + tile_n) * kBlockK * 2; }
  int64_t shared_bytes() const;
};
std::string describe(const GemmConfig& config);

// Why TMA and wgmma cannot take the product as it lies in memory, if so.
std::optional<std::string> gemm_obstacle(const MatmulProblem& problem);
// What can be done, best first. `stores_panels`: results go out through boxes in shared memory.
std::vector<GemmConfig> gemm_candidates(const MatmulProblem& problem, bool stores_panels, const GpuTarget& target);
// The same with the epilogue in warps of its own, where it fits.
std::optional<GemmConfig> handed_over(GemmConfig config);
// The time expected of a configuration, in arbitrary units.
double gemm_cost(const MatmulProblem& problem, const GemmConfig& config);

struct GemmBuffers {
  kernel::BufferId a;  // [batch, m, k] or, transposed, [batch, k, m]
  kernel::BufferId b;
  kernel::BufferId count = kernel::BufferId::none;  // i32[batch], of a counted problem
};

// Sends bf16 panels of 64 columns to memory through boxes in shared memory, each by one TMA store. Each of those who
// store, a consumer or a warp of the epilogue, has boxes of its own.
class PanelStores {
 public:
  // `per_tile`: panels that are stored of each tile (or strip), or none where that is not known or not always so: then
  // a box is used again only when all stores are through with theirs.
  PanelStores(kernel::KernelBuilder& builder, const GemmConfig& config, std::optional<int64_t> per_tile)
      : builder_(builder),
        boxes_(config.boxes),
        storers_(config.storers()),
        rows_(config.store_rows()),
        first_barrier_(config.hands_over ? kConsumers + 1 : 1),
        per_tile_(per_tile) {}
  void begin_tile() { done_ = 0; }
  void put(kernel::Value panel, kernel::BufferId map, const std::vector<kernel::Index>& at);
  void finish();  // when the role ends
  int64_t done() const { return done_; }

 private:
  int64_t pending() const;

  kernel::KernelBuilder& builder_;
  int64_t boxes_;
  int64_t storers_;
  int64_t rows_;           // of a panel
  int64_t first_barrier_;  // of the storers', one each
  std::optional<int64_t> per_tile_;
  int64_t done_ = 0;  // of this tile
  std::optional<kernel::BufferId> out_;
};

class GemmStream;
struct GemmEpilogue {
  std::function<void()> begin_tile;
  GemmStream* stream = nullptr;                   // with result_turns
  int64_t slice_columns = 0;                      // stored at once; 0: all of the tile
  std::function<void(const ProductTile&)> store;  // store_rows() rows of the tile
  std::function<void()> finish;
};
// Makes the roles. Declares maps and shared memory: the kernel has its globals and its grid already.
void emit_gemm(kernel::KernelBuilder& builder, const MatmulProblem& problem, const GemmConfig& config,
               const GemmBuffers& buffers, const GemmEpilogue& epilogue);

}  // namespace stepc::sm90
