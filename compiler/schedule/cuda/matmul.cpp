// From a kernel group to a contraction kernel.
#include "compiler/schedule/cuda/matmul.h"

#include "compiler/schedule/cuda/group_kernel.h"
#include "compiler/schedule/cuda/templates.h"
#include "compiler/schedule/region/tile_plan.h"
#include "ir/graph/fused.h"

namespace stepc::cuda {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;

// A group on its way to kernels.
struct Contraction {
  const Program& program;
  const Group& group;
  const MatmulGroup& matmul;
  const MatmulConfig& config;
  const TilePlan& plan;

  int64_t tasks() const { return config.tasks(matmul.sizes); }
  MatmulBuffers buffers(const GroupKernel& made) const {
    const bool counted = matmul.count != ValueId::none;
    return {made.buffer(matmul.a), made.buffer(matmul.b), counted ? made.buffer(matmul.count) : BufferId::none};
  }
  std::string text() const {
    return describe(config) + describe(matmul.sizes.counted) +
           (matmul.plain ? "" : fmt::format(", epilogue on {} columns", plan.step));
  }
};

// A kernel whose tiles, made by `emit`, become the group's results.
template <class Emit>
Result<ScheduledKernel> with_epilogue(const Contraction& of, GroupKernel& made, const Emit& emit) {
  std::optional<std::string> failure;
  made.builder().set_grid(of.tasks());
  emit([&](const MatmulTile& tile) {
    TileRegion region(made.builder(), of.program, of.group, of.matmul, made.buffers(), of.plan.step);
    region.store({tile.batch, tile.row, tile.column, tile.sums});
    failure = region.failure();
  });
  if (failure)
    return user_error("kernel @{}: the portable matmul template cannot make it: {}", of.group.name, *failure);
  return made.finish(of.tasks(), of.text());
}

Result<ScheduledKernel> whole(const Contraction& of) {
  GroupKernel made(of.program, of.group, of.plan.shapes);
  const MatmulBuffers buffers = of.buffers(made);
  return with_epilogue(of, made, [&](const auto& epilogue) {
    emit_matmul(made.builder(), of.matmul.sizes, of.config, buffers, epilogue);
  });
}

// The kernel of the parts, and the one that adds them.
Result<ScheduledKernel> split(const Contraction& of) {
  const MatmulProblem& sizes = of.matmul.sizes;
  const Shape shape{of.config.splits * sizes.batch, sizes.m, sizes.n};
  GroupKernel parts(of.program, of.group, of.plan.shapes, "matmul_parts");
  const BufferId sums = parts.workspace(Dtype::f32, shape);
  KernelBuilder& builder = parts.builder();
  builder.set_grid(of.tasks() * of.config.splits);
  const MatmulBuffers buffers = of.buffers(parts);
  emit_matmul(builder, sizes, of.config, buffers, [&](const MatmulTile& tile) {
    for (size_t part = 0; part < tile.sums.size(); ++part) {
      const Index column = tile.column + static_cast<int64_t>(part) * sizes.columns();
      builder.store_tile(tile.sums[part], sums, {tile.split * sizes.batch + tile.batch, tile.row, column}, 1,
                         tile.width, tile.height);
    }
  });
  STEPC_ASSIGN(ScheduledKernel first, parts.finish(of.tasks() * of.config.splits, of.text()));
  GroupKernel added(of.program, of.group, of.plan.shapes);
  const BufferId w = added.workspace(Dtype::f32, shape);
  STEPC_ASSIGN(ScheduledKernel second, with_epilogue(of, added, [&](const auto& epilogue) {
                 emit_split_sum(added.builder(), sizes, of.config, w, epilogue);
               }));
  first.later.push_back({std::move(second.kernel), std::move(second.scalars), second.grid});
  return first;
}

}  // namespace

Result<ScheduledKernel> schedule_matmul(const Program& program, const Group& group, const GpuTarget& target) {
  const MatmulGroup matmul = analyse_matmul(program, group, group_results(program, group));
  if (is_short(program, group, matmul)) {
    Result<ScheduledKernel> made = schedule_short_matmul(program, group, matmul);
    if (made) return made;
  }
  if (is_narrow(matmul)) return schedule_narrow_matmul(program, group, matmul);
  if (is_of_parts(matmul)) {
    Result<ScheduledKernel> made = schedule_matmul_of_parts(program, group, matmul);
    if (made) return made;
  }
  const MatmulConfig config = pick_matmul(matmul.sizes, target);
  const int64_t columns = config.share() / matmul.sizes.parts();
  STEPC_ASSIGN(const TilePlan plan, plan_tiles(program, group, matmul, config.block_m, columns));
  const Contraction contraction{program, group, matmul, config, plan};
  if (contraction.tasks() > 0) return config.splits > 1 ? split(contraction) : whole(contraction);
  GroupKernel nothing(program, group, plan.shapes);
  nothing.builder().set_grid(0);
  nothing.builder().begin_role("main", 1);
  return nothing.finish(0, contraction.text());
}

}  // namespace stepc::cuda
