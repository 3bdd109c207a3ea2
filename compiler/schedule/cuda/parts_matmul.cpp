// Products in f32 of a long bf16 operand with few columns of f32, such as a router's: by fused multiply-adds the
// numbers of A would cross shared memory widened and wait for it. An f32 number is the sum of three of bf16, exactly,
// and so is the product with a bf16 number the sum of three that the tensor cores make exactly and add in f32. A first
// kernel leaves the parts of B in workspace, a column of each beside the other two; the product's tiles are as for
// bf16, and the sums of a column's parts are added, the smallest first, before the epilogue. What is not finite stays
// so, but an infinity of A, which meets parts that are zero, gives NaN; and the parts of a number below 2^-110 lose
// bits that bf16 has no exponent for.
#include <algorithm>

#include "compiler/schedule/cuda/group_kernel.h"
#include "compiler/schedule/cuda/matmul.h"
#include "compiler/schedule/cuda/templates.h"
#include "compiler/schedule/region/tile_plan.h"
#include "ir/kernel/builder_gpu.h"
#include "ir/kernel/builder_hopper.h"

namespace stepc::cuda {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Value;

constexpr int64_t kParts = 3;
constexpr int64_t kEight = 8;         // columns that a product makes
constexpr int64_t kSplitLanes = 256;  // of a warp

int64_t padded_columns(const MatmulProblem& sizes) { return (sizes.n + kEight - 1) / kEight * kEight; }

// As it is multiplied: B is [3 parts of the columns, k].
MatmulProblem in_parts(const MatmulProblem& sizes) {
  MatmulProblem problem = sizes;
  problem.n = kParts * padded_columns(sizes);
  problem.b_dtype = problem.math_dtype = Dtype::bf16;
  problem.transpose_b = true;
  return problem;
}

// Four tasks share a multiprocessor, each with three blocks of k on their way.
MatmulConfig pick_parts(const MatmulProblem& problem) {
  MatmulConfig config{
      .block_m = 64, .block_n = problem.n, .block_k = 64, .stages = 4, .warps = 4, .copies = 1, .splits = 1};
  config.group = 1;
  return config;
}

// The numbers of one column of B for a run of k.
Value column_of_b(KernelBuilder& b, const MatmulProblem& sizes, BufferId from, Index column, Index k) {
  if (sizes.transpose_b) return b.load_first(from, {0, column, k}, {kSplitLanes}, sizes.k - k);
  Value lane = b.lane({kSplitLanes});
  if (sizes.k % kSplitLanes != 0)
    lane = b.pointwise(kernel::Op::min, {lane, b.splat(b.from_index(sizes.k - 1 - k), {kSplitLanes})});
  const Value step = b.constant(static_cast<double>(sizes.n), Dtype::i32, {kSplitLanes});
  return b.gather(from, {0, k, column}, b.pointwise(kernel::Op::mul, {lane, step}));
}

// x = high + middle + low.
std::vector<Value> split_number(KernelBuilder& b, Value x) {
  const Value zero = b.constant(0, Dtype::f32, {kSplitLanes});
  std::vector<Value> parts;
  for (int64_t part = 0; part < kParts; ++part) {
    parts.push_back(b.cast(x, Dtype::bf16));
    const Value taken = b.cast(parts.back(), Dtype::f32);
    const Value is_finite = b.pointwise(kernel::Op::is_finite, {taken});
    x = b.pointwise(kernel::Op::select, {is_finite, b.pointwise(kernel::Op::sub, {x, taken}), zero});
  }
  return parts;
}

// A task has a run of one column. Those that pad B's are zeros.
int64_t split_tasks(const MatmulProblem& sizes) {
  return padded_columns(sizes) * ((sizes.k + kSplitLanes - 1) / kSplitLanes);
}
void emit_split(KernelBuilder& b, const MatmulProblem& sizes, BufferId from, BufferId to) {
  const int64_t columns = padded_columns(sizes);
  const Index column = b.name("column", b.task() % columns);
  const Index k = b.name("k", b.task() / columns * kSplitLanes);
  Value number = column_of_b(b, sizes, from, min(column, sizes.n - 1), k);
  if (sizes.n < columns) {
    const Value limit = b.constant(static_cast<double>(sizes.n), Dtype::i32);
    const Value exists = b.pointwise(kernel::Op::less, {b.from_index(column), limit});
    const Value zero = b.constant(0, Dtype::f32, {kSplitLanes});
    number = b.pointwise(kernel::Op::select, {b.splat(exists, {kSplitLanes}), number, zero});
  }
  const std::vector<Value> parts = split_number(b, number);
  for (int64_t part = 0; part < kParts; ++part)
    b.store_first(parts[static_cast<size_t>(part)], to, {0, part * columns + column, k}, sizes.k - k);
}

Value sum_of_parts(KernelBuilder& b, Value sums, int64_t columns) {
  const auto part = [&](int64_t which) { return kernel::hopper::columns(b, sums, which * columns, columns); };
  const Value small = b.pointwise(kernel::Op::add, {part(2), part(1)});
  return b.pointwise(kernel::Op::add, {small, part(0)});
}

}  // namespace

bool is_of_parts(const MatmulGroup& matmul) {
  constexpr int64_t kMostColumns = 16, kLargeA = 1 << 18;
  const MatmulProblem& sizes = matmul.sizes;
  return sizes.math_dtype == Dtype::f32 && sizes.a_dtype == Dtype::bf16 && sizes.b_dtype == Dtype::f32 &&
         !sizes.transpose_a && sizes.batch == 1 && sizes.counted == CountedAxis::none && !sizes.halves && sizes.n > 0 &&
         sizes.n <= kMostColumns && sizes.k % kEight == 0 && sizes.m * sizes.k >= kLargeA;
}

Result<ScheduledKernel> schedule_matmul_of_parts(const Program& program, const Group& group,
                                                 const MatmulGroup& matmul) {
  const MatmulProblem problem = in_parts(matmul.sizes);
  const MatmulConfig config = pick_parts(problem);
  const int64_t columns = padded_columns(matmul.sizes);
  STEPC_ASSIGN(const TilePlan plan, plan_tiles(program, group, matmul, config.block_m, columns));
  const Shape parts{1, problem.n, problem.k};
  const std::string text = "b in three parts of bf16, " + describe(config);

  GroupKernel split(program, group, plan.shapes, "bf16_parts");
  const BufferId to = split.workspace(Dtype::bf16, parts);
  split.builder().set_grid(split_tasks(matmul.sizes));
  split.builder().begin_role("main", 1);
  emit_split(split.builder(), matmul.sizes, split.buffer(matmul.b), to);
  STEPC_ASSIGN(ScheduledKernel first, split.finish(split_tasks(matmul.sizes), text));

  GroupKernel product(program, group, plan.shapes);
  KernelBuilder& builder = product.builder();
  const MatmulBuffers buffers{product.buffer(matmul.a), product.workspace(Dtype::bf16, parts)};
  const int64_t tasks = config.tasks(problem);
  builder.set_grid(tasks);
  std::optional<std::string> failure;
  emit_matmul(builder, problem, config, buffers, [&](const MatmulTile& tile) {
    TileRegion region(builder, program, group, matmul, product.buffers(), plan.step);
    region.store({tile.batch, tile.row, tile.column, {sum_of_parts(builder, tile.sums[0], columns)}});
    failure = region.failure();
  });
  if (failure) return user_error("kernel @{}: a product of parts cannot make it: {}", group.name, *failure);
  STEPC_ASSIGN(ScheduledKernel second, product.finish(tasks, text));
  first.later.push_back({std::move(second.kernel), std::move(second.scalars), second.grid});
  return first;
}

}  // namespace stepc::cuda
