// The portable contraction template (sm_80 and later). A CTA makes one tile of the result: copies of a few warps,
// each a share of the tile's columns. Blocks of both operands pass through a ring of shared tiles filled by
// asynchronous copies; bf16 is multiplied by tensor cores, f32 by fused multiply-adds. Every element is summed in
// ascending k, so results depend on nothing but sizes. Of a product with a count only blocks of k are multiplied that
// may hold anything but zeros. Where few tiles would leave the card idle, k is split: the parts' sums go to workspace,
// and a second kernel adds them, in order, and has the epilogue.
#pragma once

#include <functional>
#include <string>

#include "compiler/schedule/region/matmul_group.h"
#include "compiler/schedule/schedule.h"
#include "ir/kernel/builder.h"

namespace stepc::cuda {

struct MatmulConfig {
  int64_t block_m = 128;
  int64_t block_n = 128;  // of the accumulators: with `halves` one half of it lies in each half of the columns
  int64_t block_k = 64;
  int64_t stages = 4;  // of the ring
  int warps = 4;       // of one copy, one above the other in the tile
  int copies = 2;      // side by side
  int64_t splits = 1;  // of k
  int64_t group = 1;   // row blocks whose tiles follow one another, so that they share what they read in the cache

  int64_t share() const { return block_n / copies; }  // columns of one copy's accumulator
  int64_t m_tasks(const MatmulProblem& problem) const { return (problem.m + block_m - 1) / block_m; }
  int64_t n_tasks(const MatmulProblem& problem) const {
    const int64_t block = block_n / problem.parts();
    return (problem.columns() + block - 1) / block;
  }
  // Of the result's tiles: each has so many tasks as there are splits.
  int64_t tasks(const MatmulProblem& problem) const { return problem.batch * m_tasks(problem) * n_tasks(problem); }
  int64_t k_blocks(const MatmulProblem& problem) const { return (problem.k + block_k - 1) / block_k; }
};
std::string describe(const MatmulConfig& config);
MatmulConfig pick_matmul(const MatmulProblem& problem, const GpuTarget& target);

// A finished tile of the product, of one copy of the role.
struct MatmulTile {
  kernel::Index split;  // of k
  kernel::Index batch;
  kernel::Index row;     // of its first element
  kernel::Index column;  // in columns()
  int64_t rows = 0;
  int64_t columns = 0;              // of each part
  kernel::Index height;             // so many of the rows exist; none if it is not positive, all if it is more
  kernel::Index width;              // so many of the columns
  std::vector<kernel::Value> sums;  // one a part: f32[rows, columns]
};
struct MatmulBuffers {
  kernel::BufferId a;  // [batch, m, k] or, transposed, [batch, k, m]
  kernel::BufferId b;
  kernel::BufferId count = kernel::BufferId::none;  // i32[batch], of a counted problem
};
// Makes the kernel's role; its grid is config.tasks(problem) * config.splits, which is not 0.
void emit_matmul(kernel::KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config,
                 const MatmulBuffers& buffers, const std::function<void(const MatmulTile&)>& epilogue);
// The same for the kernel that adds the splits' sums f32[splits * batch, m, n]; its grid is config.tasks(problem).
void emit_split_sum(kernel::KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config,
                    kernel::BufferId parts, const std::function<void(const MatmulTile&)>& epilogue);

}  // namespace stepc::cuda
