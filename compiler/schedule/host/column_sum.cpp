// The column template: a reduction over the leading rows of [outer, rows, columns], lanes along the columns,
// rows in ascending order. Tasks own blocks of columns. What follows the reduction is evaluated where it is
// complete.
#include <algorithm>
#include <limits>

#include "compiler/graph/fuse_check.h"
#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/boxes.h"
#include "compiler/schedule/region/views.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

// On a GPU, rows that are under way at once. Few columns make few tasks, each as slow as its loads follow one another:
// then a task's columns are as many as its threads, and more rows are under way.
constexpr int64_t kRowsTogether = 8;
constexpr int64_t kRowsOfFewTasks = 32;

struct ColumnProblem {
  std::vector<ValueId> reductions;
  std::vector<int64_t> axes;
  Shape operand;        // shape of what is reduced
  int64_t rows = 1;     // along the reduced axes
  int64_t outer = 1;    // kept, before the last reduced axis
  int64_t columns = 1;  // kept, after it
  int64_t width = 1;
  int64_t columns_per_task = 1;
  int64_t rows_together = 1;
};

void spread_out(const Widths& widths, ColumnProblem& columns) {
  columns.rows_together = kRowsTogether;
  const int64_t tasks = columns.outer * ((columns.columns + columns.columns_per_task - 1) / columns.columns_per_task);
  if (tasks > kMultiprocessors || columns.rows < 2 * kRowsOfFewTasks) return;
  columns.width = columns.columns_per_task = pick_width(columns.columns, widths.native, 1);
  columns.rows_together = kRowsOfFewTasks;
}

Result<ColumnProblem> analyse(const Problem& problem) {
  const Program& program = problem.program;
  ColumnProblem columns;
  const auto is_long = [&](NodeId id) {
    const Node& node = program.node(id);
    return op_info(node.op).family == OpFamily::reduction && !is_small_reduction(program, node);
  };
  // Beside long reductions the small ones are mere arithmetic.
  const bool any_long = std::any_of(problem.group.nodes.begin(), problem.group.nodes.end(), is_long);
  for (NodeId id : problem.group.nodes) {
    const Node& node = program.node(id);
    if (op_info(node.op).family != OpFamily::reduction || (any_long && !is_long(id))) continue;
    const Shape& shape = program.type(node.operands[0]).shape;
    const std::vector<int64_t>& axes = node.attrs.integers(AttrKey::axes);
    if (!columns.reductions.empty() && (shape != columns.operand || axes != columns.axes)) {
      return user_error("kernel @{}: the column_sum template cannot make it: reductions of {} and of {}",
                        problem.group.name, shape_text(columns.operand), shape_text(shape));
    }
    columns.operand = shape;
    columns.axes = axes;
    columns.reductions.push_back(node.results[0]);
  }
  if (columns.reductions.empty())
    return user_error("kernel @{}: the column_sum template needs a reduction", problem.group.name);
  for (size_t d = 0; d < columns.operand.size(); ++d) {
    const auto axis = static_cast<int64_t>(d);
    const bool reduced = std::binary_search(columns.axes.begin(), columns.axes.end(), axis);
    int64_t& extent = reduced ? columns.rows : (axis < columns.axes.back() ? columns.outer : columns.columns);
    extent *= columns.operand[d];
  }
  columns.width = pick_width(columns.columns, problem.widths.native, problem.widths.registers(4));
  const int64_t share =
      std::max<int64_t>(columns.width, (problem.widths.is_gpu() ? problem.widths.task_elements : 32768) /
                                           std::max<int64_t>(columns.rows, 1));
  columns.columns_per_task = (std::min(share, columns.columns) + columns.width - 1) / columns.width * columns.width;
  if (problem.widths.is_gpu() && columns.columns > 0) spread_out(problem.widths, columns);
  return columns;
}

class ColumnBuilder {
 public:
  ColumnBuilder(const Problem& problem, const ColumnProblem& columns, KernelBuilder& builder, Region& region)
      : problem_(problem), columns_(columns), builder_(builder), region_(region) {}

  void build(int64_t column_tasks) {
    region_.provide([this](ValueId value, const Position& at) { return provided(value, at); });
    outer_ = builder_.task() / Index(column_tasks);
    const Index block = builder_.task() % Index(column_tasks);
    const Index first = block * Index(columns_.columns_per_task);
    const Index full(columns_.columns / columns_.width * columns_.width);
    const auto body = [this](const LaneIndex& c) { reduce(c); };
    for_full_columns(region_, first, min(first + Index(columns_.columns_per_task), full), columns_.width, body);
    builder_.when(equal(block, Index(column_tasks - 1)),
                  [&] { for_tail(region_, columns_.columns, columns_.width, body); });
  }

 private:
  std::optional<Fragment> provided(ValueId value, const Position& at) {
    auto sum = sums_.find(value);
    if (sum == sums_.end()) return std::nullopt;
    if (position_key(builder_, at) != position_key(builder_, kept_position(value)))
      region_.fail(fmt::format("%{} is read at another column than the one it was summed over",
                               problem_.program.value(value).name));
    return sum->second;
  }

  // Where the reduction's result is for this outer index and column.
  Position kept_position(ValueId value) {
    return reshape_position(region_.math(), {uniform_index(outer_), column_}, {columns_.outer, columns_.columns},
                            problem_.program.type(value).shape);
  }

  // The operand's position for one row: its dimensions are kept ones and reduced ones.
  Position operand_position(ValueId reduction, Index row) {
    const Position kept = kept_position(reduction);
    Shape reduced_shape;
    for (int64_t axis : columns_.axes) reduced_shape.push_back(columns_.operand[static_cast<size_t>(axis)]);
    const Position reduced = reshape_position(region_.math(), {uniform_index(row)}, {columns_.rows}, reduced_shape);
    Position at;
    for (size_t d = 0, k = 0, r = 0; d < columns_.operand.size(); ++d) {
      const bool is_reduced = std::binary_search(columns_.axes.begin(), columns_.axes.end(), static_cast<int64_t>(d));
      at.push_back(is_reduced ? reduced[r++] : kept[k++]);
    }
    return at;
  }

  Op op_of(ValueId value) const { return problem_.program.producer(value).op; }

  void reduce(const LaneIndex& column) {
    column_ = column;
    sums_.clear();
    const Shape wide = region_.lanes().width > 1 ? Shape{region_.lanes().width} : Shape{};
    std::vector<Fragment> initial;
    for (ValueId value : columns_.reductions)
      initial.push_back(builder_.constant(reduction_start(op_of(value)), Dtype::f32, wide));
    // They are added in order all the same.
    const int64_t together = columns_.rows_together;
    const int64_t whole = columns_.rows / together * together;
    std::vector<Fragment> sums = add_rows(0, whole, together, initial);
    if (whole < columns_.rows) sums = add_rows(whole, columns_.rows, 1, sums);
    for (size_t i = 0; i < sums.size(); ++i) sums_[columns_.reductions[i]] = sums[i];
    store_results();
  }

  std::vector<Fragment> add_rows(int64_t low, int64_t high, int64_t step, const std::vector<Fragment>& initial) {
    const Lanes lanes = region_.lanes();
    return builder_.loop("row", Index(low), Index(high), Index(step), initial,
                         [&](Index row, const std::vector<Fragment>& carried) {
                           std::vector<Fragment> next = carried;
                           region_.scope(lanes, [&] { add_elements(row, step, next); });
                           return next;
                         });
  }

  void add_elements(Index row, int64_t count, std::vector<Fragment>& sums) {
    for (size_t i = 0; i < sums.size(); ++i) {
      const ValueId value = columns_.reductions[i];
      const ValueId operand = problem_.program.producer(value).operands[0];
      std::vector<Fragment> elements;
      for (int64_t r = 0; r < count; ++r)
        elements.push_back(region_.wide_at(operand, operand_position(value, row + Index(r))));
      for (Fragment element : elements) sums[i] = builder_.pointwise(reduction_step(op_of(value)), {sums[i], element});
    }
  }

  void store_results() {
    for (ValueId result : problem_.results) {
      for (const Box& box : boxes_of(problem_.program, problem_.group, result, INT64_MAX, true)) {
        if (numel(box.extents) != columns_.outer * columns_.columns) {
          region_.fail(fmt::format("%{} has {} elements for {} columns", problem_.program.value(box.value).name,
                                   numel(box.extents), columns_.outer * columns_.columns));
          return;
        }
        const Position at = reshape_position(region_.math(), {uniform_index(outer_), column_},
                                             {columns_.outer, columns_.columns}, box.extents);
        region_.store(region_.at(box.value, at), result, stored_position(region_.math(), problem_.program, box, at));
      }
    }
  }

  const Problem& problem_;
  const ColumnProblem& columns_;
  KernelBuilder& builder_;
  Region& region_;
  Index outer_;
  LaneIndex column_;
  std::map<ValueId, Fragment> sums_;
};

}  // namespace

Result<Draft> build_column_sum(const Problem& problem) {
  STEPC_ASSIGN(const ColumnProblem columns, analyse(problem));
  const int64_t kept = columns.outer * columns.columns;
  const int64_t column_tasks =
      kept == 0 ? 1 : (columns.columns + columns.columns_per_task - 1) / columns.columns_per_task;
  const int64_t grid = kept == 0 ? 0 : columns.outer * column_tasks;
  return build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
    builder.set_grid(Index(grid));
    builder.begin_role("main", problem.widths.warps);
    if (kept > 0) ColumnBuilder(problem, columns, builder, region).build(column_tasks);
    return Built{grid, fmt::format("lanes {}, {} columns a task", columns.width, columns.columns_per_task)};
  });
}

}  // namespace stepc::host
