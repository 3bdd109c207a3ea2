#include "compiler/graph/region_walk.h"

#include <algorithm>

#include "ir/graph/print.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

bool moves_elements_one_to_one(Op op) { return op == Op::reshape || op == Op::transpose || op == Op::reverse; }

// The reduced axes become axes of a variable that is the reduction's own.
TensorIndex expand_reduced(IndexMath& math, const Program& program, NodeId id, const TensorIndex& at) {
  const Node& node = program.node(id);
  const Shape& from = program.type(node.operands[0]).shape;
  const std::vector<int64_t>& axes = node.attrs.integers(AttrKey::axes);
  TensorIndex result;
  size_t kept = 0;
  for (size_t d = 0; d < from.size(); ++d) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d));
    const auto number = static_cast<int64_t>(index_of(id) * 64 + d);
    result.push_back(reduced ? math.numbered(number, from[d]) : at[kept++]);
  }
  return result;
}

}  // namespace

bool is_anchor(const Program& program, const Node& node) {
  switch (op_info(node.op).family) {
    case OpFamily::leaf:
    case OpFamily::pointwise:
    case OpFamily::view: return false;
    case OpFamily::reduction: return !is_small_reduction(program, node);
    case OpFamily::rows: return node.op != Op::gather_rows;
    case OpFamily::contraction:
    case OpFamily::structured:
    case OpFamily::effect: return true;
  }
  STEPC_UNREACHABLE("family of {}", op_info(node.op).name);
}

RegionWalk::RegionWalk(const Program& program, const Region& region)
    : program_(program), region_(region), inside_(program.nodes.size(), false), visited_(program.nodes.size(), false) {
  for (NodeId id : region.nodes) inside_[index_of(id)] = true;
}

Error RegionWalk::error(const Node& node, std::string message) const {
  const std::string name = node.results.empty() ? "" : ", %" + program_.value(node.results[0]).name;
  return {Error::Kind::user, node.where, fmt::format("{}{}: {}", op_info(node.op).name, name, message)};
}

Status RegionWalk::read(ValueId value, const TensorIndex& at) {
  const NodeId id = program_.value(value).producer;
  if (!inside(id)) {
    reads_.insert({value, at});
    return {};
  }
  if (!seen_.insert({id, at}).second) return {};
  visit(id);
  if (is_anchor(program_, program_.node(id))) return anchor(id, at);
  return evaluate(id, at);
}

Status RegionWalk::evaluate(NodeId id, const TensorIndex& at) {
  const Node& node = program_.node(id);
  work_bytes_ += op_work_bytes(node.op) * math.evaluations(at);
  switch (op_info(node.op).family) {
    case OpFamily::leaf:
      for (ValueId operand : node.operands) STEPC_TRY(read(operand, {}));
      return {};
    case OpFamily::pointwise:
      for (ValueId operand : node.operands) STEPC_TRY(read(operand, at));
      return {};
    case OpFamily::view:
      if (node.op == Op::concat)
        return tl::unexpected(error(node, "a concat is evaluated only where it is stored as a result"));
      return read(node.operands[0], math.through_view(program_, node, at));
    case OpFamily::reduction: return small_reduction(id, at);
    case OpFamily::rows: return gather(node, at);
    case OpFamily::contraction:
    case OpFamily::structured:
    case OpFamily::effect: break;
  }
  STEPC_UNREACHABLE("{} is no op to evaluate at an index", op_info(node.op).name);
}

Status RegionWalk::small_reduction(NodeId id, const TensorIndex& at) {
  return read(program_.node(id).operands[0], expand_reduced(math, program_, id, at));
}

Status RegionWalk::gather(const Node& node, const TensorIndex& at) {
  STEPC_TRY(read(node.operands[1], {at[0]}));
  const auto tag = static_cast<int64_t>(index_of(node.operands[1]));
  const int64_t rows = program_.type(node.operands[0]).shape[0];
  return read(node.operands[0], {math.unknown({at[0]}, tag, rows), at[1]});
}

ValueId RegionWalk::base(ValueId value) {
  while (inside(value) && moves_elements_one_to_one(program_.producer(value).op)) {
    visit(program_.value(value).producer);
    value = program_.producer(value).operands[0];
  }
  return value;
}

Result<std::vector<ValueId>> RegionWalk::pieces(ValueId result) {
  const Node& node = program_.producer(result);
  if (node.op != Op::concat) return std::vector<ValueId>{result};
  visit(program_.value(result).producer);
  for (ValueId operand : node.operands)
    if (program_.type(operand) != program_.type(node.operands[0]))
      return tl::unexpected(error(node, "expected operands of equal shapes, found " +
                                            type_text(program_.type(node.operands[0])) + " and " +
                                            type_text(program_.type(operand))));
  return node.operands;
}

Status RegionWalk::read_operands(const Node& node) {
  for (ValueId operand : node.operands) {
    while (inside(operand)) {
      const Node& view = program_.producer(operand);
      if (view.op != Op::reshape) return tl::unexpected(error(view, "expected reshapes of operands only"));
      visit(program_.value(operand).producer);
      operand = view.operands[0];
    }
    const Shape& shape = program_.type(operand).shape;
    const int64_t number = -1 - static_cast<int64_t>(index_of(operand));
    STEPC_TRY(read(operand, math.at_linear(math.numbered(number, numel(shape)), shape)));
  }
  return {};
}

AxisIndex RegionWalk::neighbour(const AxisIndex& column) {
  const auto parts = axis_divide(column, 2);
  STEPC_CHECK(parts, "an odd number of columns has no pairs");
  return axis_add(axis_scale(parts->first, 2), axis_shift(axis_scale(parts->second, -1), 1));
}

void RegionWalk::add_bytes(RegionFacts& facts) const {
  std::map<ValueId, double> elements;
  for (const auto& [value, at] : reads_) elements[value] += math.elements(at);
  for (const auto& [value, count] : elements) {
    const TensorType& type = program_.type(value);
    const auto size = static_cast<double>(dtype_bytes(type.dtype));
    facts.read_bytes += std::min(count, static_cast<double>(numel(type.shape))) * size;
  }
  for (ValueId value : region_.results) {
    const TensorType& type = program_.type(value);
    facts.written_bytes += static_cast<double>(numel(type.shape) * dtype_bytes(type.dtype));
  }
  facts.work_bytes += work_bytes_;
}

Status RegionWalk::all_visited() const {
  for (NodeId id : region_.nodes)
    if (!visited_[index_of(id)]) return tl::unexpected(error(program_.node(id), "no result of the kernel needs it"));
  return {};
}

}  // namespace stepc
