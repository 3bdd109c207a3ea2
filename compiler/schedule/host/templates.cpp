#include "compiler/schedule/host/templates.h"

#include <algorithm>
#include <bit>

#include "compiler/graph/fuse_check.h"
#include "compiler/kernel/drop_unused.h"
#include "compiler/kernel/hoist.h"
#include "compiler/kernel/sync_shared.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

// Buffers are named by their place, so that equal groups give equal kernels.
void declare_buffers(KernelBuilder& builder, const Problem& problem, Buffers& buffers) {
  const auto declare = [&](ValueId value, std::string name) {
    const TensorType& type = problem.program.type(value);
    const auto given = problem.shapes.find(value);
    const Shape shape = given != problem.shapes.end()  ? given->second
                        : buffers.flat.contains(value) ? Shape{numel(type.shape)}
                                                       : type.shape;
    buffers.ids[value] = builder.global(std::move(name), type.dtype, shape);
  };
  for (size_t i = 0; i < problem.operands.size(); ++i) declare(problem.operands[i], fmt::format("x{}", i));
  for (size_t i = 0; i < problem.results.size(); ++i) declare(problem.results[i], fmt::format("y{}", i));
}

// Row groups whose reductions are all small enough to be written out make vectors across rows instead.
bool has_only_small_reductions(const Program& program, const Group& group) {
  return std::all_of(group.nodes.begin(), group.nodes.end(), [&](NodeId id) {
    const Node& node = program.node(id);
    return op_info(node.op).family != OpFamily::reduction || is_small_reduction(program, node);
  });
}

// Experts of the routing by which the group gathers so many rows; 1 where there is none.
int64_t routed_experts(const Problem& problem, int64_t rows) {
  const Program& program = problem.program;
  for (NodeId id : problem.group.nodes) {
    const Node& node = program.node(id);
    if (node.op != Op::gather_rows || program.type(node.results[0]).shape[0] != rows) continue;
    const ValueId index = node.operands[1];
    const Node& routing = program.producer(index);
    if (routing.op == Op::route && routing.results[2] == index) return numel(program.type(routing.results[3]).shape);
  }
  return 1;
}

}  // namespace

Index row_task(const Problem& problem, Index task, int64_t tasks, int64_t rows) {
  const int64_t experts = problem.widths.is_gpu() ? routed_experts(problem, rows) : 1;
  if (experts == 1 || tasks == 0 || tasks % experts != 0 || rows % tasks != 0) return task;
  return task % Index(experts) * Index(tasks / experts) + task / Index(experts);
}

Result<Draft> build_one_role(const Problem& problem) {
  switch (problem.group.schedule) {
    case Template::pointwise: return build_pointwise(problem);
    case Template::row:
      if (has_only_small_reductions(problem.program, problem.group)) return build_pointwise(problem);
      return build_row(problem);
    case Template::column_sum: return build_column_sum(problem);
    case Template::scatter: return build_scatter(problem);
    case Template::route: return build_route(problem);
    case Template::matmul:
    case Template::attention:
    case Template::attention_grad: break;
  }
  STEPC_UNREACHABLE("template {} has several roles or is the host's own", static_cast<int>(problem.group.schedule));
}

Result<Draft> build_kernel(const Problem& problem, const Build& build) {
  Buffers buffers;
  const std::string name(template_name(problem.group.schedule));
  // Every turn makes at least one more buffer flat.
  for (size_t turn = 0; turn <= problem.operands.size() + problem.results.size(); ++turn) {
    KernelBuilder builder(name, problem.widths.target);
    buffers.ids.clear();
    declare_buffers(builder, problem, buffers);
    Region region(builder, problem.program, problem.group, buffers);
    const Built built = build(builder, region);
    if (region.math().overflowed()) region.fail("lanes would hold an index that does not fit 32 bits");
    if (region.failure()) {
      return user_error("kernel @{}: the {} template cannot make it: {}", problem.group.name, name, *region.failure());
    }
    const size_t flat_before = buffers.flat.size();
    buffers.flat.insert(buffers.needs_flat.begin(), buffers.needs_flat.end());
    if (buffers.flat.size() != flat_before) continue;
    kernel::Kernel kernel = drop_unused(hoist_invariants(builder.finish()));
    if (problem.widths.is_gpu()) kernel = sync_shared(std::move(kernel));
    return Draft{std::move(kernel), built, region.cost()};
  }
  STEPC_UNREACHABLE("the buffers of @{} do not settle", problem.group.name);
}

int64_t pick_width(int64_t extent, int64_t native, int64_t registers) {
  const auto padded = [&](int64_t width) {
    const int64_t tail = extent % width;
    return extent - tail + (tail == 0 ? 0 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tail))));
  };
  if (extent <= native) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(extent, 1))));
  int64_t best = native;
  for (int64_t width = native; width <= native * registers && width < 2 * extent; width *= 2)
    if (padded(width) * 16 <= padded(native) * 17) best = width;
  return best;
}

Lanes lanes_for(int64_t count) {
  return {static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count))), count, std::nullopt};
}

LaneIndex uniform_index(Index index) { return {index, {}, {}, {0, 0}}; }

void for_full_columns(Region& region, Index low, Index high, int64_t width,
                      const std::function<void(const LaneIndex&)>& body) {
  region.builder().loop("col", low, high, Index(width),
                        [&](Index c) { region.scope(lanes_for(width), [&] { body(region.math().along(c)); }); });
}

void for_tail(Region& region, int64_t extent, int64_t width, const std::function<void(const LaneIndex&)>& body) {
  const int64_t tail = extent % width;
  if (tail == 0) return;
  region.scope(lanes_for(tail), [&] { body(region.math().along(Index(extent - tail))); });
}

void for_columns(Region& region, int64_t extent, int64_t width, const std::function<void(const LaneIndex&)>& body) {
  for_full_columns(region, Index(0), Index(extent / width * width), width, body);
  for_tail(region, extent, width, body);
}

int64_t rows_per_task(const Widths& widths, int64_t rows, int64_t columns) {
  const int64_t elements = widths.task_elements;
  const int64_t rows_of_elements = std::max<int64_t>(1, elements / std::max<int64_t>(columns, 1));
  // Where there is work for several threads, at least eight tasks.
  const int64_t few = rows * columns > elements ? (rows + 7) / 8 : rows;
  return std::clamp<int64_t>(std::min(rows_of_elements, few), 1, std::max<int64_t>(rows, 1));
}

}  // namespace stepc::host
