// Finds a group's product, what it reads, and the way from it to each result.
#include "compiler/schedule/region/matmul_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/fuse_check.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

// A group in its program.
struct Source {
  const Program& program;
  const Group& group;
};

bool inside(const Source& source, ValueId value) {
  const auto& nodes = source.group.nodes;
  return std::find(nodes.begin(), nodes.end(), source.program.value(value).producer) != nodes.end();
}

const Node& find_product(const Source& source) {
  for (NodeId id : source.group.nodes)
    if (source.program.node(id).op == Op::matmul) return source.program.node(id);
  STEPC_UNREACHABLE("kernel @{} has no matmul", source.group.name);
}

// What the kernel is given for the product's operand: before reshapes and widening casts.
ValueId given_operand(const Source& source, ValueId value) {
  while (inside(source, value)) {
    const Node& node = source.program.producer(value);
    STEPC_CHECK(node.op == Op::reshape || node.op == Op::cast, "kernel @{}: {} before a matmul", source.group.name,
                op_info(node.op).name);
    value = node.operands[0];
  }
  return value;
}

void read_sizes(const Source& source, const Node& node, MatmulGroup& group) {
  const Program& program = source.program;
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
  if (group.count != ValueId::none) sizes.counted = sizes.transpose_a ? CountedAxis::k : CountedAxis::m;
  sizes.halves = column_map(program, source.group) == ColumnMap::halves;
}

MatmulStore make_store(const Source& source, const MatmulGroup& group, ValueId result, ValueId piece,
                       std::vector<int64_t> offset) {
  MatmulStore store{result, std::move(offset), store_base(source.program, source.group, piece), {}, false};
  for (ValueId value = piece; value != store.base; value = source.program.producer(value).operands[0])
    store.views.push_back(source.program.value(value).producer);
  std::reverse(store.views.begin(), store.views.end());
  const int64_t elements = numel(source.program.type(store.base).shape);
  store.half = group.sizes.halves && elements < group.sizes.batch * group.sizes.m * group.sizes.n;
  return store;
}

bool is_plain(const Source& source, const MatmulGroup& group) {
  if (group.stores.size() != 1 || group.stores[0].base != group.product) return false;
  const auto reshapes = [&](NodeId id) { return source.program.node(id).op == Op::reshape; };
  return std::all_of(group.stores[0].views.begin(), group.stores[0].views.end(), reshapes);
}

}  // namespace

std::string describe(CountedAxis counted) {
  switch (counted) {
    case CountedAxis::none: return "";
    case CountedAxis::m: return ", counted rows";
    case CountedAxis::k: return ", counted k";
  }
  STEPC_UNREACHABLE("axis {}", static_cast<int>(counted));
}

std::string describe(const MatmulProblem& problem) {
  return fmt::format("matmul(m={}, n={}, k={}, batch={})", problem.m, problem.n, problem.k, problem.batch);
}

MatmulGroup analyse_matmul(const Program& program, const Group& of, const std::vector<ValueId>& results) {
  const Source source{program, of};
  const Node& node = find_product(source);
  MatmulGroup group;
  group.product = node.results[0];
  group.a = given_operand(source, node.operands[0]);
  group.b = given_operand(source, node.operands[1]);
  if (node.operands.size() == 3) group.count = given_operand(source, node.operands[2]);
  read_sizes(source, node, group);
  for (ValueId result : results) {
    const Node& last = source.program.producer(result);
    std::vector<int64_t> offset(source.program.type(result).shape.size(), 0);
    if (last.op != Op::concat) {
      group.stores.push_back(make_store(source, group, result, result, offset));
      continue;
    }
    const auto axis = static_cast<size_t>(last.attrs.integer(AttrKey::axis));
    for (ValueId piece : last.operands) {
      group.stores.push_back(make_store(source, group, result, piece, offset));
      offset[axis] += source.program.type(piece).shape[axis];
    }
  }
  group.plain = is_plain(source, group);
  return group;
}

}  // namespace stepc
