// How many threads a CTA has, and how much of the group it takes. Memory speed is what matters: every thread moves 16
// bytes at a time where values are bf16, or f32 of them at 4 elements a thread; a row is one CTA's, of as many threads
// as it keeps busy.
#include "compiler/schedule/cuda/one_role.h"

#include <algorithm>
#include <bit>
#include <set>

#include "compiler/schedule/cuda/route.h"
#include "compiler/schedule/host/templates.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc::cuda {
namespace {

using host::Draft;
using host::Problem;
using schedule::Widths;

constexpr int64_t kWarp = 32;
constexpr int64_t kSharedBytes = 96 * 1024;  // two CTAs on an SM
constexpr int64_t kMostTurns = 4;            // vectors that each thread goes through
constexpr int64_t kTaskElements = 4096;      // that are worth a CTA, however few its threads
constexpr int64_t kTasksWanted = 1056;       // 8 on each of 132 SMs

int64_t largest(const Problem& problem) {
  int64_t elements = 0;
  for (const auto* values : {&problem.operands, &problem.results})
    for (ValueId value : *values) elements = std::max(elements, numel(problem.program.type(value).shape));
  return elements;
}

// Elements of one access of 16 bytes; where dtypes are mixed, of the widest one's. What is small does not count.
int64_t vector_elements(const Problem& problem) {
  const int64_t most = largest(problem);
  const auto is_wide = [&](ValueId value) {
    const TensorType& type = problem.program.type(value);
    return dtype_bytes(type.dtype) == 4 && numel(type.shape) * 4 >= most;
  };
  const bool wide = std::any_of(problem.operands.begin(), problem.operands.end(), is_wide) ||
                    std::any_of(problem.results.begin(), problem.results.end(), is_wide);
  return wide ? 4 : 8;
}

Widths widths_of(const Problem& problem, int64_t warps) {
  Widths widths;
  widths.target = kernel::Target::cuda;
  widths.warps = static_cast<int>(warps);
  widths.native = kWarp * warps;
  widths.most_registers = vector_elements(problem);
  const int64_t vector = widths.native * widths.most_registers;
  const int64_t most = std::max(kMostTurns, kTaskElements / vector);
  widths.task_elements = vector * std::clamp<int64_t>(largest(problem) / vector / kTasksWanted, 1, most);
  widths.shared_bytes = kSharedBytes;
  return widths;
}

// Warps that elements side by side keep busy, in two turns at least where there are several warps.
int64_t warps_for(const Problem& problem, int64_t elements, int64_t most) {
  const int64_t threads = elements / vector_elements(problem) / 2;
  const auto warps = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(threads / kWarp, 1))));
  return std::min(warps, most);
}

// Of the group's longest reduction, the elements of one row of it.
int64_t reduced_columns(const Problem& problem) {
  int64_t longest = 1;
  for (NodeId id : problem.group.nodes) {
    const Node& node = problem.program.node(id);
    if (op_info(node.op).family != OpFamily::reduction) continue;
    const Shape& shape = problem.program.type(node.operands[0]).shape;
    int64_t columns = 1;
    for (int64_t axis : node.attrs.integers(AttrKey::axes)) columns *= shape[static_cast<size_t>(axis)];
    const auto& axes = node.attrs.integers(AttrKey::axes);
    const bool along_last = !axes.empty() && axes.back() + 1 == static_cast<int64_t>(shape.size());
    if (along_last)
      longest = std::max(longest, columns);
    else if (!shape.empty())
      longest = std::max(longest, shape.back());
  }
  return longest;
}

int64_t last_extent(const Problem& problem) {
  int64_t longest = 1;
  for (ValueId result : problem.results) {
    const Shape& shape = problem.program.type(result).shape;
    if (!shape.empty()) longest = std::max(longest, shape.back());
  }
  return longest;
}

// Warps to try, the first preferred.
std::vector<int64_t> candidate_warps(const Problem& problem) {
  constexpr int64_t kLongRow = 16384;
  switch (problem.group.schedule) {
    case Template::pointwise: return {8, 1};
    case Template::row: {
      const int64_t columns = reduced_columns(problem);
      return {warps_for(problem, columns, columns > kLongRow ? 16 : 8)};
    }
    case Template::column_sum: return {1};
    case Template::scatter: return {warps_for(problem, last_extent(problem), 8)};
    case Template::route: return {16};
    case Template::matmul:
    case Template::attention:
    case Template::attention_grad: break;
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(problem.group.schedule));
}

// Elements that lie apart are moved one by one: narrower rows may avoid it.
bool moves_apart(const kernel::Kernel& kernel) {
  return std::any_of(kernel.ops.begin(), kernel.ops.end(),
                     [](const kernel::KOp& op) { return op.op == kernel::Op::gather || op.op == kernel::Op::scatter; });
}

// The stream of random_bits becomes a launch scalar, so that the tensors of one shape share a kernel: a model has a
// stream for each parameter.
void pass_streams(ScheduledKernel& scheduled) {
  kernel::Kernel& kernel = scheduled.kernel;
  std::set<kernel::FragId> streams;
  for (const kernel::KOp& op : kernel.ops)
    if (op.op == kernel::Op::random_bits) streams.insert(op.frags[1]);
  for (kernel::KOp& op : kernel.ops) {
    if (op.op != kernel::Op::constant || !streams.contains(op.results[0])) continue;
    const size_t number = kernel.scalars.size();
    kernel.variables.push_back({number == 0 ? "stream" : fmt::format("stream_{}", number), {INT32_MIN, INT32_MAX}, 1});
    const auto variable = static_cast<kernel::VarId>(kernel.variables.size() - 1);
    kernel.scalars.push_back(variable);
    scheduled.scalars.push_back(static_cast<int64_t>(std::get<double>(kernel::find_attr(op, "value")->value)));
    kernel.exprs.push_back({kernel::ExprKind::variable, 0, variable});
    op.op = kernel::Op::from_index;
    op.indices = {static_cast<kernel::ExprId>(kernel.exprs.size() - 1)};
    op.attrs.clear();
  }
}

}  // namespace

Result<ScheduledKernel> schedule_one_role(const Program& program, const Group& group) {
  const HostTarget no_host;
  Problem problem{program, group, no_host, {}, group_operands(program, group), group_results(program, group)};
  STEPC_ASSIGN(std::string text, group_problem(program, group));
  std::optional<Draft> chosen;
  int64_t threads = 0;
  for (int64_t warps : candidate_warps(problem)) {
    problem.widths = widths_of(problem, warps);
    STEPC_ASSIGN(Draft draft,
                 group.schedule == Template::route ? cuda::build_route(problem) : host::build_one_role(problem));
    const bool is_better = !chosen || (moves_apart(chosen->kernel) && !moves_apart(draft.kernel));
    if (is_better) chosen = std::move(draft), threads = kWarp * warps;
    if (!moves_apart(chosen->kernel)) break;
  }
  ScheduledKernel scheduled;
  scheduled.kernel = std::move(chosen->kernel);
  scheduled.operands = problem.operands;
  scheduled.results = problem.results;
  scheduled.grid = chosen->built.grid;
  scheduled.workspace_bytes = chosen->built.workspace_bytes;
  scheduled.problem = std::move(text);
  scheduled.config = fmt::format("{} threads, {}", threads, chosen->built.config);
  pass_streams(scheduled);
  return scheduled;
}

}  // namespace stepc::cuda
