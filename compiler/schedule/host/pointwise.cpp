// The pointwise template: loop nests over index spaces. Results are cut into boxes (boxes.h); boxes with as
// many elements share a nest of rows x columns, where columns are as many of the innermost dimensions as
// pay: all of them when every access is dense, one when the accesses tell rows apart. Lanes run along the
// columns. A nest's elements are split over tasks.
#include <algorithm>
#include <set>

#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/boxes.h"
#include "compiler/schedule/region/views.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

// Elements of a concatenated piece below which it is not worth a loop of its own.
constexpr int64_t kMinRun = 8;
// Nodes of a group up to which four registers' worth of lanes are worked on at once.
constexpr size_t kLightGroup = 24;

struct Nest {
  Shape extents;
  std::vector<Box> boxes;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t width = 1;
  int64_t rows_per_task = 1;
  int64_t columns_per_task = 1;  // a multiple of width, or columns
  int64_t row_tasks = 0;
  int64_t column_tasks = 0;

  int64_t tasks() const { return row_tasks * column_tasks; }
};

std::vector<Nest> make_nests(const Problem& problem, bool through_views) {
  std::vector<Nest> nests;
  for (ValueId result : problem.results) {
    for (Box& box : boxes_of(problem.program, problem.group, result, kMinRun, through_views)) {
      const int64_t elements = numel(box.extents);
      if (elements == 0) continue;
      const auto shares = [&](const Nest& nest) {
        return nest.extents == box.extents || (box.whole && numel(nest.extents) == elements);
      };
      auto nest = std::find_if(nests.begin(), nests.end(), shares);
      if (nest == nests.end()) nest = nests.insert(nests.end(), Nest{box.extents, {}});
      nest->boxes.push_back(std::move(box));
    }
  }
  return nests;
}

// Evaluates and stores every box at one vector of the nest.
void emit_vector(Region& region, const Nest& nest, Index row, const LaneIndex& column) {
  const Shape flat{nest.rows, nest.columns};
  region.set_space(nest.rows, nest.columns, row, column);
  for (const Box& box : nest.boxes) {
    Position at = reshape_position(region.math(), {uniform_index(row), column}, flat, box.extents);
    for (size_t d = 0; d < at.size(); ++d) at[d].base = at[d].base + Index(box.offset[d]);
    const Fragment value = region.at(box.value, at);
    region.store(value, box.result, stored_position(region.math(), region.program(), box, at));
  }
}

void emit_nest(const Problem& problem, Region& region, const Nest& nest, Index task) {
  const Index rows_of = row_task(problem, task / Index(nest.column_tasks), nest.row_tasks, nest.rows);
  const Index column_task = task % Index(nest.column_tasks);
  const Index first_row = rows_of * Index(nest.rows_per_task);
  const Index last_row = min(first_row + Index(nest.rows_per_task), Index(nest.rows));
  const Index full = Index(nest.columns / nest.width * nest.width);
  const Index first = column_task * Index(nest.columns_per_task);
  region.builder().loop("row", first_row, last_row, Index(1), [&](Index row) {
    const auto body = [&](const LaneIndex& column) { emit_vector(region, nest, row, column); };
    for_full_columns(region, first, min(first + Index(nest.columns_per_task), full), nest.width, body);
    region.builder().when(equal(column_task, Index(nest.column_tasks - 1)),
                          [&] { for_tail(region, nest.columns, nest.width, body); });
  });
}

void split_tasks(const Widths& widths, Nest& nest) {
  const int64_t most = widths.task_elements;
  nest.columns_per_task = nest.columns;
  nest.column_tasks = 1;
  if (nest.columns > 2 * most) {
    nest.column_tasks = (nest.columns + most - 1) / most;
    const int64_t share = (nest.columns + nest.column_tasks - 1) / nest.column_tasks;
    nest.columns_per_task = (share + nest.width - 1) / nest.width * nest.width;
    nest.column_tasks = (nest.columns + nest.columns_per_task - 1) / nest.columns_per_task;
  }
  nest.rows_per_task = rows_per_task(widths, nest.rows, nest.columns_per_task);
  nest.row_tasks = (nest.rows + nest.rows_per_task - 1) / nest.rows_per_task;
}

// Divisions of the column in what one vector executes.
int64_t count_divisions(const kernel::Kernel& kernel) {
  std::set<kernel::ExprId> seen;
  int64_t divisions = 0;
  const std::function<bool(kernel::ExprId)> visit = [&](kernel::ExprId id) -> bool {
    if (id == kernel::ExprId::none) return false;
    const kernel::Expr& expr = kernel.expr(id);
    if (expr.kind == kernel::ExprKind::variable) return kernel.variables[index_of(expr.variable)].name == "col";
    const bool by_column = static_cast<int>(visit(expr.a)) + static_cast<int>(visit(expr.b)) > 0;
    const bool divides = expr.kind == kernel::ExprKind::div || expr.kind == kernel::ExprKind::rem;
    if (by_column && divides && seen.insert(id).second) ++divisions;
    return by_column;
  };
  for (const kernel::KOp& op : kernel.ops) {
    for (const kernel::Ref& ref : op.refs)
      for (kernel::ExprId id : ref.at) visit(id);
    for (kernel::ExprId id : op.indices) visit(id);
  }
  return divisions;
}

// What the nest costs, in loads of one vector, found by making the code of one vector. An error where its
// code cannot be made.
Result<double> measure(const Problem& problem, const Nest& nest) {
  STEPC_ASSIGN(const Draft draft, build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
                 builder.set_grid(Index(1));
                 builder.begin_role("main", problem.widths.warps);
                 builder.loop("row", Index(0), Index(nest.rows), Index(1), [&](Index row) {
                   const auto body = [&](const LaneIndex& column) { emit_vector(region, nest, row, column); };
                   if (nest.columns >= nest.width)
                     for_full_columns(region, Index(0), Index(nest.columns / nest.width * nest.width), nest.width,
                                      body);
                   else
                     for_tail(region, nest.columns, nest.width, body);
                 });
                 return Built{};
               }));
  const double vectors =
      static_cast<double>(nest.rows) * static_cast<double>((nest.columns + nest.width - 1) / nest.width);
  const double per_row = 2 * static_cast<double>(nest.rows);
  return per_row + vectors * (draft.cost + 0.5 * static_cast<double>(count_divisions(draft.kernel)));
}

// A GPU's vectors are long: shorter ones, which still keep all threads busy, may lie in one piece of what they read.
int64_t narrowest_width(const Problem& problem, const Nest& nest) {
  return problem.widths.is_gpu() ? std::max<int64_t>(1, std::min(nest.width, problem.widths.native)) : nest.width;
}

// Columns of one, two, ... innermost dimensions: the cheapest, the most where equal.
Result<double> choose_columns(const Problem& problem, Nest& nest) {
  const int64_t registers = problem.group.nodes.size() <= kLightGroup ? 4 : 2;
  double best = -1;
  std::optional<Error> error;
  Nest chosen = nest;
  int64_t columns = 1;
  for (size_t inner = 0; inner <= nest.extents.size(); ++inner) {
    if (inner > 0) columns *= nest.extents[nest.extents.size() - inner];
    if (inner > 0 && nest.extents[nest.extents.size() - inner] == 1 && inner < nest.extents.size()) continue;
    if (inner == 0 && !nest.extents.empty()) continue;
    Nest candidate = nest;
    candidate.columns = columns;
    candidate.rows = numel(nest.extents) / columns;
    const int64_t widest = pick_width(columns, problem.widths.native, problem.widths.registers(registers));
    candidate.width = widest;
    for (const int64_t narrowest = narrowest_width(problem, candidate); candidate.width >= narrowest;
         candidate.width /= 2) {
      const Result<double> cost = measure(problem, candidate);
      if (!cost) {
        error = cost.error();
      } else if (best < 0 || (candidate.width == widest ? *cost <= best : *cost < best)) {
        best = *cost;
        chosen = candidate;
      }
    }
  }
  if (best < 0) return tl::unexpected(*error);
  nest = std::move(chosen);
  split_tasks(problem.widths, nest);
  return best;
}

std::string describe(const std::vector<Nest>& nests) {
  std::string text;
  for (const Nest& nest : nests) {
    text += fmt::format("{}{} x {}, lanes {}, tasks {} x {}", text.empty() ? "" : "; ", nest.rows, nest.columns,
                        nest.width, nest.row_tasks, nest.column_tasks);
  }
  return text;
}

struct Plan {
  std::vector<Nest> nests;
  double cost = 0;
  int64_t grid = 0;
};

Result<Plan> make_plan(const Problem& problem, bool through_views) {
  Plan plan{make_nests(problem, through_views)};
  for (Nest& nest : plan.nests) {
    STEPC_ASSIGN(const double cost, choose_columns(problem, nest));
    plan.cost += cost;
    plan.grid += nest.tasks();
  }
  return plan;
}

}  // namespace

Result<Draft> build_pointwise(const Problem& problem) {
  Result<Plan> plan = make_plan(problem, true);
  if (ends_in_views(problem.program, problem.group, problem.results)) {
    Result<Plan> direct = make_plan(problem, false);
    if (direct && (!plan || direct->cost < plan->cost)) plan = std::move(direct);
  }
  if (!plan) return tl::unexpected(plan.error());
  return build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
    builder.set_grid(Index(plan->grid));
    builder.begin_role("main", problem.widths.warps);
    int64_t first = 0;
    for (const Nest& nest : plan->nests) {
      const Index own = min(max(builder.task() - Index(first), Index(0)), Index(nest.tasks() - 1));
      const Index mine = less(Index(first - 1), builder.task()) * less(builder.task(), Index(first + nest.tasks()));
      builder.when(mine, [&] { emit_nest(problem, region, nest, own); });
      first += nest.tasks();
    }
    return Built{plan->grid, describe(plan->nests)};
  });
}

}  // namespace stepc::host
