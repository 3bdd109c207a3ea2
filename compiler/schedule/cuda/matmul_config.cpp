// Which tile a problem gets.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/schedule/cuda/matmul.h"

namespace stepc::cuda {
namespace {

constexpr int64_t kNarrow = 16;            // columns that are worth a tile of their own
constexpr int64_t kNarrowest = 8;          // of f32
constexpr int64_t kMultiprocessors = 108;  // fewer tiles leave the card idle
constexpr int64_t kMaxGroup = 8;

MatmulConfig large_tile(const GpuTarget& target) {
  // A stage is 32 KiB; sm_89 has 99 KiB a CTA.
  return {
      .block_m = 128, .block_n = 128, .block_k = 64, .stages = target.arch == "sm_89" ? 3 : 4, .warps = 4, .copies = 2};
}

MatmulConfig small_tile(int64_t columns, int64_t parts) {
  if (columns * parts <= kNarrow)
    return {.block_m = 64, .block_n = kNarrow, .block_k = 64, .stages = 4, .warps = 4, .copies = 1};
  return {.block_m = 64, .block_n = 64, .block_k = 64, .stages = 4, .warps = 2, .copies = 2};
}

// The largest number of row blocks that divides them all.
int64_t pick_group(int64_t m_tasks) {
  for (int64_t group = kMaxGroup; group > 1; --group)
    if (m_tasks % group == 0) return group;
  return 1;
}

// So many that all tasks fill the card a few times over, each with some blocks to run through.
int64_t pick_splits(const MatmulConfig& config, const MatmulProblem& problem) {
  constexpr int64_t kFewestBlocks = 8;
  constexpr int64_t kMostSplits = 16;
  const int64_t tasks = config.tasks(problem);
  if (tasks == 0 || 2 * tasks > kMultiprocessors) return 1;
  const int64_t wanted = std::min(4 * kMultiprocessors / tasks, kMostSplits);
  return std::max<int64_t>(1, std::min(wanted, config.k_blocks(problem) / kFewestBlocks));
}

}  // namespace

MatmulConfig pick_matmul(const MatmulProblem& problem, const GpuTarget& target) {
  MatmulConfig config = large_tile(target);
  const bool is_bf16 = problem.math_dtype == Dtype::bf16;
  const bool fits_small = problem.m <= 64 || problem.n <= 64 || config.tasks(problem) < kMultiprocessors;
  if (!is_bf16 || fits_small) config = small_tile(problem.columns(), problem.parts());
  if (!is_bf16) {
    config.block_k = 32;
    config.stages = 3;
  }
  // The products of a router: bound by how long a block of k takes to come, and each is small.
  if (!is_bf16 && problem.parts() == 1 && problem.columns() <= kNarrowest)
    config.block_n = kNarrowest, config.block_k = 64, config.stages = 2;
  // A short k fits one block, and needs no more of the ring than that.
  const int64_t unit = is_bf16 ? 16 : 8;
  config.block_k = std::clamp((problem.k + unit - 1) / unit * unit, unit, config.block_k);
  config.stages = std::clamp<int64_t>(config.k_blocks(problem) + 1, 2, config.stages);
  config.splits = pick_splits(config, problem);
  config.group = pick_group(config.m_tasks(problem));
  return config;
}

std::string describe(const MatmulConfig& config) {
  std::string text =
      fmt::format("tile {}x{}x{}, {} stages, {} x {} warps, groups of {}", config.block_m, config.block_n,
                  config.block_k, config.stages, config.copies, config.warps, config.group);
  if (config.splits > 1) text += fmt::format(", k in {} parts", config.splits);
  return text;
}

}  // namespace stepc::cuda
