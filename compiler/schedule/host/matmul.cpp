// From a kernel group to a contraction kernel.
#include "compiler/schedule/host/matmul.h"

namespace stepc::host {

MatmulEpilogue store_product(kernel::KernelBuilder& builder, const MatmulProblem& problem, kernel::BufferId y) {
  const auto before = [&builder, y](const MatmulTile& tile) {
    builder.prefetch(builder.ref(y, {tile.batch, tile.row, tile.column}), {tile.rows, tile.columns}, true);
  };
  const auto store = [&builder, y, columns = problem.columns()](const MatmulTile& tile) {
    for (size_t part = 0; part < tile.sums.size(); ++part) {
      const kernel::Value rounded = builder.cast(tile.sums[part], builder.kernel().buffer(y).dtype);
      const kernel::Index column = tile.column + static_cast<int64_t>(part) * columns;
      builder.store_first(rounded, y, {tile.batch, tile.row, column}, tile.columns);
    }
  };
  return {before, store};
}

kernel::Kernel product_kernel(const MatmulProblem& problem, const MatmulConfig& config, Dtype result) {
  const auto matrix = [&](bool transposed, int64_t rows, int64_t columns) {
    return transposed ? Shape{problem.batch, columns, rows} : Shape{problem.batch, rows, columns};
  };
  kernel::KernelBuilder builder("matmul", kernel::Target::host);
  MatmulBuffers buffers;
  buffers.a = builder.global("x0", problem.a_dtype, matrix(problem.transpose_a, problem.m, problem.k));
  buffers.b = builder.global("x1", problem.b_dtype, matrix(problem.transpose_b, problem.k, problem.n));
  const kernel::BufferId y = builder.global("y0", result, {problem.batch, problem.m, problem.n});
  builder.set_grid(config.tasks(problem));
  builder.begin_role("main");
  emit_matmul(builder, problem, config, buffers, store_product(builder, problem, y));
  return builder.finish();
}

}  // namespace stepc::host
