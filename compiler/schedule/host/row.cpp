// The row template: rows in parallel, each read several times. A reduction over a row's columns is made in a
// pass over them, together with every other reduction that can be made by then; its sum is a scalar for the
// passes after it. The last pass stores the results. Sums over the rows of a task ("partials": a reduction
// over the middle of [tasks, rows of a task, columns]) are gathered in shared memory beside the last pass.
// Values that are costly and needed by several passes stay in a shared row.
//
// On a GPU a row that the threads of a task can hold is read once: every pass works on all of its columns, what one has
// loaded the next has in registers.
#include <algorithm>
#include <limits>
#include <set>

#include "compiler/schedule/host/row_problem.h"
#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/boxes.h"
#include "compiler/schedule/region/views.h"
#include "ir/kernel/builder_gpu.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

// Does a task's threads' worth of whole vectors make a row, and is a row all that results are made of?
bool is_held(const Widths& widths, const RowProblem& rows) {
  if (!widths.is_gpu() || rows.columns == 0 || rows.columns % (widths.native * widths.most_registers) != 0)
    return false;
  const auto fits = [&](const RowSweep& sweep) {
    return sweep.columns == rows.columns || (sweep.columns == 1 && sweep.partials.empty());
  };
  return rows.columns / widths.native <= kHeldElements && std::all_of(rows.sweeps.begin(), rows.sweeps.end(), fits);
}

class RowBuilder {
 public:
  RowBuilder(const Problem& problem, const RowProblem& rows, int64_t task_rows, KernelBuilder& builder, Region& region)
      : problem_(problem), rows_(rows), task_rows_(task_rows), builder_(builder), region_(region) {}

  void build() {
    region_.provide([this](ValueId value, const Position& at) { return provided(value, at); });
    for (ValueId partial : rows_.partials) {
      const int64_t columns = numel(problem_.program.type(partial).shape) / rows_.tasks;
      shared_[partial] = builder_.shared("sum", Dtype::f32, {columns});
      zero(shared_[partial], columns);
    }
    for (ValueId kept : rows_.kept) {
      const Dtype dtype = region_.contains(kept) ? Dtype::f32 : problem_.program.type(kept).dtype;
      kept_[kept] = builder_.shared("row_values", dtype, {rows_.columns});
    }
    const Lanes whole_row{rows_.columns, rows_.columns, std::nullopt};
    each_row([&](Index row) {
      row_ = row;
      sums_.clear();
      written_.clear();
      if (is_held(problem_.widths, rows_)) return region_.scope(whole_row, [&] { held_row(); });
      for (size_t level = 1; level <= rows_.levels.size(); ++level) reduce_level(level);
      last_pass();
    });
    for (ValueId partial : rows_.partials) store_partial(partial);
  }

 private:
  int64_t width(int64_t columns) const {
    return pick_width(columns, problem_.widths.native, problem_.widths.registers(rows_.registers));
  }

  void zero(BufferId buffer, int64_t columns) {
    for_columns(region_, columns, width(columns),
                [&](const LaneIndex& c) { region_.store_lanes(region_.constant(0, Dtype::f32), buffer, {c.base}); });
  }

  // What is loaded stays until the results are made; all of it is asked for before the first reduction is waited for.
  void held_row() {
    column_ = region_.math().along(Index(0));
    for (ValueId operand : problem_.operands)
      if (numel(problem_.program.type(operand).shape) == rows_.rows * rows_.columns)
        region_.at(operand, position_of(operand, column_));
    for (size_t level = 0; level < rows_.levels.size(); ++level) {
      pick_elements(level + 1);
      const std::vector<ValueId>& reductions = rows_.levels[level];
      const std::vector<Fragment> elements = elements_of(reductions, column_);
      for (size_t i = 0; i < reductions.size(); ++i)
        sums_[reductions[i]] = builder_.reduce(reduction_across(op_of(reductions[i])), elements[i]);
    }
    for (const RowSweep& sweep : rows_.sweeps) {
      if (sweep.columns != rows_.columns) continue;
      store_boxes(sweep, column_);
      for (ValueId partial : sweep.partials) add_partial(partial, column_);
    }
    for (const RowSweep& sweep : rows_.sweeps)
      if (sweep.columns != rows_.columns) region_.scope(Lanes{}, [&] { store_boxes(sweep, uniform_index(Index(0))); });
  }

  // A task's rows are consecutive; with partials there are as many in every task.
  void each_row(const std::function<void(Index)>& body) {
    const Lanes scalar;
    const auto in_scope = [&](Index row) { region_.scope(scalar, [&] { body(row); }); };
    const int64_t tasks = (rows_.rows + task_rows_ - 1) / task_rows_;
    const Index first = row_task(problem_, builder_.task(), tasks, rows_.rows) * Index(task_rows_);
    if (rows_.partials.empty()) {
      builder_.loop("row", first, min(first + Index(task_rows_), Index(rows_.rows)), Index(1), in_scope);
    } else {
      builder_.loop("r", Index(0), Index(task_rows_), Index(1), [&](Index r) { in_scope(first + r); });
    }
  }

  // Sums of this row, and what the shared row holds.
  std::optional<Fragment> provided(ValueId value, const Position& at) {
    if (auto sum = sums_.find(value); sum != sums_.end()) {
      const Position mine =
          reshape_position(region_.math(), {uniform_index(row_)}, {rows_.rows}, problem_.program.type(value).shape);
      if (position_key(builder_, mine) == position_key(builder_, at)) return sum->second;
      region_.fail(fmt::format("%{} is read at another row than the one it was summed over",
                               problem_.program.value(value).name));
      return sum->second;
    }
    if (!written_.contains(value)) return std::nullopt;
    if (picked_ && position_key(builder_, at) == position_key(builder_, position_of(value, *picked_)))
      return builder_.load(kept_.at(value), {picked_->base}, {});
    if (position_key(builder_, at) != position_key(builder_, position_of(value, column_))) return std::nullopt;
    return region_.load_lanes(kept_.at(value), {column_.base});
  }

  // Where a value with a row's shape is at this row and that column.
  Position position_of(ValueId value, const LaneIndex& column) {
    const Shape& shape = problem_.program.type(value).shape;
    return reshape_position(region_.math(), {uniform_index(row_), column}, {rows_.rows, numel(shape) / rows_.rows},
                            shape);
  }

  // The operand of a reduction: kept dimensions from the row, reduced ones from the column.
  Position operand_position(ValueId reduction, const LaneIndex& column) {
    return position_of(problem_.program.producer(reduction).operands[0], column);
  }

  Fragment idle_to(double identity, Fragment value) {
    const Lanes& lanes = region_.lanes();
    if (lanes.active == lanes.width) return value;
    const Fragment limit = region_.wide(builder_.constant(static_cast<double>(lanes.active), Dtype::i32));
    const Fragment active = builder_.pointwise(kernel::Op::less, {builder_.lane({lanes.width}), limit});
    return builder_.pointwise(kernel::Op::select,
                              {active, value, region_.wide(builder_.constant(identity, Dtype::f32))});
  }

  Op op_of(ValueId value) const { return problem_.program.producer(value).op; }

  // Every thread reads the element for itself, before any thread may store over the row.
  void pick_elements(size_t level) {
    for (const RowPick& pick : rows_.picks[level - 1]) sums_[pick.sum] = picked(pick);
    if (problem_.widths.is_gpu() && !rows_.picks[level - 1].empty()) kernel::gpu::sync_task(builder_);
  }

  Fragment picked(const RowPick& pick) {
    const auto in_row = [&](ValueId value, const LaneIndex& column) { return position_of(value, column); };
    const Index number = region_.index_at(pick.number, in_row(pick.number, uniform_index(Index(0))),
                                          {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()});
    const LaneIndex column = region_.math().clamp(uniform_index(number), 0, rows_.columns - 1);
    picked_ = column;
    const Fragment value = region_.at(pick.value, in_row(pick.value, column));
    picked_.reset();
    const Fragment is_there = region_.math().inside(uniform_index(number), 0, rows_.columns).inside;
    return builder_.pointwise(kernel::Op::select, {is_there, value, builder_.constant(0, Dtype::f32)});
  }

  // On a GPU the pass that brings a row has some of its vectors under way at once.
  int64_t vectors_together(size_t level, int64_t vectors) const {
    constexpr int64_t kMost = 4;
    const auto brings = [&](const auto& kept) { return kept.second == level; };
    if (!rows_.keeps_operands || std::none_of(rows_.kept_at.begin(), rows_.kept_at.end(), brings)) return 1;
    for (int64_t together = kMost; together > 1; --together)
      if (vectors % together == 0) return together;
    return 1;
  }

  std::vector<Fragment> add_vectors(size_t level, Index first, int64_t lanes, int64_t together,
                                    std::vector<Fragment> sums) {
    const std::vector<ValueId>& reductions = rows_.levels[level - 1];
    for (int64_t i = 0; i < together; ++i)
      for (const auto& [value, kept_level] : rows_.kept_at)
        if (together > 1 && kept_level == level)
          region_.at(value, position_of(value, region_.math().along(first + Index(i * lanes))));
    for (int64_t i = 0; i < together; ++i) {
      const std::vector<Fragment> elements = elements_of(reductions, region_.math().along(first + Index(i * lanes)));
      keep(level);
      for (size_t r = 0; r < sums.size(); ++r)
        sums[r] = builder_.pointwise(reduction_step(op_of(reductions[r])), {sums[r], elements[r]});
    }
    return sums;
  }

  // What the lanes' sums start from. On a GPU it is the row's tail where there is one: its loads are under way with
  // the others, and one reduction across the lanes, with its barriers, is enough.
  std::vector<Fragment> initial_sums(size_t level, int64_t lanes) {
    const std::vector<ValueId>& reductions = rows_.levels[level - 1];
    std::vector<Fragment> initial;
    const int64_t tail = rows_.columns % lanes;
    if (problem_.widths.is_gpu() && tail > 0) {
      region_.scope({lanes, tail, std::nullopt}, [&] {
        const std::vector<Fragment> elements = elements_of(reductions, region_.math().along(rows_.columns - tail));
        keep(level);
        for (size_t i = 0; i < reductions.size(); ++i)
          initial.push_back(idle_to(reduction_start(op_of(reductions[i])), elements[i]));
      });
      return initial;
    }
    for (ValueId value : reductions)
      initial.push_back(builder_.constant(reduction_start(op_of(value)), Dtype::f32, {lanes}));
    return initial;
  }

  // All reductions of a level, in one pass: lanes are summed over full vectors, then across, then the tail is added.
  void reduce_level(size_t level) {
    pick_elements(level);
    const std::vector<ValueId>& reductions = rows_.levels[level - 1];
    if (reductions.empty()) return;
    const int64_t lanes = width(rows_.columns);
    std::vector<Fragment> sums;
    if (rows_.columns == 0)
      for (ValueId value : reductions) sums.push_back(builder_.constant(reduction_start(op_of(value)), Dtype::f32));
    if (rows_.columns >= lanes) {
      const std::vector<Fragment> initial = initial_sums(level, lanes);
      const int64_t together = vectors_together(level, rows_.columns / lanes);
      sums = builder_.loop("col", Index(0), Index(rows_.columns / lanes * lanes), Index(together * lanes), initial,
                           [&](Index c, const std::vector<Fragment>& carried) {
                             std::vector<Fragment> next;
                             region_.scope(lanes_for(lanes),
                                           [&] { next = add_vectors(level, c, lanes, together, carried); });
                             return next;
                           });
      for (size_t i = 0; i < sums.size(); ++i)
        if (lanes > 1) sums[i] = builder_.reduce(reduction_across(op_of(reductions[i])), sums[i]);
    }
    const int64_t beside_vectors = problem_.widths.is_gpu() && rows_.columns >= lanes ? 0 : rows_.columns;
    for_tail(region_, beside_vectors, lanes, [&](const LaneIndex& c) {
      const std::vector<Fragment> elements = elements_of(reductions, c);
      keep(level);
      for (size_t i = 0; i < elements.size(); ++i) {
        const Op op = op_of(reductions[i]);
        Fragment rest = elements[i];
        if (region_.lanes().width > 1) rest = builder_.reduce(reduction_across(op), idle_to(reduction_start(op), rest));
        if (i < sums.size()) {
          sums[i] = builder_.pointwise(reduction_step(op), {sums[i], rest});
        } else {
          sums.push_back(rest);
        }
      }
    });
    for (size_t i = 0; i < reductions.size(); ++i) sums_[reductions[i]] = sums[i];
    for (const auto& [value, kept_level] : rows_.kept_at)
      if (kept_level == level) written_.insert(value);
  }

  std::vector<Fragment> elements_of(const std::vector<ValueId>& reductions, const LaneIndex& column) {
    column_ = column;
    std::vector<Fragment> elements;
    for (ValueId value : reductions) {
      const Fragment element =
          region_.at(problem_.program.producer(value).operands[0], operand_position(value, column));
      elements.push_back(region_.wide(element));
    }
    return elements;
  }

  // Fills the shared rows of a level at the columns under way.
  void keep(size_t level) {
    for (const auto& [value, kept_level] : rows_.kept_at) {
      if (kept_level != level) continue;
      region_.store_lanes(region_.at(value, position_of(value, column_)), kept_.at(value), {column_.base});
    }
  }

  // Boxes of as many columns share a loop.
  void last_pass() {
    for (const RowSweep& sweep : rows_.sweeps) {
      if (sweep.columns == 1 && sweep.partials.empty()) {
        region_.scope(Lanes{}, [&] { store_boxes(sweep, uniform_index(Index(0))); });
        continue;
      }
      each_column(sweep.columns, [&](const LaneIndex& c) {
        column_ = c;
        store_boxes(sweep, c);
        for (ValueId partial : sweep.partials) add_partial(partial, c);
      });
    }
  }

  // As for_columns. On a GPU the tail is on the lanes of a full vector, so that threads find what they kept of it.
  void each_column(int64_t columns, const std::function<void(const LaneIndex&)>& body) {
    const int64_t lanes = width(columns), tail = columns % lanes;
    if (!rows_.keeps_operands || columns < lanes) return for_columns(region_, columns, lanes, body);
    for_full_columns(region_, Index(0), Index(columns - tail), lanes, body);
    if (tail > 0)
      region_.scope({lanes, tail, std::nullopt}, [&] { body(region_.math().along(Index(columns - tail))); });
  }

  void store_boxes(const RowSweep& sweep, const LaneIndex& c) {
    for (const Box& box : sweep.boxes) {
      Position at =
          reshape_position(region_.math(), {uniform_index(row_), c}, {rows_.rows, sweep.columns}, box.extents);
      for (size_t d = 0; d < at.size(); ++d) at[d].base = at[d].base + Index(box.offset[d]);
      const Fragment value = region_.at(box.value, at);
      region_.store(value, box.result, stored_position(region_.math(), problem_.program, box, at));
    }
  }

  Fragment partial_element(ValueId partial, const LaneIndex& c) {
    const ValueId operand = problem_.program.producer(partial).operands[0];
    return region_.wide(region_.at(operand, position_of(operand, c)));
  }

  void add_partial(ValueId partial, const LaneIndex& c) {
    const BufferId sum = shared_.at(partial);
    const Fragment element = partial_element(partial, c);
    const Fragment old = region_.load_lanes(sum, {c.base});
    region_.store_lanes(builder_.pointwise(kernel::Op::add, {old, element}), sum, {c.base});
  }

  void store_partial(ValueId partial) {
    const Shape& shape = problem_.program.type(partial).shape;
    const int64_t columns = numel(shape) / rows_.tasks;
    for_columns(region_, columns, width(columns), [&](const LaneIndex& c) {
      const Fragment sum = region_.load_lanes(shared_.at(partial), {c.base});
      region_.store(
          sum, partial,
          reshape_position(region_.math(), {uniform_index(builder_.task()), c}, {rows_.tasks, columns}, shape));
    });
  }

  const Problem& problem_;
  const RowProblem& rows_;
  const int64_t task_rows_;
  KernelBuilder& builder_;
  Region& region_;
  Index row_;
  LaneIndex column_;                    // of the pass under way
  std::optional<LaneIndex> picked_;     // the column of which an element is picked
  std::map<ValueId, Fragment> sums_;    // of the row, so far
  std::map<ValueId, BufferId> shared_;  // partials
  std::map<ValueId, BufferId> kept_;    // shared rows
  std::set<ValueId> written_;           // those filled by now
};

// Tasks of partials are few: registers a thread, so that all tasks of a card run at once, where what a row holds allows
// it. While a task waits for a row that it keeps, another one works on its own.
int registers_wanted(const Problem& problem, const RowProblem& rows) {
  constexpr int64_t kRegisters = 65536, kFewest = 120;
  if (rows.keeps_operands) return static_cast<int>(std::min<int64_t>(kRegisters / 2 / problem.widths.native, 128));
  if (rows.partials.empty() || !is_held(problem.widths, rows)) return 0;
  const int64_t together = (rows.tasks + kMultiprocessors - 1) / kMultiprocessors;
  const int64_t registers = kRegisters / (problem.widths.native * together) / 8 * 8;
  return registers >= kFewest && registers < 255 ? static_cast<int>(registers) : 0;
}

}  // namespace

Result<Draft> build_row(const Problem& problem) {
  STEPC_ASSIGN(const RowProblem rows, analyse_rows(problem));
  const int64_t task_rows = rows.partials.empty() ? rows_per_task(problem.widths, rows.rows, rows.columns)
                                                  : rows.rows / std::max<int64_t>(rows.tasks, 1);
  const int64_t grid = rows.partials.empty() ? (rows.rows + task_rows - 1) / task_rows : rows.tasks;
  return build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
    builder.set_grid(Index(grid));
    builder.begin_role("main", problem.widths.warps, registers_wanted(problem, rows));
    RowBuilder(problem, rows, task_rows, builder, region).build();
    if (is_held(problem.widths, rows))
      return Built{grid, fmt::format("{} rows a task, held in {} lanes", task_rows, rows.columns)};
    return Built{grid,
                 fmt::format("{} rows a task, {} passes, lanes {}{}", task_rows, rows.levels.size() + 1,
                             pick_width(rows.columns, problem.widths.native, problem.widths.registers(rows.registers)),
                             rows.kept.empty() ? "" : fmt::format(", {} kept", rows.kept.size()))};
  });
}

}  // namespace stepc::host
