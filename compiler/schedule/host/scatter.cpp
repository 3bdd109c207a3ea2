// The scatter template: rows of x added to the rows of the result that the index names. A task owns some
// rows of the result, in shared memory; it reads the whole index and adds what falls in its rows in
// ascending order, so the sum does not depend on the number of threads. What follows the sum is evaluated as
// the task's rows are complete.
#include <algorithm>

#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/views.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

constexpr int64_t kTasks = 16;

struct ScatterProblem {
  ValueId x = ValueId::none;
  ValueId index = ValueId::none;
  ValueId sum = ValueId::none;
  int64_t rows = 0;     // of x
  int64_t results = 0;  // rows of the sum
  int64_t columns = 0;
  int64_t width = 1;
  int64_t task_results = 1;
};

Result<ScatterProblem> analyse(const Problem& problem) {
  ScatterProblem scatter;
  for (NodeId id : problem.group.nodes) {
    const Node& node = problem.program.node(id);
    if (node.op != Op::scatter_add_rows) continue;
    if (scatter.sum != ValueId::none) {
      return user_error("kernel @{}: the scatter template makes one scatter_add_rows, found two", problem.group.name);
    }
    scatter.x = node.operands[0];
    scatter.index = node.operands[1];
    scatter.sum = node.results[0];
  }
  STEPC_CHECK(scatter.sum != ValueId::none, "a scatter group without scatter_add_rows");
  scatter.rows = problem.program.type(scatter.x).shape[0];
  scatter.results = problem.program.type(scatter.sum).shape[0];
  scatter.columns = problem.program.type(scatter.sum).shape[1];
  scatter.width = pick_width(scatter.columns, problem.widths.native, problem.widths.registers(4));
  const int64_t fitting = std::max<int64_t>(1, problem.widths.shared_bytes / 4 / std::max<int64_t>(scatter.columns, 1));
  scatter.task_results = std::clamp<int64_t>((scatter.results + kTasks - 1) / kTasks, 1, fitting);
  return scatter;
}

class ScatterBuilder {
 public:
  ScatterBuilder(const Problem& problem, const ScatterProblem& scatter, KernelBuilder& builder, Region& region)
      : problem_(problem), scatter_(scatter), builder_(builder), region_(region) {}

  void build() {
    rows_ = builder_.shared("rows", Dtype::f32, {scatter_.task_results, scatter_.columns});
    first_ = builder_.task() * Index(scatter_.task_results);
    each_column("r", Index(0), Index(scatter_.task_results), [this](Index r, const LaneIndex& c) {
      region_.store_lanes(region_.constant(0, Dtype::f32), rows_, {r, c.base});
    });
    if (problem_.widths.is_gpu()) {
      const int64_t width = pick_width(scatter_.rows, problem_.widths.native, problem_.widths.most_registers);
      for_columns(region_, scatter_.rows, width, [this](const LaneIndex& n) { add_found(n); });
    } else {
      builder_.loop("n", Index(0), Index(scatter_.rows), Index(1),
                    [this](Index n) { region_.scope(Lanes{}, [&] { add_row(n); }); });
    }
    region_.provide([this](ValueId value, const Position& at) { return provided(value, at); });
    const Index last = min(first_ + Index(scatter_.task_results), Index(scatter_.results));
    each_column("row", first_, last, [this](Index row, const LaneIndex& c) { store_results(row, c); });
  }

 private:
  void each_column(const char* name, Index low, Index high, const std::function<void(Index, const LaneIndex&)>& body) {
    builder_.loop(name, low, high, Index(1), [&](Index row) {
      for_columns(region_, scatter_.columns, scatter_.width, [&](const LaneIndex& c) { body(row, c); });
    });
  }

  // Of many rows at once, those whose index is a row of the task: the smallest number each time, in ascending order.
  void add_found(const LaneIndex& n) {
    const int64_t width = region_.lanes().width;
    const int64_t active = region_.lanes().active;
    const auto i32 = [&](int64_t value) { return builder_.constant(static_cast<double>(value), Dtype::i32); };
    const Fragment target = region_.wide_at(scatter_.index, {n});
    const Fragment local = builder_.pointwise(kernel::Op::sub, {target, region_.wide(builder_.from_index(first_))});
    Fragment mine =
        builder_.pointwise(kernel::Op::logical_and,
                           {builder_.pointwise(kernel::Op::less_equal, {region_.wide(i32(0)), local}),
                            builder_.pointwise(kernel::Op::less, {local, region_.wide(i32(scatter_.task_results))})});
    if (width == 1)
      return builder_.when(builder_.to_index(builder_.cast(mine, Dtype::i32), {0, 1}, "mine"),
                           [&] { region_.scope(Lanes{}, [&] { add_row(n.base); }); });
    const Fragment number = builder_.lane({width});
    if (active < width)
      mine = builder_.pointwise(kernel::Op::logical_and,
                                {mine, builder_.pointwise(kernel::Op::less, {number, region_.wide(i32(active))})});
    const Fragment count = builder_.reduce(kernel::Op::reduce_sum, builder_.cast(mine, Dtype::i32));
    const Fragment none = region_.wide(i32(width));
    builder_.loop("found", Index(0), builder_.to_index(count, {0, width}, "count"), Index(1), {i32(-1)},
                  [&](Index, const std::vector<Fragment>& carried) {
                    const Fragment later =
                        builder_.pointwise(kernel::Op::less, {builder_.splat(carried[0], {width}), number});
                    const Fragment left = builder_.pointwise(kernel::Op::logical_and, {mine, later});
                    const Fragment next = builder_.reduce(kernel::Op::reduce_min,
                                                          builder_.pointwise(kernel::Op::select, {left, number, none}));
                    const Index row = n.base + builder_.to_index(next, {0, width - 1}, "next");
                    region_.scope(Lanes{}, [&] { add_row(min(row, Index(scatter_.rows - 1))); });
                    return std::vector<Fragment>{next};
                  });
  }

  void add_row(Index n) {
    const Index row = region_.index_at(scatter_.index, {uniform_index(n)}, {-1, scatter_.results - 1});
    const Index local = row - first_;
    const Index mine = less(Index(-1), local) * less(local, Index(scatter_.task_results));
    builder_.when(mine, [&] {
      const Index place = max(min(local, Index(scatter_.task_results - 1)), Index(0));
      for_columns(region_, scatter_.columns, scatter_.width, [&](const LaneIndex& c) {
        Fragment element = region_.at(scatter_.x, {uniform_index(n), c});
        element = region_.wide(builder_.cast(element, Dtype::f32));
        const Fragment old = region_.load_lanes(rows_, {place, c.base});
        region_.store_lanes(builder_.pointwise(kernel::Op::add, {old, element}), rows_, {place, c.base});
      });
    });
  }

  std::optional<Fragment> provided(ValueId value, const Position& at) {
    if (value != scatter_.sum) return std::nullopt;
    if (position_key(builder_, at) != position_key(builder_, {uniform_index(row_), column_}))
      region_.fail(
          fmt::format("%{} is read at another element than the one stored", problem_.program.value(value).name));
    return region_.load_lanes(rows_, {row_ - first_, column_.base});
  }

  void store_results(Index row, const LaneIndex& c) {
    row_ = row;
    column_ = c;
    for (ValueId result : problem_.results) {
      const Shape& shape = problem_.program.type(result).shape;
      if (numel(shape) != scatter_.results * scatter_.columns)
        return region_.fail(fmt::format("%{} has another size than the sum", problem_.program.value(result).name));
      region_.store(result, reshape_position(region_.math(), {uniform_index(row), c},
                                             {scatter_.results, scatter_.columns}, shape));
    }
  }

  const Problem& problem_;
  const ScatterProblem& scatter_;
  KernelBuilder& builder_;
  Region& region_;
  BufferId rows_ = BufferId::none;
  Index first_;
  Index row_;
  LaneIndex column_;
};

}  // namespace

Result<Draft> build_scatter(const Problem& problem) {
  STEPC_ASSIGN(const ScatterProblem scatter, analyse(problem));
  const bool empty = scatter.columns == 0 || scatter.results == 0;
  const int64_t grid = empty ? 0 : (scatter.results + scatter.task_results - 1) / scatter.task_results;
  return build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
    builder.set_grid(Index(grid));
    builder.begin_role("main", problem.widths.warps);
    if (!empty) ScatterBuilder(problem, scatter, builder, region).build();
    return Built{grid, fmt::format("{} rows a task, lanes {}", scatter.task_results, scatter.width)};
  });
}

}  // namespace stepc::host
