#include "compiler/graph/rewrite.h"

#include "ir/support/check.h"

namespace stepc {

Rewriter::Rewriter(const Program& from) : from_(from), map_(from.values.size(), ValueId::none) {
  STEPC_CHECK(from.groups.empty(), "program @{} is already fused", from.name);
  to_.name = from.name;
  to_.values.reserve(from.values.size());
  to_.nodes.reserve(from.nodes.size());
  for (const Value& value : from.values) names_.insert(value.name);
}

ValueId Rewriter::mapped(ValueId old) const {
  const ValueId now = map_[index_of(old)];
  STEPC_CHECK(now != ValueId::none, "%{} is used but was not rebuilt", from_.value(old).name);
  return now;
}

Node Rewriter::mapped(const Node& old) const {
  Node node = old;
  for (ValueId& operand : node.operands) operand = mapped(operand);
  return node;
}

void Rewriter::replace(ValueId old, ValueId by) {
  STEPC_CHECK(from_.type(old) == to_.type(by), "%{} replaced by %{} of another type", from_.value(old).name,
              to_.value(by).name);
  map_[index_of(old)] = by;
}

void Rewriter::keep(const Node& node) {
  const auto id = static_cast<NodeId>(to_.nodes.size());
  Node kept = node;
  for (ValueId& result : kept.results) {
    const ValueId now = static_cast<ValueId>(to_.values.size());
    to_.values.push_back({from_.value(result).name, from_.type(result), id});
    map_[index_of(result)] = now;
    result = now;
  }
  to_.nodes.push_back(std::move(kept));
}

ValueId Rewriter::emit(Op op, std::vector<ValueId> operands, Attrs attrs, TensorType type, const Node& like,
                       const std::string& name) {
  std::string unique = name;
  for (int suffix = 1; !names_.insert(unique).second; ++suffix) unique = fmt::format("{}.{}", name, suffix);
  const auto id = static_cast<NodeId>(to_.nodes.size());
  const auto result = static_cast<ValueId>(to_.values.size());
  to_.values.push_back({unique, std::move(type), id});
  to_.nodes.push_back({op, std::move(operands), {result}, std::move(attrs), like.phase, like.where});
  return result;
}

}  // namespace stepc
