#include "compiler/schedule/host/row_problem.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "ir/support/check.h"

namespace stepc::host {
namespace {

// A shared row of at most this many bytes stays in the cache beside what is streamed.
constexpr int64_t kKeptBytes = 64 * 1024;
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
      if (rows_.levels.size() < level) rows_.levels.resize(level);
      rows_.levels[level - 1].push_back(value);
    }
    STEPC_TRY(find_sweeps());
    if (problem_.group.nodes.size() > kLightGroup) rows_.registers = 2;
    keep_costly();
    return rows_;
  }

 private:
  tl::unexpected<Error> cannot(std::string_view reason) const {
    return user_error("kernel @{}: the row template cannot make it: {}", problem_.group.name, reason);
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

  // The values that are evaluated for `root`, not going through reductions made before.
  void reach(ValueId root, std::set<ValueId>& reached) const {
    if (!inside_[index_of(program_.value(root).producer)]) return;
    if (contains(row_reductions_, root)) return;
    if (!reached.insert(root).second) return;
    for (ValueId operand : program_.producer(root).operands) reach(operand, reached);
  }

  void keep_costly() {
    if (rows_.columns * 4 > kKeptBytes || rows_.columns <= kUnrolledReduction) return;
    std::map<ValueId, std::pair<size_t, int>> uses;  // first level, number of passes
    std::vector<std::set<ValueId>> passes(rows_.levels.size() + 1);
    for (size_t level = 0; level < rows_.levels.size(); ++level)
      for (ValueId value : rows_.levels[level]) reach(program_.producer(value).operands[0], passes[level]);
    for (ValueId result : problem_.results) reach(result, passes.back());
    for (size_t pass = 0; pass < passes.size(); ++pass) {
      for (ValueId value : passes[pass]) {
        const TensorType& type = program_.type(value);
        if (!is_costly(program_.producer(value).op) || numel(type.shape) != rows_.rows * rows_.columns) continue;
        auto [entry, is_new] = uses.try_emplace(value, pass + 1, 0);
        ++entry->second.second;
      }
    }
    for (const auto& [value, use] : uses) {
      if (use.second < 2) continue;
      rows_.kept.push_back(value);
      rows_.kept_at.push_back({value, use.first});
    }
  }

  const Problem& problem_;
  const Program& program_;
  std::vector<bool> inside_;
  RowProblem rows_;
  std::vector<ValueId> row_reductions_;
  std::map<ValueId, int> level_;
};

}  // namespace

Result<RowProblem> analyse_rows(const Problem& problem) { return Analysis(problem).run(); }

}  // namespace stepc::host
