// From a kernel group to a contraction kernel.
#include "compiler/schedule/cuda/matmul.h"

#include "compiler/schedule/cuda/group_kernel.h"
#include "compiler/schedule/cuda/templates.h"
#include "compiler/schedule/region/tile_plan.h"
#include "ir/graph/fused.h"

namespace stepc::cuda {
namespace {

using kernel::KernelBuilder;

Status emit_group(GroupKernel& made, const Program& program, const Group& group, const MatmulGroup& matmul,
                  const MatmulConfig& config, const TilePlan& plan) {
  KernelBuilder& builder = made.builder();
  std::optional<std::string> failure;
  const auto epilogue = [&](const MatmulTile& tile) {
    TileRegion region(builder, program, group, matmul, made.buffers(), plan.step);
    region.store({tile.batch, tile.row, tile.column, tile.sums});
    failure = region.failure();
  };
  emit_matmul(builder, matmul.sizes, config, {made.buffer(matmul.a), made.buffer(matmul.b)}, epilogue);
  if (failure) return user_error("kernel @{}: the portable matmul template cannot make it: {}", group.name, *failure);
  return {};
}

}  // namespace

Result<ScheduledKernel> schedule_matmul(const Program& program, const Group& group, const GpuTarget& target) {
  const MatmulGroup matmul = analyse_matmul(program, group, group_results(program, group));
  const MatmulConfig config = pick_matmul(matmul.sizes, target);
  const int64_t columns = config.share() / matmul.sizes.parts();
  STEPC_ASSIGN(const TilePlan plan, plan_tiles(program, group, matmul, config.block_m, columns));
  GroupKernel made(program, group, plan.shapes);
  const int64_t tasks = config.tasks(matmul.sizes);
  made.builder().set_grid(tasks);
  if (tasks == 0)
    made.builder().begin_role("main", 1);
  else
    STEPC_TRY(emit_group(made, program, group, matmul, config, plan));
  std::string text = describe(config);
  if (!matmul.plain) text += fmt::format(", epilogue on {} columns", plan.step);
  return made.finish(tasks, std::move(text));
}

}  // namespace stepc::cuda
