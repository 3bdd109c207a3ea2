// The host's contraction template. A task makes one block of the result: for every block of k it packs B
// (and A where A's rows are k) into panels in its scratch, then runs over tiles whose accumulators fill the
// vector registers. Rows of A are read in place where they can be. Every element is summed in ascending k,
// and blocks depend on sizes alone, so results do not depend on threads.
#pragma once

#include <functional>
#include <string>

#include "compiler/schedule/region/matmul_group.h"
#include "compiler/schedule/schedule.h"
#include "ir/kernel/builder.h"

namespace stepc::host {

// How rows of A reach the tile.
enum class AMode : uint8_t {
  direct,  // read in place
  copied,  // a row panel is copied (and converted) to scratch first: an odd number of bf16, or another dtype
  panels,  // packed: rows of A in memory are k
};

struct MatmulConfig {
  int64_t lanes = 16;     // f32 lanes of a vector
  int64_t tile_rows = 8;  // accumulators: tile_rows x tile_cols
  int64_t tile_cols = 32;
  int64_t block_m = 256;  // of one task; a multiple of tile_rows
  int64_t block_n = 256;  // a multiple of tile_cols, of columns()
  int64_t block_k = 512;
  AMode a_mode = AMode::direct;

  int64_t m_tasks(const MatmulProblem& problem) const { return (problem.m + block_m - 1) / block_m; }
  int64_t n_tasks(const MatmulProblem& problem) const { return (problem.columns() + block_n - 1) / block_n; }
  int64_t tasks(const MatmulProblem& problem) const { return problem.batch * m_tasks(problem) * n_tasks(problem); }
};
std::string describe(const MatmulConfig& config);
MatmulConfig pick_matmul(const MatmulProblem& problem, const HostTarget& target);

// A finished tile of the product.
struct MatmulTile {
  kernel::Index batch;
  kernel::Index row;     // of its first element
  kernel::Index column;  // in columns()
  int64_t rows = 0;
  int64_t columns = 0;              // valid ones: the fragments may be wider
  std::vector<kernel::Value> sums;  // one a part: f32[rows, columns or more]
};
struct MatmulBuffers {
  kernel::BufferId a;  // [batch, m, k] or, transposed, [batch, k, m]
  kernel::BufferId b;
};
// What is done with tiles. `before` runs before a tile's last products, to warm the caches.
struct MatmulEpilogue {
  std::function<void(const MatmulTile&)> before;
  std::function<void(const MatmulTile&)> store;
};
// Makes the body of the kernel, whose grid is config.tasks(problem) and whose role has begun.
void emit_matmul(kernel::KernelBuilder& builder, const MatmulProblem& problem, const MatmulConfig& config,
                 const MatmulBuffers& buffers, const MatmulEpilogue& epilogue);

}  // namespace stepc::host
