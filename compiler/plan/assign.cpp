#include "compiler/plan/assign.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/support/check.h"

namespace stepc {
namespace {

bool is_persistent_leaf(const Node& node) { return node.op == Op::param || node.op == Op::state; }

class InPlace {
 public:
  InPlace(const Program& program, const std::vector<Unit>& order)
      : program_(program), group_of_(group_of_nodes(program)), roots_(root_values(program)) {
    rank_of_group_.assign(program.groups.size(), 0);
    for (size_t rank = 0; rank < order.size(); ++rank)
      if (order[rank].group >= 0) rank_of_group_[static_cast<size_t>(order[rank].group)] = rank;
    for (size_t n = 0; n < program.nodes.size(); ++n) {
      if (group_of_[n] < 0) continue;
      for (ValueId operand : program.nodes[n].operands) {
        const Node& leaf = program.producer(roots_[index_of(operand)]);
        if (is_persistent_leaf(leaf)) readers_[leaf.attrs.text(AttrKey::name)].insert(n);
      }
    }
  }

  std::vector<bool> run() const {
    std::vector<bool> in_place(program_.nodes.size(), false);
    std::set<ValueId> taken;
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[n];
      if (node.op != Op::assign) continue;
      const ValueId root = roots_[index_of(node.operands[0])];
      if (taken.count(root) || !is_safe(node.attrs.text(AttrKey::name), root)) continue;
      in_place[n] = true;
      taken.insert(root);
    }
    return in_place;
  }

 private:
  int group_making(ValueId value) const { return group_of_[index_of(program_.value(value).producer)]; }

  bool is_safe(const std::string& name, ValueId root) const {
    const int maker = group_making(root);
    if (maker < 0) return false;
    const Group& group = program_.groups[static_cast<size_t>(maker)];
    if (!can_assign_in_place(group)) return false;
    const auto readers = readers_.find(name);
    if (readers == readers_.end()) return true;
    return std::all_of(readers->second.begin(), readers->second.end(), [&](size_t n) {
      return group_of_[n] == maker ? only_pointwise_after(n, maker) : runs_before(group_of_[n], maker);
    });
  }

  bool runs_before(int group, int other) const {
    return rank_of_group_[static_cast<size_t>(group)] < rank_of_group_[static_cast<size_t>(other)];
  }

  // Node `n`, which reads the state, and all that the group computes from it are pointwise.
  bool only_pointwise_after(size_t n, int group) const {
    std::vector<bool> tainted(program_.values.size(), false);
    for (NodeId id : program_.groups[static_cast<size_t>(group)].nodes) {
      const Node& node = program_.node(id);
      const bool reads = index_of(id) == n || std::any_of(node.operands.begin(), node.operands.end(),
                                                          [&](ValueId v) { return tainted[index_of(v)]; });
      if (!reads) continue;
      if (op_info(node.op).family != OpFamily::pointwise) return false;
      for (ValueId result : node.results) tainted[index_of(result)] = true;
    }
    return true;
  }

  const Program& program_;
  std::vector<int> group_of_;
  std::vector<ValueId> roots_;
  std::vector<size_t> rank_of_group_;
  std::map<std::string, std::set<size_t>> readers_;  // of a state's old value: nodes in groups
};

}  // namespace

std::vector<ValueId> root_values(const Program& program) {
  const std::vector<int> group_of = group_of_nodes(program);
  std::vector<ValueId> roots(program.values.size());
  for (size_t v = 0; v < roots.size(); ++v) roots[v] = static_cast<ValueId>(v);
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const Node& node = program.nodes[n];
    if (node.op != Op::reshape || group_of[n] >= 0) continue;
    roots[index_of(node.results[0])] = roots[index_of(node.operands[0])];
  }
  return roots;
}

bool can_assign_in_place(const Group& group) {
  return group.schedule == Template::pointwise || group.schedule == Template::matmul ||
         group.schedule == Template::column_sum;
}

std::vector<bool> in_place_assigns(const Program& program, const std::vector<Unit>& order) {
  return InPlace(program, order).run();
}

}  // namespace stepc
