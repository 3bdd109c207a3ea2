// Contraction kernels for tests: any product, configuration and result, without a graph.
#pragma once

#include <doctest/doctest.h>

#include "compiler/schedule/sm90/gemm.h"
#include "ir/kernel/builder_hopper.h"

namespace stepc::sm90 {

inline const GpuTarget kHopper{"sm_90a"};

inline MatmulProblem product(int64_t m, int64_t n, int64_t k, int64_t batch, bool transpose_a, bool transpose_b) {
  MatmulProblem problem{m, n, k, batch};
  problem.a_dtype = problem.b_dtype = problem.math_dtype = Dtype::bf16;
  problem.transpose_a = transpose_a;
  problem.transpose_b = transpose_b;
  return problem;
}

inline kernel::Kernel build(const MatmulProblem& problem, const GemmConfig& config, Dtype dtype) {
  kernel::KernelBuilder builder("gemm", kernel::Target::sm90);
  const int64_t m = problem.m, n = problem.n, k = problem.k;
  const Shape a = problem.transpose_a ? Shape{problem.batch, k, m} : Shape{problem.batch, m, k};
  const Shape b = problem.transpose_b ? Shape{problem.batch, n, k} : Shape{problem.batch, k, n};
  const GemmBuffers buffers{builder.global("a", Dtype::bf16, a), builder.global("b", Dtype::bf16, b)};
  const kernel::BufferId y = builder.global("y", dtype, {problem.batch, m, n});
  builder.set_grid(config.tasks(problem));
  builder.set_cluster(config.cluster);
  const bool by_tma = dtype == Dtype::bf16;
  const kernel::BufferId map = by_tma ? builder.tensor_map("y_map", y, {1, config.store_rows(), kPanel}, 128) : y;
  PanelStores panels(builder, config, config.blocks() * config.tile_n / kPanel);
  GemmEpilogue epilogue;
  epilogue.slice_columns = kPanel;
  epilogue.begin_tile = [&] { panels.begin_tile(); };
  epilogue.finish = [&] { panels.finish(); };
  epilogue.store = [&](const ProductTile& tile) {
    const kernel::Value rounded = builder.cast(tile.sums[0], dtype);
    if (by_tma)
      panels.put(rounded, map, {tile.batch, tile.row, tile.column});
    else
      builder.store_tile(rounded, y, {tile.batch, tile.row, tile.column}, 1, min(n - tile.column, kPanel),
                         min(m - tile.row, config.store_rows()));
  };
  emit_gemm(builder, problem, config, buffers, epilogue);
  return builder.finish();
}

}  // namespace stepc::sm90
