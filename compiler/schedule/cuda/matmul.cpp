// From a kernel group to a contraction kernel.
#include "compiler/schedule/cuda/matmul.h"

#include "compiler/schedule/cuda/group_kernel.h"
#include "compiler/schedule/cuda/templates.h"
#include "ir/graph/fused.h"

namespace stepc::cuda {
namespace {

using kernel::BufferId;
using kernel::KernelBuilder;

// As the template sees them, operands and a plain result are [batch, rows, columns].
Result<std::map<ValueId, Shape>> matrix_shapes(const Group& group, const MatmulGroup& matmul) {
  const MatmulProblem& sizes = matmul.sizes;
  const auto matrix = [&](bool transposed, int64_t rows, int64_t columns) {
    return transposed ? Shape{sizes.batch, columns, rows} : Shape{sizes.batch, rows, columns};
  };
  const Shape a = matrix(sizes.transpose_a, sizes.m, sizes.k);
  const Shape b = matrix(sizes.transpose_b, sizes.k, sizes.n);
  if (matmul.a == matmul.b && a != b)
    return user_error("kernel @{}: one operand is both sides of a matmul, in two shapes", group.name);
  std::map<ValueId, Shape> shapes{{matmul.a, a}, {matmul.b, b}};
  if (matmul.plain) shapes[matmul.stores[0].result] = {sizes.batch, sizes.m, sizes.n};
  return shapes;
}

void store_product(KernelBuilder& builder, BufferId y, const MatmulTile& tile) {
  const Dtype dtype = builder.kernel().buffer(y).dtype;
  builder.store_tile(builder.cast(tile.sums[0], dtype), y, {tile.batch, tile.row, tile.column}, 1, tile.width,
                     tile.height);
}

}  // namespace

Result<ScheduledKernel> schedule_matmul(const Program& program, const Group& group, const GpuTarget& target) {
  const MatmulGroup matmul = analyse_matmul(program, group, group_results(program, group));
  if (!matmul.plain) return user_error("kernel @{}: no epilogues yet", group.name);
  STEPC_ASSIGN(const auto shapes, matrix_shapes(group, matmul));
  const MatmulConfig config = pick_matmul(matmul.sizes, target);
  GroupKernel made(program, group, shapes);
  KernelBuilder& builder = made.builder();
  const int64_t tasks = config.tasks(matmul.sizes);
  builder.set_grid(tasks);
  const auto epilogue = [&](const MatmulTile& tile) {
    store_product(builder, made.buffer(matmul.stores[0].result), tile);
  };
  if (tasks == 0)
    builder.begin_role("main", 1);
  else
    emit_matmul(builder, matmul.sizes, config, {made.buffer(matmul.a), made.buffer(matmul.b)}, epilogue);
  return made.finish(tasks, describe(config));
}

}  // namespace stepc::cuda
