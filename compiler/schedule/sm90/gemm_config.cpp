// What fits, and which tile to take. The tensor cores are the bound, so what differs is how much of the last wave
// of tiles is idle and how often an operand is read from shared memory again: small tiles reread more.
#include <algorithm>

#include "compiler/schedule/sm90/gemm.h"
#include "ir/support/check.h"

namespace stepc::sm90 {
namespace {

constexpr int64_t kMapAlignment = 16;  // bytes, of a tensor map's strides
constexpr int64_t kMostStages = 8;
// Time to start a tile and to store it, in blocks of k of a tile of 128 x 256.
constexpr double kTileOverhead = 1.0;

int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }
int64_t round_up(int64_t value, int64_t multiple) { return ceil_div(value, multiple) * multiple; }

// Measured beside 128 x 256 on large products; below 192 columns the port of shared memory is the bound.
double slowdown(int64_t tile_n) {
  if (tile_n >= 256) return 1;
  if (tile_n >= 192) return 1.02;
  return tile_n >= 128 ? 1.25 : 1.8;
}

void fit_stages(GemmConfig& config) {
  config.stages = kMostStages;
  while (config.stages > 2 && config.shared_bytes() > kSharedBytes) --config.stages;
  // More than four are worth less than a remainder by them costs, unless that is a mask: five lost 6% on an H200.
  if (config.stages > 4) config.stages = config.stages < 8 ? 4 : 8;
}

}  // namespace

int64_t GemmConfig::tiles_m(const MatmulProblem& problem) const { return ceil_div(problem.m, tile_m); }
int64_t GemmConfig::tiles_n(const MatmulProblem& problem) const {
  return ceil_div(problem.columns(), tile_columns(problem));
}
int64_t GemmConfig::units_m(const MatmulProblem& problem) const { return ceil_div(tiles_m(problem), cluster); }
int64_t GemmConfig::units(const MatmulProblem& problem) const {
  return problem.batch * units_m(problem) * tiles_n(problem);
}
int64_t GemmConfig::tasks(const MatmulProblem& problem) const {
  return std::min(processors / cluster, units(problem)) * cluster;
}
int64_t GemmConfig::shared_bytes() const {
  const int64_t barriers = (2 * stages + (hands_over ? 2 * kConsumers : 0)) * 8;
  const int64_t box_bytes = store_rows() * kPanel * 2;
  return stages * stage_bytes() + handoff_bytes() + storers() * boxes * box_bytes + round_up(barriers, 64);
}

std::optional<std::string> gemm_obstacle(const MatmulProblem& problem) {
  if (problem.a_dtype != Dtype::bf16 || problem.b_dtype != Dtype::bf16) return "operands that are not bf16 in memory";
  if (problem.m == 0 || problem.n == 0 || problem.k == 0 || problem.batch == 0) return "an empty product";
  const auto aligned = [](int64_t row) { return row * dtype_bytes(Dtype::bf16) % kMapAlignment == 0; };
  if (!aligned(problem.transpose_a ? problem.m : problem.k))
    return "rows of the first operand that are no multiple of 16 bytes";
  if (!aligned(problem.transpose_b ? problem.k : problem.n))
    return "rows of the second operand that are no multiple of 16 bytes";
  return std::nullopt;
}

std::vector<GemmConfig> gemm_candidates(const MatmulProblem& problem, bool stores_panels, const GpuTarget& target) {
  std::vector<GemmConfig> candidates;
  for (const int64_t tile_n : {256, 192, 128, 64}) {
    if (problem.halves && tile_n % (2 * kPanel) != 0) continue;
    GemmConfig config;
    config.tile_n = tile_n;
    config.processors = target.processors;
    // A tile's panels are a whole number of rounds through the boxes.
    config.boxes = !stores_panels ? 0 : tile_n == 192 ? 3 : 2;
    fit_stages(config);
    // Groups that divide the tiles leave no ragged one, whose width would be a division at run time.
    const int64_t tiles = config.tiles_m(problem);
    config.group_m = std::min(config.group_m, tiles);
    for (int64_t group = config.group_m; group >= config.group_m / 2 && group > 0; --group)
      if (tiles % group == 0) {
        config.group_m = group;
        break;
      }
    candidates.push_back(config);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [&](const GemmConfig& x, const GemmConfig& y) {
    return gemm_cost(problem, x) < gemm_cost(problem, y);
  });
  return candidates;
}

// Every thread needs what a product of 256 columns takes, so nobody gives registers to another.
std::optional<GemmConfig> handed_over(GemmConfig config) {
  if (config.blocks() != 1 || config.cluster != 1) return std::nullopt;
  config.hands_over = true;
  config.boxes = std::min<int64_t>(config.boxes, 2);
  config.producer_registers = config.consumer_registers = 0;
  fit_stages(config);
  return config.shared_bytes() <= kSharedBytes && config.stages > 2 ? std::optional(config) : std::nullopt;
}

double gemm_cost(const MatmulProblem& problem, const GemmConfig& config) {
  const auto waves = static_cast<double>(ceil_div(config.units(problem) * config.cluster, config.processors));
  const auto blocks = static_cast<double>(ceil_div(problem.k, kBlockK));
  const auto area = static_cast<double>(config.tile_m * config.tile_n);
  return waves * area * slowdown(config.tile_n) * (blocks + kTileOverhead);
}

std::string describe(const GemmConfig& config) {
  const std::string warps = config.hands_over
                                ? fmt::format("epilogue in {} warps", kStorers)
                                : fmt::format("registers {}/{}", config.producer_registers, config.consumer_registers);
  return fmt::format("tile {}x{}x{}, {} stages, groups of {}, cluster {}, {} boxes, {}{}", config.tile_m, config.tile_n,
                     kBlockK, config.stages, config.group_m, config.cluster, config.boxes, warps,
                     config.result_turns > 0 ? ", results through the ring" : "");
}

}  // namespace stepc::sm90
