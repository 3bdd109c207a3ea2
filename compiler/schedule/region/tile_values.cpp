// How TileRegion evaluates a value of its group at a position.
#include <algorithm>

#include "compiler/graph/fuse_check.h"
#include "compiler/schedule/region/index_views.h"
#include "compiler/schedule/region/region.h"
#include "compiler/schedule/region/tile_region.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

using kernel::Index;
using KOp = kernel::Op;

KOp kernel_op(Op op) {
  const auto same = kernel::op_from_name(op_info(op).name);
  STEPC_CHECK(same, "kernel IR has no {}", op_info(op).name);
  return *same;
}

}  // namespace

TileValue TileRegion::unsupported(ValueId value, std::string_view reason) {
  if (!failure_)
    failure_ =
        fmt::format("%{} = {}: {}", program_.value(value).name, op_info(program_.producer(value).op).name, reason);
  return zeros(value);
}

TileValue TileRegion::at(ValueId value, const TilePosition& where) {
  std::vector<int64_t> key = position_key(math_, where);
  key.push_back(static_cast<int64_t>(value));
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const TileValue made = evaluate(value, where);
  return known_[key] = made;
}

TileValue TileRegion::evaluate(ValueId value, const TilePosition& where) {
  if (value == matmul_.product) return product(where);
  if (!contains(value)) return load(value, where);
  const Node& node = program_.producer(value);
  switch (op_info(node.op).family) {
    case OpFamily::leaf: return leaf(value, node, where);
    case OpFamily::pointwise: return pointwise(value, node, where);
    case OpFamily::view: return view(value, node, where);
    case OpFamily::reduction: return reduction(value, node, where);
    case OpFamily::rows:
      if (node.op == Op::gather_rows) return gather_rows(value, node, where);
      break;
    case OpFamily::contraction:
    case OpFamily::structured:
    case OpFamily::effect: break;
  }
  return unsupported(value, "cannot be evaluated element by element");
}

// The columns of the product, counted from the piece's first, that the piece reads; nothing where they are not the
// same for every piece.
std::optional<std::vector<int64_t>> TileRegion::lanes_of(const TileIndex& column, int64_t part) const {
  const int64_t shift = part * matmul_.sizes.columns();
  std::vector<int64_t> lanes(static_cast<size_t>(step_));
  for (int64_t c = 0; c < step_; ++c) lanes[static_cast<size_t>(c)] = c;  // of idle columns
  if (column.table) {
    for (int64_t c = 0; c < static_cast<int64_t>(column.table->size()); ++c) {
      const int64_t lane = (*column.table)[static_cast<size_t>(c)] - shift - c / step_ * step_;
      int64_t& known = lanes[static_cast<size_t>(c % step_)];
      if (c >= step_ && known != lane) return std::nullopt;
      known = lane;
    }
    return lanes;
  }
  const Index distance = column.base - piece_->column - Index(shift);
  if (column.dynamic() || column.row != 0 || !distance.is_constant()) return std::nullopt;
  for (size_t c = 0; c < lanes.size(); ++c)
    lanes[c] = distance.constant() + (column.column.empty() ? 0 : column.column[c]);
  return lanes;
}

TileValue TileRegion::product(const TilePosition& where) {
  const MatmulProblem& sizes = matmul_.sizes;
  const TensorType& type = program_.type(matmul_.product);
  const TilePosition at = reshaped(math_, where, type.shape, {sizes.batch, sizes.m, sizes.n});
  const auto here = [&](const TileIndex& x, const Index& base, int64_t row) {
    const Index distance = x.base - base;
    return !x.dynamic() && x.column.empty() && x.row == row && distance.is_constant() && distance.constant() == 0;
  };
  const bool same_rows =
      (sizes.batch == 1 || here(at[0], tile_->batch, 0)) && (sizes.m == 1 || here(at[1], tile_->row, 1));
  if (!same_rows) return unsupported(matmul_.product, "it is read at another row than the current one");
  const int64_t width = builder_.shape(tile_->sums[0])[1];
  for (int64_t part = 0; part < sizes.parts(); ++part) {
    auto lanes = lanes_of(at[2], part);
    if (!lanes) continue;
    for (int64_t& lane : *lanes) lane += piece_->first;
    const auto [low, high] = std::minmax_element(lanes->begin(), lanes->end());
    if (*low < 0 || *high >= width) continue;
    const TileValue sum{tile_->sums[static_cast<size_t>(part)], Spread::tile};
    // Rounded once for all orders of its columns, where they are all there is.
    if (step_ == width && builder_.kernel().target != kernel::Target::host)
      return maker_.columns_of(maker_.cast(sum, type.dtype), *lanes);
    return maker_.cast(maker_.columns_of(sum, *lanes), type.dtype);
  }
  return unsupported(matmul_.product, "it is read at a column that does not meet the current one");
}

// Columns that only change places in a thread are loaded in order and then moved, as is what two of them share.
TileValue TileRegion::load(ValueId value, const TilePosition& where) {
  if (const auto from = moved(value, where)) return maker_.columns_of(at(value, from->first), from->second);
  if (const auto tile = at_hand(value, where)) return {*tile, Spread::tile};
  return access_.load(value, where);
}

std::optional<std::pair<TilePosition, std::vector<int64_t>>> TileRegion::moved(ValueId value,
                                                                               const TilePosition& where) {
  if (where.empty()) return std::nullopt;
  return math_.in_order(where, program_.type(value).shape.back());
}

TileValue TileRegion::leaf(ValueId value, const Node& node, const TilePosition& where) {
  if (node.op == Op::constant) return maker_.constant(node.attrs.real(AttrKey::value), program_.type(value).dtype);
  if (node.op == Op::iota) return math_.materialise(where[static_cast<size_t>(node.attrs.integer(AttrKey::axis))]);
  return unsupported(value, "is not made on tiles");
}

TileValue TileRegion::pointwise(ValueId value, const Node& node, const TilePosition& where) {
  std::vector<TileValue> operands;
  for (ValueId operand : node.operands) operands.push_back(at(operand, where));
  if (node.op == Op::stop_gradient) return operands[0];
  if (node.op == Op::cast) return maker_.cast(operands[0], program_.type(value).dtype);
  return maker_.pointwise(kernel_op(node.op), operands);
}

TileValue TileRegion::view(ValueId value, const Node& node, const TilePosition& where) {
  if (node.op == Op::pad) return pad(value, node, where);
  if (node.op == Op::concat) return concat(value, node, where);
  const ValueId operand = node.operands[0];
  return at(operand, before_view(math_, node, where, program_.type(value).shape, program_.type(operand).shape));
}

// What lies outside the operand reads an element of its edge, and zero is selected.
TileValue TileRegion::pad(ValueId value, const Node& node, const TilePosition& where) {
  const ValueId operand = node.operands[0];
  const Shape& shape = program_.type(operand).shape;
  if (numel(shape) == 0) return zeros(value);
  TilePosition inner = where;
  TileValue inside;
  for (size_t d = 0; d < shape.size(); ++d) {
    inner[d] = math_.shift(where[d], -node.attrs.integers(AttrKey::low)[d]);
    const TileMath::Test test = math_.inside(inner[d], 0, shape[d]);
    if (test.known && !test.always) return zeros(value);
    if (test.known) continue;
    inner[d] = math_.clamp(inner[d], 0, shape[d] - 1);
    inside = inside.valid() ? maker_.pointwise(KOp::logical_and, {inside, test.inside}) : test.inside;
  }
  const TileValue element = at(operand, inner);
  return inside.valid() ? maker_.pointwise(KOp::select, {inside, element, zeros(value)}) : element;
}

TileValue TileRegion::concat(ValueId value, const Node& node, const TilePosition& where) {
  const auto axis = static_cast<size_t>(node.attrs.integer(AttrKey::axis));
  TileValue result;
  int64_t end = program_.type(value).shape[axis];
  // From the last operand on, so that each select is by one limit.
  for (size_t i = node.operands.size(); i-- > 0;) {
    const ValueId operand = node.operands[i];
    const int64_t extent = program_.type(operand).shape[axis];
    const int64_t start = end - extent;
    const TileMath::Test test = math_.inside(where[axis], start, end);
    end = start;
    if (extent == 0 || (test.known && !test.always)) continue;
    TilePosition inner = where;
    inner[axis] = math_.clamp(math_.shift(where[axis], -start), 0, extent - 1);
    const TileValue element = at(operand, inner);
    if (test.known) return element;
    result = result.valid() ? maker_.pointwise(KOp::select, {test.inside, element, result}) : element;
  }
  return result.valid() ? result : unsupported(value, "is read outside its operands");
}

// Written out, in ascending order of the reduced indices.
TileValue TileRegion::reduction(ValueId value, const Node& node, const TilePosition& where) {
  if (!is_small_reduction(program_, node)) return unsupported(value, "a reduction over more than a few elements");
  const ValueId operand = node.operands[0];
  const Shape& shape = program_.type(operand).shape;
  const std::vector<int64_t>& axes = node.attrs.integers(AttrKey::axes);
  int64_t count = 1;
  for (int64_t axis : axes) count *= shape[static_cast<size_t>(axis)];
  if (count == 0) return maker_.constant(schedule::reduction_start(node.op), Dtype::f32);
  TileValue sum;
  for (int64_t i = 0; i < count; ++i) {
    TilePosition inner;
    for (size_t d = 0, kept = 0; d < shape.size(); ++d) {
      const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d));
      inner.push_back(reduced ? math_.zero() : where[kept++]);
    }
    int64_t rest = i;
    for (size_t a = axes.size(); a-- > 0;) {
      const int64_t extent = shape[static_cast<size_t>(axes[a])];
      inner[static_cast<size_t>(axes[a])] = math_.uniform(Index(rest % extent));
      rest /= extent;
    }
    const TileValue element = at(operand, inner);
    sum = sum.valid() ? maker_.pointwise(schedule::reduction_step(node.op), {sum, element}) : element;
  }
  return sum;
}

// An i32 value at a uniform position.
Index TileRegion::index_at(ValueId value, const TilePosition& where, kernel::Range range) {
  std::vector<int64_t> key = position_key(math_, where);
  key.push_back(static_cast<int64_t>(value));
  if (const auto found = known_indices_.find(key); found != known_indices_.end()) return found->second;
  const Index index = contains(value) ? builder_.to_index(at(value, where).lanes, range, "row")
                                      : access_.load_index(value, where, range);
  return known_indices_[key] = index;
}

// Row -1 is a row of zeros: row 0 is read for it, and zero selected.
TileValue TileRegion::gather_rows(ValueId value, const Node& node, const TilePosition& where) {
  const ValueId table = node.operands[0];
  const int64_t rows = program_.type(table).shape[0];
  if (rows == 0) return zeros(value);
  TilePosition inner = where;
  const TilePosition row_at{where[0]};
  const TileValue zero = maker_.i32(0);
  TileValue row;
  if (where[0].uniform()) {
    const Index number = index_at(node.operands[1], row_at, {-1, rows - 1});
    row = maker_.from_index(number);
    inner[0] = math_.uniform(max(number, Index(0)));
  } else {
    row = at(node.operands[1], row_at);
    inner[0] = math_.from_value(maker_.pointwise(KOp::max, {row, zero}), {0, rows - 1});
  }
  const TileValue missing = maker_.pointwise(KOp::less, {row, zero});
  return maker_.pointwise(KOp::select, {missing, zeros(value), at(table, inner)});
}

}  // namespace stepc
