// From a kernel group to Hopper's contraction kernel.
#include "compiler/schedule/sm90/gemm.h"

#include <algorithm>

#include "compiler/schedule/sm90/templates.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Value;

// A group, and its kernel under construction: operands and results as [batch, rows, columns].
struct Draft {
  const Program& program;
  const MatmulGroup& group;
  const GemmConfig& config;
  KernelBuilder& builder;
  std::vector<BufferId> operands;
  std::vector<BufferId> results;
};

Shape operand_shape(const MatmulGroup& group, ValueId value) {
  const MatmulProblem& sizes = group.sizes;
  if (value == group.a)
    return sizes.transpose_a ? Shape{sizes.batch, sizes.k, sizes.m} : Shape{sizes.batch, sizes.m, sizes.k};
  return sizes.transpose_b ? Shape{sizes.batch, sizes.n, sizes.k} : Shape{sizes.batch, sizes.k, sizes.n};
}

bool takes_tma_store(Dtype dtype, int64_t columns) { return dtype == Dtype::bf16 && columns % 8 == 0; }

// The product alone: panels of bf16 go out by TMA where a tensor map can describe the result, else by plain stores.
void emit_plain(Draft& draft, const GemmBuffers& buffers) {
  KernelBuilder& builder = draft.builder;
  const MatmulProblem& sizes = draft.group.sizes;
  const BufferId y = draft.results[0];
  const Dtype product = draft.program.type(draft.group.product).dtype;
  const bool by_tma = takes_tma_store(product, sizes.n);
  const BufferId map = by_tma ? builder.tensor_map("y_map", y, {1, kGroupRows, kPanel}, 128) : y;
  PanelStores panels(builder, draft.config, by_tma ? draft.config.blocks() * draft.config.tile_n / kPanel : 0);
  GemmEpilogue epilogue;
  epilogue.begin_tile = [&] { panels.begin_tile(); };
  epilogue.finish = [&] { panels.finish(); };
  epilogue.store = [&](const GemmSlice& slice) {
    const Value rounded = builder.cast(slice.sums[0], product);
    const std::vector<Index> at{slice.batch, slice.row, slice.column};
    if (by_tma)
      panels.put(rounded, map, at);
    else
      builder.store_tile(rounded, y, at, 1, min(sizes.n - slice.column, slice.columns),
                         min(sizes.m - slice.row, kGroupRows));
  };
  emit_gemm(builder, sizes, draft.config, buffers, epilogue);
}

BufferId buffer_of(const std::vector<ValueId>& values, const std::vector<BufferId>& buffers, ValueId value) {
  const auto at = std::find(values.begin(), values.end(), value);
  STEPC_CHECK(at != values.end(), "value {} is no operand of its group", index_of(value));
  return buffers[static_cast<size_t>(at - values.begin())];
}

}  // namespace

Result<std::optional<ScheduledKernel>> schedule_gemm(const Program& program, const Group& group,
                                                     const GpuTarget& target) {
  ScheduledKernel scheduled;
  scheduled.operands = group_operands(program, group);
  scheduled.results = group_results(program, group);
  const MatmulGroup matmul = analyse_matmul(program, group, scheduled.results);
  if (gemm_obstacle(matmul.sizes) || !matmul.plain) return std::optional<ScheduledKernel>();
  const GemmConfig config = pick_gemm(matmul.sizes, target);
  KernelBuilder builder("gemm", kernel::Target::sm90);
  Draft draft{program, matmul, config, builder, {}, {}};
  for (size_t i = 0; i < scheduled.operands.size(); ++i) {
    const ValueId value = scheduled.operands[i];
    draft.operands.push_back(
        builder.global(fmt::format("x{}", i), program.type(value).dtype, operand_shape(matmul, value)));
  }
  const Shape shape{matmul.sizes.batch, matmul.sizes.m, matmul.sizes.n};
  for (size_t i = 0; i < scheduled.results.size(); ++i)
    draft.results.push_back(builder.global(fmt::format("y{}", i), program.type(scheduled.results[i]).dtype, shape));
  scheduled.grid = config.tasks(matmul.sizes);
  builder.set_grid(scheduled.grid);
  builder.set_cluster(config.cluster);
  emit_plain(draft, {buffer_of(scheduled.operands, draft.operands, matmul.a),
                     buffer_of(scheduled.operands, draft.operands, matmul.b)});
  scheduled.kernel = builder.finish();
  STEPC_ASSIGN(scheduled.problem, group_problem(program, group));
  scheduled.config = describe(config);
  return std::optional(std::move(scheduled));
}

}  // namespace stepc::sm90
