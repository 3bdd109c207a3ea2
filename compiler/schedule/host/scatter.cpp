// The scatter template: rows of x added to the rows of the result that the index names. A task owns some
// rows of the result, in shared memory; it reads the whole index and adds what falls in its rows in
// ascending order, so the sum does not depend on the number of threads. What follows the sum is evaluated as
// the task's rows are complete.
//
// An index that names no row, which the evaluator refuses, is skipped, as -1 is: a kernel has nobody to tell, and must
// not write what is another's.
//
// On a GPU the longest chain of additions decides: words that are met often are often neighbours in a vocabulary. There
// every so many-th row is a task's, and several rows of x are read before the first is added.
#include <algorithm>

#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/views.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

constexpr int64_t kTasks = 16;
constexpr int64_t kRowsTogether = 4;  // of x, on a GPU
constexpr kernel::Range kAnyIndex{INT32_MIN, INT32_MAX};

struct ScatterProblem {
  ValueId x = ValueId::none;
  ValueId index = ValueId::none;
  ValueId sum = ValueId::none;
  int64_t rows = 0;     // of x
  int64_t results = 0;  // rows of the sum
  int64_t columns = 0;
  int64_t width = 1;
  int64_t task_results = 1;
  int64_t tasks = 0;
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
  scatter.tasks = (scatter.results + scatter.task_results - 1) / scatter.task_results;
  return scatter;
}

class ScatterBuilder {
 public:
  ScatterBuilder(const Problem& problem, const ScatterProblem& scatter, KernelBuilder& builder, Region& region)
      : problem_(problem), scatter_(scatter), builder_(builder), region_(region) {}

  void build() {
    rows_ = builder_.shared("rows", Dtype::f32, {scatter_.task_results, scatter_.columns});
    builder_.loop("r", Index(0), Index(scatter_.task_results), Index(1), [&](Index r) {
      each_part([&](const LaneIndex& c) { region_.store_lanes(region_.constant(0, Dtype::f32), rows_, {r, c.base}); });
    });
    if (problem_.widths.is_gpu())
      build_strided();
    else
      build_neighbours();
  }

 private:
  void build_neighbours() {
    first_ = builder_.task() * Index(scatter_.task_results);
    builder_.loop("n", Index(0), Index(scatter_.rows), Index(1),
                  [this](Index n) { region_.scope(Lanes{}, [&] { add_row(n); }); });
    region_.provide([this](ValueId value, const Position& at) { return provided(value, at); });
    const Index last = min(first_ + Index(scatter_.task_results), Index(scatter_.results));
    builder_.loop("row", first_, last, Index(1),
                  [&](Index row) { each_part([&](const LaneIndex& c) { store_results(row, row - first_, c); }); });
  }

  // Row r of the sum is the task's whose number is r % tasks.
  void build_strided() {
    const int64_t width = pick_width(scatter_.rows, problem_.widths.native, problem_.widths.most_registers);
    for_columns(region_, scatter_.rows, width, [this](const LaneIndex& n) { add_found(n); });
    region_.provide([this](ValueId value, const Position& at) { return provided(value, at); });
    builder_.loop("place", Index(0), Index(scatter_.task_results), Index(1), [&](Index place) {
      const Index row = builder_.task() + place * Index(scatter_.tasks);
      builder_.when(less(row, Index(scatter_.results)), [&] {
        const Index own = min(row, Index(scatter_.results - 1));
        each_part([&](const LaneIndex& c) { store_results(own, place, c); });
      });
    });
  }

  // The columns of a row: at once where the threads of a task can hold it.
  void each_part(const std::function<void(const LaneIndex&)>& body) {
    const Widths& widths = problem_.widths;
    const int64_t columns = scatter_.columns;
    if (!widths.is_gpu() || columns % (widths.native * 4) != 0 || columns / widths.native > kHeldElements)
      return for_columns(region_, columns, scatter_.width, body);
    region_.scope({columns, columns, std::nullopt}, [&] { body(region_.math().along(Index(0))); });
  }

  // Of many rows at once, those whose index is a row of the task: the smallest number each time, in ascending order.
  void add_found(const LaneIndex& n) {
    const int64_t width = region_.lanes().width;
    const int64_t active = region_.lanes().active;
    const auto i32 = [&](int64_t value) { return builder_.constant(static_cast<double>(value), Dtype::i32); };
    const Fragment target = region_.wide_at(scatter_.index, {n});
    const auto same = [&](Fragment a, Fragment b) { return builder_.pointwise(kernel::Op::equal, {a, b}); };
    const auto wide_less = [&](Fragment a, Fragment b) { return builder_.pointwise(kernel::Op::less, {a, b}); };
    const auto both = [&](Fragment a, Fragment b) { return builder_.pointwise(kernel::Op::logical_and, {a, b}); };
    const Fragment names_row =
        both(wide_less(region_.wide(i32(-1)), target), wide_less(target, region_.wide(i32(scatter_.results))));
    const Fragment owner = builder_.pointwise(kernel::Op::rem, {target, region_.wide(i32(scatter_.tasks))});
    Fragment mine = both(names_row, same(owner, region_.wide(builder_.from_index(builder_.task()))));
    if (width == 1) return add_rows({n.base}, {mine});
    const Fragment number = builder_.lane({width});
    if (active < width) mine = both(mine, wide_less(number, region_.wide(i32(active))));
    const Fragment count = builder_.reduce(kernel::Op::reduce_sum, builder_.cast(mine, Dtype::i32));
    const Fragment none = region_.wide(i32(width));
    const auto next_after = [&](Fragment last) {
      const Fragment left = both(mine, wide_less(builder_.splat(last, {width}), number));
      return builder_.reduce(kernel::Op::reduce_min, builder_.pointwise(kernel::Op::select, {left, number, none}));
    };
    builder_.loop("found", Index(0), builder_.to_index(count, {0, width}, "count"), Index(kRowsTogether), {i32(-1)},
                  [&](Index, const std::vector<Fragment>& carried) {
                    Fragment last = carried[0];
                    std::vector<Index> rows;
                    std::vector<Fragment> found;
                    for (int64_t i = 0; i < kRowsTogether; ++i) {
                      last = next_after(last);
                      found.push_back(wide_less(last, i32(width)));
                      const Index row = n.base + builder_.to_index(last, {0, width}, "next");
                      rows.push_back(min(row, Index(scatter_.rows - 1)));
                    }
                    region_.scope(Lanes{}, [&] { add_rows(rows, found); });
                    return std::vector<Fragment>{last};
                  });
  }

  // Those rows of x that are found, in order; all are read before the first is added.
  void add_rows(const std::vector<Index>& rows, const std::vector<Fragment>& found) {
    std::vector<Index> places;
    for (Index row : rows) {
      const Fragment target = region_.at(scatter_.index, {uniform_index(row)});
      const Index to = builder_.to_index(target, kAnyIndex, "to");
      places.push_back(max(min(to, Index(scatter_.results - 1)), Index(0)) / Index(scatter_.tasks));
    }
    each_part([&](const LaneIndex& c) {
      std::vector<Fragment> elements;
      for (size_t i = 0; i < rows.size(); ++i) {
        const Fragment element = builder_.cast(region_.at(scatter_.x, {uniform_index(rows[i]), c}), Dtype::f32);
        const Fragment zero = region_.wide(region_.constant(0, Dtype::f32));
        elements.push_back(
            builder_.pointwise(kernel::Op::select, {region_.wide(found[i]), region_.wide(element), zero}));
      }
      for (size_t i = 0; i < rows.size(); ++i) {
        const Fragment old = region_.load_lanes(rows_, {places[i], c.base});
        region_.store_lanes(builder_.pointwise(kernel::Op::add, {old, elements[i]}), rows_, {places[i], c.base});
      }
    });
  }

  void add_row(Index n) {
    const Index row = region_.index_at(scatter_.index, {uniform_index(n)}, kAnyIndex);
    const Index local = row - first_;
    const Index mine = less(Index(-1), local) * less(local, Index(scatter_.task_results));
    builder_.when(mine, [&] {
      const Index place = max(min(local, Index(scatter_.task_results - 1)), Index(0));
      each_part([&](const LaneIndex& c) {
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
    return region_.load_lanes(rows_, {place_, column_.base});
  }

  void store_results(Index row, Index place, const LaneIndex& c) {
    row_ = row;
    place_ = place;
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
  Index place_;  // of the row in shared memory
  LaneIndex column_;
};

}  // namespace

Result<Draft> build_scatter(const Problem& problem) {
  STEPC_ASSIGN(const ScatterProblem scatter, analyse(problem));
  const bool empty = scatter.columns == 0 || scatter.results == 0;
  const int64_t grid = empty ? 0 : scatter.tasks;
  return build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
    builder.set_grid(Index(grid));
    builder.begin_role("main", problem.widths.warps);
    if (!empty) ScatterBuilder(problem, scatter, builder, region).build();
    return Built{grid, fmt::format("{} rows a task, lanes {}", scatter.task_results, scatter.width)};
  });
}

}  // namespace stepc::host
