#include "compiler/graph/region.h"

#include <algorithm>
#include <optional>

#include "compiler/graph/region_structured.h"
#include "compiler/graph/region_walk.h"
#include "ir/graph/print.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

int64_t elements_of(const Program& program, ValueId value) { return numel(program.type(value).shape); }

class PointwiseWalk : public RegionWalk {
 public:
  using RegionWalk::RegionWalk;

  Result<RegionFacts> run() {
    std::optional<AxisIndex> space;
    for (ValueId result : region_.results) {
      STEPC_ASSIGN(const std::vector<ValueId> stored, pieces(result));
      for (ValueId piece : stored) {
        const ValueId from = base(piece);
        if (!space) space = math.variable(elements_ = elements_of(program_, from));
        if (elements_of(program_, from) != elements_)
          return tl::unexpected(
              error(program_.producer(piece), fmt::format("expected {} elements like the other results, found {}",
                                                          elements_, elements_of(program_, from))));
        STEPC_TRY(read(from, math.at_linear(*space, program_.type(from).shape)));
      }
    }
    RegionFacts facts;
    facts.tasks = static_cast<double>(elements_);
    return facts;
  }

 protected:
  Status anchor(NodeId id, const TensorIndex&) override {
    return tl::unexpected(error(program_.node(id), "not in a kernel of template pointwise"));
  }

 private:
  int64_t elements_ = 0;
};

class RowWalk : public RegionWalk {
 public:
  using RegionWalk::RegionWalk;

  Result<RegionFacts> run() {
    const Node* first = first_reduction();
    if (!first) return user_error("expected a reduction over the last axis in a kernel of template row, found none");
    rows_ = elements_of(program_, first->results[0]);
    columns_ = rows_ == 0 ? 0 : elements_of(program_, first->operands[0]) / rows_;
    row_ = math.variable(rows_);
    element_ = axis_add(axis_scale(row_, columns_), math.variable(columns_));
    for (ValueId result : region_.results) STEPC_TRY(store(result));
    RegionFacts facts;
    facts.tasks = static_cast<double>(parts_ ? parts_ : rows_);
    return facts;
  }

 protected:
  Status anchor(NodeId id, const TensorIndex& at) override {
    const Node& node = program_.node(id);
    if (!is_row_reduction(node)) return tl::unexpected(error(node, "not in a kernel of template row"));
    const bool of_space =
        elements_of(program_, node.results[0]) == rows_ && elements_of(program_, node.operands[0]) == rows_ * columns_;
    if (!of_space)
      return tl::unexpected(error(
          node, fmt::format("expected {} rows of {} columns, found {} -> {}", rows_, columns_,
                            type_text(program_.type(node.operands[0])), type_text(program_.type(node.results[0])))));
    if (at != math.at_linear(row_, program_.type(node.results[0]).shape))
      return tl::unexpected(error(node, "it is read at another row than the current one"));
    return read_elements(node.operands[0]);
  }

 private:
  bool is_row_reduction(const Node& node) const {
    return op_info(node.op).family == OpFamily::reduction && !is_small_reduction(program_, node) &&
           reduction_axes(program_, node) == ReductionAxes::trailing;
  }

  const Node* first_reduction() const {
    for (NodeId id : region_.nodes)
      if (is_row_reduction(program_.node(id))) return &program_.node(id);
    return nullptr;
  }

  Status read_elements(ValueId value) { return read(value, math.at_linear(element_, program_.type(value).shape)); }

  // The number of partial sums that the value holds; 0: it is none.
  int64_t parts_of(ValueId value) const {
    const Node& node = program_.producer(value);
    if (!inside(value) || node.op != Op::reduce_sum) return 0;
    const Shape& from = program_.type(node.operands[0]).shape;
    const bool second = node.attrs.integers(AttrKey::axes) == std::vector<int64_t>{1};
    if (!second || rows_ == 0 || from[0] * from[1] != rows_ || numel(from) != rows_ * columns_) return 0;
    return from[0];
  }

  // Whether some leading axes hold just the rows, so that the others hold a row's columns.
  bool leads_with_rows(const Shape& shape) const {
    int64_t leading = 1;
    for (size_t d = 0; d < shape.size() && leading < rows_; ++d) leading *= shape[d];
    return leading == rows_ || rows_ * columns_ == 0;
  }

  // Whether elements of a row are put elsewhere than beside each other although they fill several axes.
  bool scatters_columns(ValueId result, ValueId from) const {
    bool moves = false;
    for (ValueId value = result; value != from; value = program_.producer(value).operands[0])
      moves |= program_.producer(value).op != Op::reshape;
    Shape shape = program_.type(from).shape;
    std::erase(shape, 1);
    return moves && !shape.empty() && shape.back() < columns_;
  }

  Status store(ValueId result) {
    const ValueId from = base(result);
    const int64_t count = elements_of(program_, from);
    const bool row_value = count == rows_;
    if (row_value && rows_ != rows_ * columns_) return read(from, math.at_linear(row_, program_.type(from).shape));
    if (count == rows_ * columns_ && scatters_columns(result, from))
      return tl::unexpected(
          error(program_.producer(result), "its columns are several axes and stored in another order"));
    if (count == rows_ * columns_ && leads_with_rows(program_.type(from).shape)) return read_elements(from);
    const int64_t parts = parts_of(from);
    const Node& node = program_.producer(from);
    if (parts == 0 || (parts_ != 0 && parts != parts_))
      return tl::unexpected(error(node, fmt::format("expected a result of {} rows of {} columns, found {}", rows_,
                                                    columns_, type_text(program_.type(from)))));
    parts_ = parts;
    visit(program_.value(from).producer);
    work_bytes_ += op_work_bytes(node.op) * static_cast<double>(rows_ * columns_);
    return read_elements(node.operands[0]);
  }

  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t parts_ = 0;
  AxisIndex row_;
  AxisIndex element_;
};

class ColumnSumWalk : public RegionWalk {
 public:
  using RegionWalk::RegionWalk;

  Result<RegionFacts> run() {
    STEPC_TRY(find_space());
    for (ValueId result : region_.results) {
      const ValueId from = base(result);
      if (elements_of(program_, from) != kept_)
        return tl::unexpected(error(program_.producer(from), fmt::format("expected {} elements like the sums, found {}",
                                                                         kept_, elements_of(program_, from))));
      STEPC_TRY(read(from, math.at_linear(column_, program_.type(from).shape)));
    }
    RegionFacts facts;
    facts.tasks = static_cast<double>(kept_);
    return facts;
  }

 protected:
  Status anchor(NodeId id, const TensorIndex& at) override {
    const Node& node = program_.node(id);
    if (!is_column_reduction(node)) return tl::unexpected(error(node, "not in a kernel of template column_sum"));
    const bool same = program_.type(node.operands[0]).shape == shape_ && node.attrs.integers(AttrKey::axes) == axes_;
    if (!same) return tl::unexpected(error(node, "expected all sums of a kernel over the same axes of equal shapes"));
    if (at != math.at_linear(column_, program_.type(node.results[0]).shape))
      return tl::unexpected(error(node, "it is read at another column than the current one"));
    work_bytes_ += op_work_bytes(node.op) * static_cast<double>(numel(shape_));
    return read(node.operands[0], math.at_linear(element_, shape_));
  }

 private:
  bool is_column_reduction(const Node& node) const {
    return op_info(node.op).family == OpFamily::reduction && !is_small_reduction(program_, node) &&
           reduction_axes(program_, node) == ReductionAxes::middle;
  }

  Status find_space() {
    const auto found = std::find_if(region_.nodes.begin(), region_.nodes.end(),
                                    [&](NodeId id) { return is_column_reduction(program_.node(id)); });
    if (found == region_.nodes.end())
      return user_error(
          "expected a reduction over a leading or middle axis in a kernel of template column_sum, found none");
    const Node& node = program_.node(*found);
    shape_ = program_.type(node.operands[0]).shape;
    axes_ = node.attrs.integers(AttrKey::axes);
    kept_ = elements_of(program_, node.results[0]);
    if (kept_ == 0) return {};
    const int64_t inner = numel(Shape(shape_.begin() + static_cast<ptrdiff_t>(axes_.back()) + 1, shape_.end()));
    const int64_t reduced = numel(shape_) / kept_;
    const AxisIndex outer = math.variable(kept_ / inner);
    const AxisIndex within = math.variable(inner);
    column_ = axis_add(axis_scale(outer, inner), within);
    element_ =
        axis_add(axis_add(axis_scale(outer, reduced * inner), axis_scale(math.variable(reduced), inner)), within);
    return {};
  }

  Shape shape_;  // of what is reduced
  std::vector<int64_t> axes_;
  int64_t kept_ = 0;
  AxisIndex column_;
  AxisIndex element_;
};

class MatmulWalk : public RegionWalk {
 public:
  MatmulWalk(const Program& program, const Region& region, bool halves)
      : RegionWalk(program, region), halves_(halves) {}

  Result<RegionFacts> run() {
    STEPC_TRY(find_product());
    STEPC_TRY(check_operands());
    const Shape& shape = program_.type(product_).shape;
    columns_ = shape.back();
    if (halves_ && columns_ % 2 != 0) return user_error("a product of an odd number of columns has no halves");
    const int64_t rows = columns_ == 0 ? 0 : numel(shape) / columns_;
    row_ = math.variable(rows);
    column_ = math.variable(halves_ ? columns_ / 2 : columns_);
    for (ValueId result : region_.results) {
      STEPC_ASSIGN(const std::vector<ValueId> stored, pieces(result));
      for (ValueId piece : stored) STEPC_TRY(store(base(piece)));
    }
    RegionFacts facts;
    facts.tasks = static_cast<double>(numel(shape));
    facts.columns = halves_ ? ColumnMap::halves : (pairs_ ? ColumnMap::pairs : ColumnMap::identity);
    return facts;
  }

 protected:
  Status anchor(NodeId id, const TensorIndex& at) override {
    const Node& node = program_.node(id);
    if (node.op != Op::matmul) return tl::unexpected(error(node, "not in a kernel of template matmul"));
    if (at == product_at(column_)) return {};
    if (halves_ && at == product_at(axis_shift(column_, columns_ / 2))) return {};
    if (!halves_ && columns_ % 2 == 0 && at == product_at(neighbour(column_))) {
      pairs_ = true;
      return {};
    }
    return tl::unexpected(error(node, "the product is read at a column that is neither its own nor one that meets it"));
  }

 private:
  Status find_product() {
    for (NodeId id : region_.nodes) {
      if (program_.node(id).op != Op::matmul) continue;
      if (product_ != ValueId::none) return tl::unexpected(error(program_.node(id), "expected one matmul in a kernel"));
      product_ = program_.node(id).results[0];
    }
    if (product_ == ValueId::none) return user_error("expected a matmul in a kernel of template matmul, found none");
    return {};
  }

  Status check_operands() {
    for (ValueId operand : program_.producer(product_).operands) {
      const ValueId given = operand;
      while (inside(operand)) {
        const Node& node = program_.producer(operand);
        const bool widens = node.op == Op::cast && program_.type(node.operands[0]).dtype == Dtype::bf16;
        if (node.op != Op::reshape && !widens)
          return tl::unexpected(error(node, "an operand of the matmul must be made outside of its kernel"));
        visit(program_.value(operand).producer);
        operand = node.operands[0];
      }
      const int64_t count = elements_of(program_, given);
      STEPC_TRY(read(operand, math.at_linear(math.numbered(-1 - static_cast<int64_t>(index_of(given)), count),
                                             program_.type(operand).shape)));
    }
    return {};
  }

  AxisIndex element(const AxisIndex& column, int64_t width) const { return axis_add(axis_scale(row_, width), column); }
  TensorIndex product_at(const AxisIndex& column) {
    return math.at_linear(element(column, columns_), program_.type(product_).shape);
  }

  Status store(ValueId from) {
    const Shape& shape = program_.type(from).shape;
    const int64_t count = numel(shape);
    const int64_t full = elements_of(program_, product_);
    if (count == full) {
      STEPC_TRY(read(from, math.at_linear(element(column_, columns_), shape)));
      if (halves_) STEPC_TRY(read(from, math.at_linear(element(axis_shift(column_, columns_ / 2), columns_), shape)));
      return {};
    }
    if (halves_ && count * 2 == full) return read(from, math.at_linear(element(column_, columns_ / 2), shape));
    return tl::unexpected(
        error(program_.producer(from), fmt::format("expected {} elements like the product, found {}", full, count)));
  }

  bool halves_;
  bool pairs_ = false;
  ValueId product_ = ValueId::none;
  int64_t columns_ = 0;
  AxisIndex row_;
  AxisIndex column_;
};

Result<RegionFacts> analyse_matmul(const Program& program, const Region& region) {
  auto identity = finish(MatmulWalk(program, region, false));
  if (identity) return identity;
  auto halves = finish(MatmulWalk(program, region, true));
  return halves ? halves : identity;
}

}  // namespace

Result<RegionFacts> analyse(const Program& program, const Region& region) {
  switch (region.schedule) {
    case Template::pointwise: return finish(PointwiseWalk(program, region));
    case Template::row: return finish(RowWalk(program, region));
    case Template::column_sum: return finish(ColumnSumWalk(program, region));
    case Template::matmul: return analyse_matmul(program, region);
    case Template::scatter: return analyse_lone(program, region, Op::scatter_add_rows);
    case Template::attention: return analyse_lone(program, region, Op::attention);
    case Template::attention_grad: return analyse_attention_grad(program, region);
    case Template::route: return analyse_lone(program, region, Op::route);
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(region.schedule));
}

}  // namespace stepc
