// Finds a group's product, what it reads, and the way from it to each result.
#include "compiler/schedule/host/matmul_group.h"

#include <algorithm>

#include "compiler/graph/fuse_check.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

bool inside(const Problem& problem, ValueId value) {
  const auto& nodes = problem.group.nodes;
  return std::find(nodes.begin(), nodes.end(), problem.program.value(value).producer) != nodes.end();
}

const Node& find_product(const Problem& problem) {
  for (NodeId id : problem.group.nodes)
    if (problem.program.node(id).op == Op::matmul) return problem.program.node(id);
  STEPC_UNREACHABLE("kernel @{} has no matmul", problem.group.name);
}

// What the kernel is given for the product's operand: before reshapes and widening casts.
ValueId given_operand(const Problem& problem, ValueId value) {
  while (inside(problem, value)) {
    const Node& node = problem.program.producer(value);
    STEPC_CHECK(node.op == Op::reshape || node.op == Op::cast, "kernel @{}: {} before a matmul", problem.group.name,
                op_info(node.op).name);
    value = node.operands[0];
  }
  return value;
}

void read_sizes(const Problem& problem, const Node& node, MatmulGroup& group) {
  const Program& program = problem.program;
  const Shape& a = program.type(node.operands[0]).shape;
  const Shape& y = program.type(node.results[0]).shape;
  MatmulProblem& sizes = group.sizes;
  sizes.transpose_a = node.attrs.flag(AttrKey::transpose_a);
  sizes.transpose_b = node.attrs.flag(AttrKey::transpose_b);
  sizes.m = y[y.size() - 2];
  sizes.n = y[y.size() - 1];
  sizes.k = a[a.size() - (sizes.transpose_a ? 2 : 1)];
  sizes.batch = numel(Shape(y.begin(), y.end() - 2));
  sizes.math_dtype = program.type(node.operands[0]).dtype;
  sizes.a_dtype = program.type(group.a).dtype;
  sizes.b_dtype = program.type(group.b).dtype;
  sizes.halves = column_map(program, problem.group) == ColumnMap::halves;
}

MatmulStore make_store(const Problem& problem, const MatmulGroup& group, ValueId result, ValueId piece,
                       std::vector<int64_t> offset) {
  MatmulStore store{result, std::move(offset), store_base(problem.program, problem.group, piece), {}, false};
  for (ValueId value = piece; value != store.base; value = problem.program.producer(value).operands[0])
    store.views.push_back(problem.program.value(value).producer);
  std::reverse(store.views.begin(), store.views.end());
  const int64_t elements = numel(problem.program.type(store.base).shape);
  store.half = group.sizes.halves && elements < group.sizes.batch * group.sizes.m * group.sizes.n;
  return store;
}

bool is_plain(const Problem& problem, const MatmulGroup& group) {
  if (group.stores.size() != 1 || group.stores[0].base != group.product) return false;
  const auto reshapes = [&](NodeId id) { return problem.program.node(id).op == Op::reshape; };
  return std::all_of(group.stores[0].views.begin(), group.stores[0].views.end(), reshapes);
}

}  // namespace

MatmulGroup analyse_matmul(const Problem& problem) {
  const Node& node = find_product(problem);
  MatmulGroup group;
  group.product = node.results[0];
  group.a = given_operand(problem, node.operands[0]);
  group.b = given_operand(problem, node.operands[1]);
  read_sizes(problem, node, group);
  for (ValueId result : problem.results) {
    const Node& last = problem.program.producer(result);
    std::vector<int64_t> offset(problem.program.type(result).shape.size(), 0);
    if (last.op != Op::concat) {
      group.stores.push_back(make_store(problem, group, result, result, offset));
      continue;
    }
    const auto axis = static_cast<size_t>(last.attrs.integer(AttrKey::axis));
    for (ValueId piece : last.operands) {
      group.stores.push_back(make_store(problem, group, result, piece, offset));
      offset[axis] += problem.program.type(piece).shape[axis];
    }
  }
  group.plain = is_plain(problem, group);
  return group;
}

}  // namespace stepc::host
