#include "compiler/schedule/region/attention_group.h"

#include <algorithm>

#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc {

AttentionGroup analyse_attention(const Program& program, const Group& source) {
  const auto inside = [&](ValueId value) {
    const auto& nodes = source.nodes;
    return std::find(nodes.begin(), nodes.end(), program.value(value).producer) != nodes.end();
  };
  AttentionGroup group;
  for (NodeId id : source.nodes) {
    const Node& node = program.node(id);
    if (node.op != Op::attention && node.op != Op::attention_grad) continue;
    const Shape& qkv = program.type(node.operands[0]).shape;
    group.sizes = {qkv[0], qkv[1], qkv[3], qkv[4], node.attrs.flag(AttrKey::causal), node.attrs.real(AttrKey::scale)};
    group.atomic = node.attrs.flag(AttrKey::atomic);
    group.results = node.results;
    for (ValueId operand : node.operands) {
      while (inside(operand)) operand = program.producer(operand).operands[0];
      group.operands.push_back(operand);
    }
    return group;
  }
  STEPC_UNREACHABLE("kernel @{} has no attention", source.name);
}

Status check_nothing_follows(const Program& program, const Group& group, const AttentionGroup& attention) {
  for (ValueId result : group_results(program, group))
    if (std::find(attention.results.begin(), attention.results.end(), result) == attention.results.end())
      return user_error("kernel @{}: the {} template of this target cannot make %{}, which follows the op", group.name,
                        template_name(group.schedule), program.value(result).name);
  return {};
}

}  // namespace stepc
