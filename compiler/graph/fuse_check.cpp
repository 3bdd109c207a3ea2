#include "compiler/graph/fuse_check.h"

#include <algorithm>

#include "compiler/graph/region.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

constexpr int64_t kSmallReduction = 16;

Region region_of(const Program& program, const Group& group) {
  return {group.schedule, group.nodes, group_results(program, group)};
}

}  // namespace

Status check_group(const Program& program, const Group& group) {
  const auto facts = analyse(program, region_of(program, group));
  if (facts) return {};
  Error error = facts.error();
  error.message = fmt::format("kernel @{}: {}", group.name, error.message);
  return tl::unexpected(std::move(error));
}

Status check_groups(const Program& program) {
  for (const Group& group : program.groups) STEPC_TRY(check_group(program, group));
  return {};
}

bool is_small_reduction(const Program& program, const Node& node) {
  if (op_info(node.op).family != OpFamily::reduction) return false;
  const Shape& from = program.type(node.operands[0]).shape;
  int64_t extent = 1;
  for (int64_t axis : node.attrs.integers(AttrKey::axes))
    extent = saturating_mul(extent, from[static_cast<size_t>(axis)]);
  return extent <= kSmallReduction;
}

ReductionAxes reduction_axes(const Program& program, const Node& reduction) {
  const Shape& from = program.type(reduction.operands[0]).shape;
  const std::vector<int64_t>& axes = reduction.attrs.integers(AttrKey::axes);
  // The runs of reduced and of kept axes, from the outermost on.
  std::vector<bool> runs;
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == 1) continue;
    const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d));
    if (runs.empty() || runs.back() != reduced) runs.push_back(reduced);
  }
  if (std::count(runs.begin(), runs.end(), true) > 1) return ReductionAxes::scattered;
  return runs.empty() || runs.back() ? ReductionAxes::trailing : ReductionAxes::middle;
}

ValueId store_base(const Program& program, const Group& group, ValueId result) {
  const auto inside = [&](ValueId id) {
    return std::binary_search(group.nodes.begin(), group.nodes.end(), program.value(id).producer);
  };
  while (inside(result)) {
    const Node& node = program.producer(result);
    const bool one_to_one = node.op == Op::reshape || node.op == Op::transpose || node.op == Op::reverse;
    if (!one_to_one) break;
    result = node.operands[0];
  }
  return result;
}

ColumnMap column_map(const Program& program, const Group& group) {
  const auto facts = analyse(program, region_of(program, group));
  STEPC_CHECK(facts.has_value(), "kernel @{}: {}", group.name, facts.error().message);
  return facts->columns;
}

}  // namespace stepc
