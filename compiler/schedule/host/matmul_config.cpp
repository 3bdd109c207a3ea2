// Block sizes of host contractions: B's panels of one task stay in the second-level cache beside a panel of
// A's rows, and there are enough tasks for the threads of any machine of ordinary size.
#include <algorithm>

#include "compiler/schedule/host/matmul.h"

namespace stepc::host {
namespace {

// As many tasks as wanted whatever the machine: results and kernels must not depend on its thread count.
constexpr int64_t kWantedTasks = 16;
constexpr int64_t kPanelBytes = 256 << 10;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// The vector registers hold the accumulators, a row of B and one element of A; of bf16 without a dot product,
// both halves of these.
void pick_tile(MatmulConfig& config, const MatmulProblem& problem, const HostTarget& target) {
  const bool widened = problem.math_dtype == Dtype::bf16 && !target.bf16_dot;
  config.lanes = target.vector_bytes / 4;
  config.tile_rows = target.vector_bytes == 64 ? 8 : 4;
  config.tile_cols = target.vector_bytes == 32 && !widened ? 3 * config.lanes : 2 * config.lanes;
}

int64_t pick_block_k(const MatmulProblem& problem, int64_t unit) {
  if (problem.transpose_a) return 128 * unit;
  const int64_t blocks = std::max<int64_t>(1, ceil_div(problem.k, 512));
  return std::max<int64_t>(32, round_up(ceil_div(problem.k, blocks), 32));
}

int64_t equal_share(int64_t extent, int64_t largest, int64_t multiple) {
  const int64_t blocks = std::max<int64_t>(1, ceil_div(extent, largest));
  return std::max(multiple, round_up(ceil_div(extent, blocks), multiple));
}

// Smaller blocks while there are too few tasks: redundant packing costs less than an idle processor. Where A
// is packed too, narrow blocks waste less than low ones.
void split_blocks(MatmulConfig& config, const MatmulProblem& problem) {
  const auto wanting = [&] { return config.tasks(problem) < kWantedTasks; };
  const int64_t columns = problem.columns();
  const auto halve_rows = [&](int64_t smallest) {
    while (wanting() && config.block_m > smallest && problem.m > smallest)
      config.block_m = std::max(smallest, round_up(config.block_m / 2, config.tile_rows));
  };
  const auto halve_columns = [&](int64_t smallest) {
    while (wanting() && config.block_n > smallest && columns > smallest)
      config.block_n = equal_share(columns, std::max(smallest, config.block_n / 2), config.tile_cols);
  };
  if (!problem.transpose_a) halve_rows(64);
  halve_columns(problem.transpose_a ? 96 : 128);
  if (problem.transpose_a) halve_rows(32);
}

}  // namespace

MatmulConfig pick_matmul(const MatmulProblem& problem, const HostTarget& target) {
  MatmulConfig config;
  pick_tile(config, problem, target);
  const int64_t unit = problem.math_dtype == Dtype::bf16 ? 2 : 1;
  config.block_k = pick_block_k(problem, unit);
  const int64_t widest = config.block_k * 512 * 4 / unit <= kPanelBytes ? 512 : 256;
  config.block_n = equal_share(problem.columns(), widest / problem.parts(), config.tile_cols);
  config.block_m = std::max(config.tile_rows,
                            round_up(std::min<int64_t>(problem.transpose_a ? 128 : 256, problem.m), config.tile_rows));
  if (problem.transpose_a)
    config.a_mode = AMode::panels;
  else if (problem.a_dtype != problem.math_dtype || (unit == 2 && problem.k % 2 != 0))
    config.a_mode = AMode::copied;
  split_blocks(config, problem);
  return config;
}

std::string describe(const MatmulConfig& config) {
  const char* a = config.a_mode == AMode::direct ? "in place" : config.a_mode == AMode::copied ? "copied" : "packed";
  return fmt::format("tile {}x{}, block {}x{}x{}, a {}", config.tile_rows, config.tile_cols, config.block_m,
                     config.block_n, config.block_k, a);
}

}  // namespace stepc::host
