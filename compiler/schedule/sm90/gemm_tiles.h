// Which tiles a task of Hopper's contraction makes, in which order, and how many blocks of k each has. All roles walk
// them alike, and so agree on the turns of the ring that a tile takes.
//
// Tiles go along m inside a group of tiles, then along n, then to the next group: what runs at one time, a wave, shares
// operands, and reads them from memory once if it runs in step. Tasks drift apart from wave to wave, until the
// second-level cache does not hold what another one will want: so none begins a tile before all have brought those of
// the wave before, or nearly so (progress_wait). Where rows are counted, a batch's tiles that hold rows are dealt out
// among the tasks apart from those that hold none: the first cost a product, the others only an epilogue, and no task
// shall have more of the dear ones than another.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "compiler/schedule/sm90/gemm.h"

namespace stepc::sm90 {

struct GemmTile {
  kernel::Index batch;
  kernel::Index row;      // first row
  kernel::Index column;   // first of columns()
  kernel::Index number;   // tiles that the task had before
  kernel::Index turn;     // of its first block
  kernel::Index live;     // whether it has blocks
  kernel::Index blocks;   // of k, at least one if it is live
  kernel::Index results;  // turn of the first that is for the results, if there are any
  kernel::Index wave;     // as `number`, where rows are counted of live tiles alone
};

class GemmTiles {
 public:
  // `count`: of a counted problem.
  GemmTiles(kernel::KernelBuilder& builder, const MatmulProblem& problem, const GemmConfig& config,
            kernel::BufferId count)
      : b_(builder), problem_(problem), config_(config), count_(count) {}
  // In the role that is under construction.
  void each(const std::function<void(const GemmTile&)>& body);
  // The same in the thread that brings the operands, which keeps in step with those of the other tasks.
  void each_in_step(const std::function<void(const GemmTile&)>& body);
  kernel::Index rank() { return b_.task() % config_.cluster; }

 private:
  // A task's share of a batch's tiles of one kind, live or not.
  struct Share {
    kernel::Index first;  // its first tile
    kernel::Index tiles;  // how many it has
  };
  void all(const std::function<void(const GemmTile&)>& body);
  void counted_depth(const std::function<void(const GemmTile&)>& body);
  void counted_rows(const std::function<void(const GemmTile&)>& body);
  Share share_of(kernel::Index tiles, kernel::Index before, const std::string& kind);
  GemmTile counted_tile(kernel::Index number, kernel::Index is_live, kernel::Index live_m);
  GemmTile tile_at(kernel::Index unit);
  kernel::Index row_of(kernel::Index m) { return b_.name("row", (m * config_.cluster + rank()) * config_.tile_m); }
  bool is_counted(CountedAxis axis) const { return problem_.counted == axis; }
  kernel::Index waits(const GemmTile& tile);
  kernel::Index depth_of(kernel::Index batch);
  int64_t blocks_k() const { return (problem_.k + kBlockK - 1) / kBlockK; }
  int64_t clusters() const { return config_.tasks(problem_) / config_.cluster; }
  kernel::Index first_unit() { return b_.task() / config_.cluster; }
  int64_t group() const { return std::min(config_.group_m, config_.units_m(problem_)); }
  kernel::Index count_of(kernel::Index batch) { return b_.load_index(count_, {batch}, {0, INT32_MAX}); }

  kernel::KernelBuilder& b_;
  const MatmulProblem& problem_;
  const GemmConfig& config_;
  kernel::BufferId count_;
};

}  // namespace stepc::sm90
