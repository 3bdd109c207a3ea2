#include "ir/graph/fused.h"

#include <algorithm>
#include <queue>

#include "ir/support/check.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

bool contains(const std::vector<ValueId>& values, ValueId wanted) {
  return std::find(values.begin(), values.end(), wanted) != values.end();
}

std::vector<bool> membership(const Program& program, const Group& group) {
  std::vector<bool> inside(program.nodes.size(), false);
  for (NodeId id : group.nodes) inside[index_of(id)] = true;
  return inside;
}

// The dependence graph of units; unit numbers are those of `units`.
struct UnitGraph {
  std::vector<Unit> units;
  std::vector<size_t> first_node;  // of each unit
  std::vector<size_t> unit_of_node;
  std::vector<std::vector<size_t>> readers;
  std::vector<int> waits_for;
};

UnitGraph make_units(const Program& program) {
  UnitGraph graph;
  const std::vector<int> group_of = group_of_nodes(program);
  std::vector<int> unit_of_group(program.groups.size(), -1);
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const int group = group_of[n];
    if (group >= 0 && unit_of_group[static_cast<size_t>(group)] >= 0) {
      graph.unit_of_node.push_back(static_cast<size_t>(unit_of_group[static_cast<size_t>(group)]));
      continue;
    }
    graph.unit_of_node.push_back(graph.units.size());
    if (group >= 0) unit_of_group[static_cast<size_t>(group)] = static_cast<int>(graph.units.size());
    graph.units.push_back(group >= 0 ? Unit{group, NodeId::none} : Unit{-1, static_cast<NodeId>(n)});
    graph.first_node.push_back(n);
  }
  return graph;
}

void connect_units(const Program& program, UnitGraph& graph) {
  graph.readers.resize(graph.units.size());
  graph.waits_for.assign(graph.units.size(), 0);
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    for (ValueId operand : program.nodes[n].operands) {
      const size_t from = graph.unit_of_node[index_of(program.value(operand).producer)];
      const size_t to = graph.unit_of_node[n];
      if (from == to) continue;
      graph.readers[from].push_back(to);
      ++graph.waits_for[to];
    }
  }
}

int64_t product(const Shape& shape, size_t begin, size_t end) {
  int64_t count = 1;
  for (size_t i = begin; i < end; ++i) count = saturating_mul(count, shape[i]);
  return count;
}

int64_t matmul_depth(const Program& program, const Node& node) {
  const Shape& a = program.type(node.operands[0]).shape;
  return a[node.attrs.flag(AttrKey::transpose_a) ? a.size() - 2 : a.size() - 1];
}

int64_t attention_flops(const Program& program, const Node& node) {
  const Shape& qkv = program.type(node.operands[0]).shape;
  int64_t flops = node.attrs.flag(AttrKey::causal) ? 2 : 4;
  for (int64_t extent : {qkv[0], qkv[3], qkv[1], qkv[1], qkv[4]}) flops = saturating_mul(flops, extent);
  return flops;
}

const Node* find_node(const Program& program, const Group& group, bool (*wanted)(const Node&)) {
  for (NodeId id : group.nodes)
    if (wanted(program.node(id))) return &program.node(id);
  return nullptr;
}

template <Op op>
bool is_op(const Node& node) {
  return node.op == op;
}
bool is_reduction(const Node& node) { return op_info(node.op).family == OpFamily::reduction; }

// The rows that a reduction keeps and the columns that it consumes.
std::pair<int64_t, int64_t> kept_and_reduced(const Program& program, const Node& reduction) {
  const int64_t kept = numel(program.type(reduction.results[0]).shape);
  const Shape& from = program.type(reduction.operands[0]).shape;
  int64_t reduced = 1;
  for (int64_t axis : reduction.attrs.integers(AttrKey::axes)) reduced *= from[static_cast<size_t>(axis)];
  return {kept, reduced};
}

std::string pointwise_problem(const Program& program, const Group& group) {
  int64_t elements = 0;
  for (NodeId id : group.nodes)
    for (ValueId result : program.node(id).results) elements = std::max(elements, numel(program.type(result).shape));
  return fmt::format("pointwise(elements={})", elements);
}

std::string matmul_problem(const Program& program, const Node& node) {
  const Shape& result = program.type(node.results[0]).shape;
  const size_t rank = result.size();
  return fmt::format("matmul(m={}, n={}, k={}, batch={})", result[rank - 2], result[rank - 1],
                     matmul_depth(program, node), product(result, 0, rank - 2));
}

std::string row_problem(const Program& program, const Node& node, Template schedule) {
  const auto [kept, reduced] = kept_and_reduced(program, node);
  if (schedule == Template::row) return fmt::format("row(rows={}, columns={})", kept, reduced);
  return fmt::format("column_sum(rows={}, columns={})", reduced, kept);
}

std::string attention_problem(const Program& program, const Node& node, Template schedule) {
  const Shape& qkv = program.type(node.operands[0]).shape;
  return fmt::format("{}(batch={}, tokens={}, heads={}, dim={})", template_name(schedule), qkv[0], qkv[1], qkv[3],
                     qkv[4]);
}

std::string scatter_problem(const Program& program, const Node& node) {
  const Shape& x = program.type(node.operands[0]).shape;
  const Shape& result = program.type(node.results[0]).shape;
  return fmt::format("scatter(rows={}, columns={}, results={})", x[0], x[1], result[0]);
}

std::string route_problem(const Program& program, const Node& node) {
  const Shape& probs = program.type(node.operands[0]).shape;
  return fmt::format("route(tokens={}, experts={}, top={}, capacity={})", probs[0], probs[1],
                     node.attrs.integer(AttrKey::top), node.attrs.integer(AttrKey::capacity));
}

// Of the group's reductions the one that consumes most: short ones beside it are mere arithmetic.
const Node* longest_reduction(const Program& program, const Group& group) {
  const Node* longest = nullptr;
  for (NodeId id : group.nodes) {
    const Node& node = program.node(id);
    if (!is_reduction(node)) continue;
    if (!longest || kept_and_reduced(program, node).second > kept_and_reduced(program, *longest).second)
      longest = &node;
  }
  return longest;
}

// The node that gives a template its sizes; null for pointwise, which needs none.
const Node* anchor(const Program& program, const Group& group) {
  switch (group.schedule) {
    case Template::pointwise: return nullptr;
    case Template::row:
    case Template::column_sum: return longest_reduction(program, group);
    case Template::matmul: return find_node(program, group, is_op<Op::matmul>);
    case Template::scatter: return find_node(program, group, is_op<Op::scatter_add_rows>);
    case Template::attention: return find_node(program, group, is_op<Op::attention>);
    case Template::attention_grad: return find_node(program, group, is_op<Op::attention_grad>);
    case Template::route: return find_node(program, group, is_op<Op::route>);
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(group.schedule));
}

// Elements of the operand that the group's nodes read: of gathered rows no more than are gathered.
int64_t elements_read(const Program& program, const Group& group, ValueId operand) {
  const int64_t all = numel(program.type(operand).shape);
  int64_t read = 0;
  for (NodeId id : group.nodes) {
    const Node& node = program.node(id);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (node.operands[i] != operand) continue;
      const ValueId result = node.results[0];
      int64_t elements = all;
      if (node.op == Op::gather_rows && i == 0) elements = numel(program.type(result).shape);
      if (node.op == Op::reshape) elements = elements_read(program, group, result);
      read = saturating_add(read, elements);
    }
  }
  return std::min(all, read);
}

}  // namespace

std::vector<int> group_of_nodes(const Program& program) {
  std::vector<int> group_of(program.nodes.size(), -1);
  for (size_t g = 0; g < program.groups.size(); ++g)
    for (NodeId id : program.groups[g].nodes) group_of[index_of(id)] = static_cast<int>(g);
  return group_of;
}

std::optional<std::vector<Unit>> unit_order(const Program& program) {
  UnitGraph graph = make_units(program);
  connect_units(program, graph);
  // Units are numbered by their first node, so the smallest ready number is the earliest.
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t u = 0; u < graph.units.size(); ++u)
    if (graph.waits_for[u] == 0) ready.push(u);
  std::vector<Unit> order;
  while (!ready.empty()) {
    const size_t unit = ready.top();
    ready.pop();
    order.push_back(graph.units[unit]);
    for (size_t reader : graph.readers[unit])
      if (--graph.waits_for[reader] == 0) ready.push(reader);
  }
  if (order.size() != graph.units.size()) return std::nullopt;
  return order;
}

std::vector<ValueId> group_operands(const Program& program, const Group& group) {
  const std::vector<bool> inside = membership(program, group);
  std::vector<ValueId> operands;
  for (NodeId id : group.nodes)
    for (ValueId operand : program.node(id).operands)
      if (!inside[index_of(program.value(operand).producer)] && !contains(operands, operand))
        operands.push_back(operand);
  return operands;
}

std::vector<ValueId> group_results(const Program& program, const Group& group) {
  const std::vector<bool> inside = membership(program, group);
  std::vector<bool> read_outside(program.values.size(), false);
  // Nothing before the group's first node can read what it makes.
  const size_t first = group.nodes.empty() ? program.nodes.size() : index_of(group.nodes[0]);
  for (size_t n = first; n < program.nodes.size(); ++n)
    if (!inside[n])
      for (ValueId operand : program.nodes[n].operands) read_outside[index_of(operand)] = true;
  std::vector<ValueId> results;
  for (NodeId id : group.nodes)
    for (ValueId result : program.node(id).results)
      if (read_outside[index_of(result)]) results.push_back(result);
  return results;
}

int64_t node_flops(const Program& program, const Node& node) {
  switch (op_info(node.op).family) {
    case OpFamily::leaf:
    case OpFamily::view:
    case OpFamily::effect: return 0;
    case OpFamily::pointwise: return numel(program.type(node.results[0]).shape);
    case OpFamily::reduction: return numel(program.type(node.operands[0]).shape);
    case OpFamily::contraction:
      return saturating_mul(saturating_mul(2, numel(program.type(node.results[0]).shape)), matmul_depth(program, node));
    case OpFamily::rows: return node.op == Op::scatter_add_rows ? numel(program.type(node.operands[0]).shape) : 0;
    case OpFamily::structured: break;
  }
  if (node.op == Op::attention) return attention_flops(program, node);
  if (node.op == Op::attention_grad) return saturating_mul(5, attention_flops(program, node) / 2);
  return numel(program.type(node.operands[0]).shape);
}

int64_t group_flops(const Program& program, const Group& group) {
  int64_t flops = 0;
  for (NodeId id : group.nodes) flops = saturating_add(flops, node_flops(program, program.node(id)));
  return flops;
}

int64_t group_matrix_flops(const Program& program, const Group& group) {
  int64_t flops = 0;
  for (NodeId id : group.nodes) {
    const Node& node = program.node(id);
    const bool is_attention = node.op == Op::attention || node.op == Op::attention_grad;
    const bool is_product = node.op == Op::matmul && program.type(node.operands[0]).dtype == Dtype::bf16;
    if (is_attention || is_product) flops = saturating_add(flops, node_flops(program, node));
  }
  return flops;
}

int64_t group_bytes(const Program& program, const Group& group) {
  int64_t bytes = 0;
  const auto add = [&](ValueId id, int64_t elements) {
    bytes = saturating_add(bytes, saturating_mul(elements, dtype_bytes(program.type(id).dtype)));
  };
  for (ValueId id : group_operands(program, group)) add(id, elements_read(program, group, id));
  for (ValueId id : group_results(program, group)) add(id, numel(program.type(id).shape));
  return bytes;
}

Result<std::string> group_problem(const Program& program, const Group& group) {
  if (group.schedule == Template::pointwise) return pointwise_problem(program, group);
  const Node* node = anchor(program, group);
  if (!node) {
    const std::string_view schedule = template_name(group.schedule);
    const bool reduces = group.schedule == Template::row || group.schedule == Template::column_sum;
    const std::string_view needed =
        reduces ? "reduction" : (group.schedule == Template::scatter ? "scatter_add_rows" : schedule);
    return user_error("kernel @{}: expected a {} in a kernel of template {}, found none", group.name, needed, schedule);
  }
  switch (group.schedule) {
    case Template::pointwise: break;
    case Template::row:
    case Template::column_sum: return row_problem(program, *node, group.schedule);
    case Template::matmul: return matmul_problem(program, *node);
    case Template::scatter: return scatter_problem(program, *node);
    case Template::attention:
    case Template::attention_grad: return attention_problem(program, *node, group.schedule);
    case Template::route: return route_problem(program, *node);
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(group.schedule));
}

}  // namespace stepc
