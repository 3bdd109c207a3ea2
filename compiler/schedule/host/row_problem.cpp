#include "compiler/schedule/host/row_problem.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "ir/support/check.h"

namespace stepc::host {
namespace {

// A shared row of at most this many bytes stays in the cache beside what is streamed.
constexpr int64_t kKeptBytes = 64 * 1024;
// On a GPU, rows of operands in shared memory: what any architecture has for a task, less what is exchanged there. It
// is worth it where a row is more than a few tasks find in the first-level cache.
constexpr int64_t kSharedRowBytes = 99 * 1024 - 512;
constexpr int64_t kLongRowBytes = 16 * 1024;
constexpr size_t kLightGroup = 24;
constexpr int64_t kMinRun = 8;

struct ReductionShape {
  int64_t outer = 1;  // extents before the reduced axes
  int64_t reduced = 1;
  int64_t inner = 1;     // after
  bool together = true;  // the axes are neighbours
};

// Dimensions of one element do not count.
ReductionShape shape_of(const Program& program, const Node& node) {
  const Shape& shape = program.type(node.operands[0]).shape;
  const std::vector<int64_t>& axes = node.attrs.integers(AttrKey::axes);
  ReductionShape result;
  bool begun = false;
  bool ended = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d))) {
      result.together = result.together && !ended;
      result.reduced *= shape[d];
      begun = true;
    } else {
      ended = begun;
      (begun ? result.inner : result.outer) *= shape[d];
    }
  }
  return result;
}

bool contains(const std::vector<ValueId>& values, ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Is the box cut along a row's columns alone?
bool cut_along_columns(const Box& box, const Shape& shape, int64_t rows) {
  int64_t before = 1;
  for (size_t d = 0; d < shape.size() && before < rows && box.extents[d] == shape[d]; ++d) before *= shape[d];
  return before == rows;
}

class Analysis {
 public:
  explicit Analysis(const Problem& problem) : problem_(problem), program_(problem.program) {
    inside_.assign(program_.nodes.size(), false);
    for (NodeId id : problem.group.nodes) inside_[index_of(id)] = true;
  }

  Result<RowProblem> run() {
    STEPC_TRY(find_reductions());
    for (NodeId id : problem_.group.nodes)
      for (ValueId value : program_.node(id).results) level_of(value);
    for (ValueId value : row_reductions_) {
      const auto level = static_cast<size_t>(level_.at(value));
      if (rows_.levels.size() < level) rows_.levels.resize(level), rows_.picks.resize(level);
      if (const auto pick = find_pick(value))
        rows_.picks[level - 1].push_back(*pick);
      else
        rows_.levels[level - 1].push_back(value);
    }
    STEPC_TRY(find_sweeps());
    if (problem_.group.nodes.size() > kLightGroup) rows_.registers = 2;
    find_passes();
    keep_costly();
    if (problem_.widths.is_gpu()) keep_operands();
    return rows_;
  }

 private:
  tl::unexpected<Error> cannot(std::string_view reason) const {
    return user_error("kernel @{}: the row template cannot make it: {}", problem_.group.name, reason);
  }

  const Node* inside(ValueId value, Op op) const {
    const NodeId producer = program_.value(value).producer;
    if (!inside_[index_of(producer)] || program_.node(producer).op != op) return nullptr;
    return &program_.node(producer);
  }

  std::optional<RowPick> find_pick(ValueId sum) const {
    const Node& reduction = program_.producer(sum);
    if (reduction.op != Op::reduce_sum) return std::nullopt;
    const auto last = static_cast<int64_t>(program_.type(reduction.operands[0]).shape.size()) - 1;
    const Node* chosen = inside(reduction.operands[0], Op::select);
    if (!chosen || reduction.attrs.integers(AttrKey::axes) != std::vector{last}) return std::nullopt;
    const Node* zero = inside(chosen->operands[2], Op::constant);
    const Node* test = inside(chosen->operands[0], Op::equal);
    if (!test || !zero || zero->attrs.real(AttrKey::value) != 0) return std::nullopt;
    const Node* column = inside(test->operands[0], Op::iota);
    const Node* number = inside(test->operands[1], Op::broadcast);
    if (!column || !number || column->attrs.integer(AttrKey::axis) != last) return std::nullopt;
    std::vector<int64_t> rows(static_cast<size_t>(last));
    std::iota(rows.begin(), rows.end(), 0);
    if (number->attrs.integers(AttrKey::axes) != rows) return std::nullopt;
    return RowPick{sum, chosen->operands[1], number->operands[0]};
  }

  // Reductions over the last axes are over a row's columns, others of the group over a task's rows; what is
  // small is neither.
  Status find_reductions() {
    std::vector<ValueId> others;
    std::vector<ValueId> lasts;
    for (NodeId id : problem_.group.nodes) {
      const Node& node = program_.node(id);
      if (op_info(node.op).family != OpFamily::reduction) continue;
      const ReductionShape shape = shape_of(program_, node);
      const bool is_last = shape.together && shape.inner == 1;
      (is_last ? lasts : others).push_back(node.results[0]);
      if (!is_last || shape.reduced < rows_.columns) continue;
      rows_.rows = shape.outer;
      rows_.columns = shape.reduced;
    }
    for (ValueId value : lasts) {
      const ReductionShape shape = shape_of(program_, program_.producer(value));
      if (shape.reduced == rows_.columns && shape.outer == rows_.rows) {
        row_reductions_.push_back(value);
      } else if (shape.reduced > kUnrolledReduction) {
        return cannot(fmt::format("reductions of {} x {} and of {} x {} elements", rows_.rows, rows_.columns,
                                  shape.outer, shape.reduced));
      }
    }
    for (ValueId value : others) STEPC_TRY(add_partial(value));
    if (row_reductions_.empty() && rows_.partials.empty()) return cannot("no reduction over the last axis");
    return {};
  }

  Status add_partial(ValueId value) {
    const ReductionShape shape = shape_of(program_, program_.producer(value));
    if (row_reductions_.empty() && rows_.rows == 0) {
      rows_.rows = shape.outer * shape.reduced;
      rows_.columns = shape.inner;
    }
    const bool fits = shape.together && shape.outer * shape.reduced == rows_.rows &&
                      contains(problem_.results, value) && program_.producer(value).op == Op::reduce_sum;
    if (fits && (rows_.tasks == 0 || rows_.tasks == shape.outer)) {
      rows_.tasks = shape.outer;
      rows_.partials.push_back(value);
      return {};
    }
    if (shape.reduced <= kUnrolledReduction) return {};
    return cannot(fmt::format("%{} is no sum over the rows of a task", program_.value(value).name));
  }

  // Passes over the row that must be complete before the value can be evaluated.
  int level_of(ValueId value) {
    const NodeId producer = program_.value(value).producer;
    if (!inside_[index_of(producer)]) return 0;
    if (auto found = level_.find(value); found != level_.end()) return found->second;
    int level = 0;
    for (ValueId operand : program_.node(producer).operands) level = std::max(level, level_of(operand));
    if (contains(row_reductions_, value)) ++level;
    return level_[value] = level;
  }

  Status find_sweeps() {
    const auto sweep_of = [&](int64_t columns) -> RowSweep& {
      for (RowSweep& sweep : rows_.sweeps)
        if (sweep.columns == columns) return sweep;
      return rows_.sweeps.emplace_back(RowSweep{columns, {}, {}});
    };
    for (ValueId result : problem_.results) {
      if (contains(rows_.partials, result)) continue;
      std::vector<Box> boxes = boxes_of(program_, problem_.group, result, kMinRun, true);
      const auto by_columns = [&](const Box& box) {
        const bool one_axis = !box.extents.empty() && box.extents.back() * rows_.rows == numel(box.extents);
        return (box.whole || one_axis) && cut_along_columns(box, program_.type(box.value).shape, rows_.rows);
      };
      // Uncut where the cut would part rows, or columns that are several axes.
      if (!std::all_of(boxes.begin(), boxes.end(), by_columns))
        boxes = boxes_of(program_, problem_.group, result, INT64_MAX, true);
      for (const Box& box : boxes) {
        const int64_t elements = numel(box.extents);
        if (elements == 0) continue;
        if (rows_.rows == 0 || elements % rows_.rows != 0)
          return cannot(
              fmt::format("%{} has {} elements for {} rows", program_.value(result).name, elements, rows_.rows));
        sweep_of(elements / rows_.rows).boxes.push_back(box);
      }
    }
    for (ValueId partial : rows_.partials) {
      const ReductionShape shape = shape_of(program_, program_.producer(partial));
      sweep_of(shape.inner).partials.push_back(partial);
    }
    return {};
  }

  // The values that are evaluated for `root`, not going through reductions made before, and operands that are read.
  void reach(ValueId root, std::set<ValueId>& reached) const {
    if (contains(row_reductions_, root)) return;
    if (!reached.insert(root).second || !inside_[index_of(program_.value(root).producer)]) return;
    for (ValueId operand : program_.producer(root).operands) reach(operand, reached);
  }

  void find_passes() {
    passes_.resize(rows_.levels.size() + 1);
    for (size_t level = 0; level < rows_.levels.size(); ++level)
      for (ValueId value : rows_.levels[level]) reach(program_.producer(value).operands[0], passes_[level]);
    for (ValueId result : problem_.results) reach(result, passes_.back());
  }

  bool is_row_shaped(ValueId value) const { return numel(program_.type(value).shape) == rows_.rows * rows_.columns; }

  // Those of `wanted` that several passes need, with the first one's level.
  template <class Wanted>
  std::vector<std::pair<ValueId, size_t>> needed_again(const Wanted& wanted) const {
    std::map<ValueId, std::pair<size_t, int>> uses;  // first level, number of passes
    for (size_t pass = 0; pass < passes_.size(); ++pass)
      for (ValueId value : passes_[pass]) {
        if (!is_row_shaped(value) || !wanted(value)) continue;
        auto [entry, is_new] = uses.try_emplace(value, pass + 1, 0);
        ++entry->second.second;
      }
    std::vector<std::pair<ValueId, size_t>> found;
    for (const auto& [value, use] : uses)
      if (use.second > 1) found.emplace_back(value, use.first);
    return found;
  }

  void keep(const std::vector<std::pair<ValueId, size_t>>& values) {
    for (const auto& [value, level] : values) {
      rows_.kept.push_back(value);
      rows_.kept_at.push_back({value, level});
    }
  }

  void keep_costly() {
    if (rows_.columns * 4 > kKeptBytes || rows_.columns <= kUnrolledReduction) return;
    keep(needed_again([&](ValueId value) {
      return inside_[index_of(program_.value(value).producer)] && is_costly(program_.producer(value).op);
    }));
  }

  void keep_operands() {
    const auto operands = needed_again([&](ValueId value) { return contains(problem_.operands, value); });
    int64_t bytes = 0;
    for (const auto& [value, level] : operands) bytes += rows_.columns * dtype_bytes(program_.type(value).dtype);
    if (bytes <= kLongRowBytes || bytes > kSharedRowBytes || !rows_.kept.empty() || !rows_.partials.empty()) return;
    keep(operands);
    rows_.keeps_operands = true;
  }

  const Problem& problem_;
  const Program& program_;
  std::vector<bool> inside_;
  RowProblem rows_;
  std::vector<ValueId> row_reductions_;
  std::map<ValueId, int> level_;
  std::vector<std::set<ValueId>> passes_;  // what each evaluates, the last one for the results
};

}  // namespace

Result<RowProblem> analyse_rows(const Problem& problem) { return Analysis(problem).run(); }

}  // namespace stepc::host
