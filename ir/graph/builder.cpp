#include "ir/graph/builder.h"

#include "ir/graph/verify.h"
#include "ir/graph/verify_rules.h"
#include "ir/support/check.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

size_t find_or_add_program(Module& module, const std::string& name) {
  for (size_t i = 0; i < module.programs.size(); ++i)
    if (module.programs[i].name == name) return i;
  module.programs.push_back({});
  module.programs.back().name = name;
  return module.programs.size() - 1;
}

Attrs in_table_order(Op op, const Attrs& attrs) {
  const std::vector<AttrKey>& keys = op_info(op).attrs;
  Attrs ordered;
  for (AttrKey key : keys) {
    const AttrValue* value = attrs.find(key);
    STEPC_CHECK(value || is_optional(key), "{} needs the attribute {}", op_info(op).name, attr_name(key));
    if (value) ordered.set(key, *value);
  }
  STEPC_CHECK(attrs.entries().size() == ordered.entries().size(), "{} takes {} attributes, found {}", op_info(op).name,
              ordered.entries().size(), attrs.entries().size());
  return ordered;
}

}  // namespace

GraphBuilder::GraphBuilder(Module& module, std::string program_name)
    : module_(module), program_index_(find_or_add_program(module, program_name)) {
  for (const Value& value : program().values) names_.insert(value.name);
  for (const Node& node : program().nodes)
    if (node.op == Op::param || node.op == Op::state)
      persistents_.emplace(node.attrs.text(AttrKey::name), node.results[0]);
}

Program& GraphBuilder::program() { return module_.programs[program_index_]; }

const TensorType& GraphBuilder::type(ValueId id) const { return module_.programs[program_index_].type(id); }

std::string GraphBuilder::unique_name(std::string base) {
  if (names_.insert(base).second) return base;
  int& suffix = next_suffix_[base];
  for (;;) {
    std::string name = fmt::format("{}.{}", base, ++suffix);
    if (names_.insert(name).second) return name;
  }
}

std::vector<ValueId> GraphBuilder::emit(Op op, std::vector<ValueId> operands, Attrs attrs, TensorType type) {
  Program& into = program();
  Types operand_types;
  for (ValueId operand : operands) operand_types.push_back(into.type(operand));
  Node node{op, std::move(operands), {}, in_table_order(op, attrs), phase_, {}};
  const Types declared = declares_result(op) ? Types{std::move(type)} : Types{};
  const Result<Types> types = infer_results(op, operand_types, node.attrs, declared);
  STEPC_CHECK(types.has_value(), "program @{}: {}", into.name, types.error().message);
  const auto id = static_cast<NodeId>(into.nodes.size());
  for (const TensorType& result : *types) {
    node.results.push_back(static_cast<ValueId>(into.values.size()));
    const std::string base = name_from(hint_.empty() ? op_info(op).name : std::string_view(hint_));
    into.values.push_back({unique_name(base), result, id});
  }
  into.nodes.push_back(node);
  return node.results;
}

ValueId GraphBuilder::emit1(Op op, std::vector<ValueId> operands, Attrs attrs, TensorType type) {
  const std::vector<ValueId> results = emit(op, std::move(operands), std::move(attrs), std::move(type));
  STEPC_CHECK(results.size() == 1, "{} has {} results", op_info(op).name, results.size());
  return results[0];
}

ValueId GraphBuilder::input(std::string name, TensorType type) {
  const std::string hint = std::exchange(hint_, name);
  const ValueId id = emit1(Op::input, {}, {{AttrKey::name, std::move(name)}}, std::move(type));
  hint_ = hint;
  return id;
}

ValueId GraphBuilder::persistent(std::string_view name) {
  const auto known = persistents_.find(std::string(name));
  if (known != persistents_.end()) return known->second;
  const Persistent* found = module_.find_persistent(name);
  STEPC_CHECK(found, "no param or state @{}", name);
  const std::string hint = std::exchange(hint_, std::string(name));
  const Op op = found->is_param ? Op::param : Op::state;
  const ValueId id = emit1(op, {}, {{AttrKey::name, std::string(name)}}, found->type);
  hint_ = hint;
  persistents_.emplace(name, id);
  return id;
}

ValueId GraphBuilder::constant(double value, TensorType type) {
  return emit1(Op::constant, {}, {{AttrKey::value, value}}, std::move(type));
}

ValueId GraphBuilder::iota(int64_t axis, Shape shape) {
  return emit1(Op::iota, {}, {{AttrKey::axis, axis}}, {Dtype::i32, std::move(shape)});
}

ValueId GraphBuilder::unary(Op op, ValueId x) { return emit1(op, {x}); }

ValueId GraphBuilder::binary(Op op, ValueId a, ValueId b) {
  const Shape shape_a = shape(a);
  const Shape shape_b = shape(b);
  if (shape_a.empty() && !shape_b.empty()) a = broadcast(a, shape_b, {});
  if (shape_b.empty() && !shape_a.empty()) b = broadcast(b, shape_a, {});
  return emit1(op, {a, b});
}

ValueId GraphBuilder::add(ValueId a, double b) { return binary(Op::add, a, constant(b, type(a))); }

ValueId GraphBuilder::mul(ValueId a, double b) { return binary(Op::mul, a, constant(b, type(a))); }

ValueId GraphBuilder::select(ValueId condition, ValueId a, ValueId b) { return emit1(Op::select, {condition, a, b}); }

ValueId GraphBuilder::cast(ValueId x, Dtype dtype) {
  if (type(x).dtype == dtype) return x;
  return emit1(Op::cast, {x}, {}, {dtype, shape(x)});
}

ValueId GraphBuilder::reshape(ValueId x, Shape shape) {
  return emit1(Op::reshape, {x}, {}, {type(x).dtype, std::move(shape)});
}

ValueId GraphBuilder::transpose(ValueId x, std::vector<int64_t> permutation) {
  return emit1(Op::transpose, {x}, {{AttrKey::permutation, std::move(permutation)}});
}

ValueId GraphBuilder::broadcast(ValueId x, Shape shape, std::vector<int64_t> axes) {
  return emit1(Op::broadcast, {x}, {{AttrKey::axes, std::move(axes)}}, {type(x).dtype, std::move(shape)});
}

ValueId GraphBuilder::slice(ValueId x, int64_t axis, int64_t start, int64_t limit) {
  std::vector<int64_t> starts(shape(x).size(), 0);
  std::vector<int64_t> limits = shape(x);
  STEPC_CHECK(axis >= 0 && axis < static_cast<int64_t>(limits.size()), "slice along axis {} of {}", axis,
              type_text(type(x)));
  starts[static_cast<size_t>(axis)] = start;
  limits[static_cast<size_t>(axis)] = limit;
  return emit1(Op::slice, {x}, {{AttrKey::start, std::move(starts)}, {AttrKey::limit, std::move(limits)}});
}

ValueId GraphBuilder::reduce(Op op, ValueId x, std::vector<int64_t> axes) {
  return emit1(op, {x}, {{AttrKey::axes, std::move(axes)}});
}

ValueId GraphBuilder::matmul(ValueId a, ValueId b, Dtype out, bool transpose_a, bool transpose_b, ValueId count) {
  std::vector<ValueId> operands{a, b};
  if (count != ValueId::none) operands.push_back(count);
  return emit1(Op::matmul, std::move(operands),
               {{AttrKey::transpose_a, transpose_a}, {AttrKey::transpose_b, transpose_b}}, {out, {}});
}

void GraphBuilder::assign(std::string_view name, ValueId x) {
  emit(Op::assign, {x}, {{AttrKey::name, std::string(name)}});
}

void GraphBuilder::output(std::string name, ValueId x) { emit(Op::output, {x}, {{AttrKey::name, std::move(name)}}); }

}  // namespace stepc
