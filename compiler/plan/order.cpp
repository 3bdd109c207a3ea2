#include "compiler/plan/order.h"

#include <algorithm>
#include <set>

#include "compiler/plan/assign.h"
#include "ir/support/check.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

class MemoryOrder {
 public:
  explicit MemoryOrder(const Program& program)
      : program_(program), units_(*unit_order(program)), roots_(root_values(program)) {}

  std::vector<Unit> run() {
    find_units();
    find_bytes();
    connect();
    std::set<size_t> ready;  // by place in the program's order
    for (size_t u = 0; u < units_.size(); ++u)
      if (waits_for_[u].empty()) ready.insert(u);
    std::vector<Unit> order;
    while (!ready.empty()) {
      const size_t next = pick(ready);
      ready.erase(next);
      order.push_back(units_[next]);
      for (ValueId value : reads_[next]) --readers_left_[index_of(value)];
      for (size_t after : followers_[next]) {
        waits_for_[after].erase(next);
        if (waits_for_[after].empty()) ready.insert(after);
      }
    }
    STEPC_CHECK(order.size() == units_.size(), "{} of {} units ordered", order.size(), units_.size());
    return order;
  }

 private:
  // What frees most, if anything frees, else the first in the program's order.
  size_t pick(const std::set<size_t>& ready) const {
    size_t best = *ready.begin();
    int64_t best_net = 0;
    for (size_t u : ready) {
      const int64_t net = net_bytes(u);
      if (net < best_net) best = u, best_net = net;
    }
    return best;
  }

  std::vector<NodeId> nodes_of(const Unit& unit) const {
    if (unit.group < 0) return {unit.node};
    return program_.groups[static_cast<size_t>(unit.group)].nodes;
  }

  void find_units() {
    unit_of_node_.resize(program_.nodes.size());
    for (size_t u = 0; u < units_.size(); ++u)
      for (NodeId id : nodes_of(units_[u])) unit_of_node_[index_of(id)] = u;
  }

  size_t maker(ValueId value) const { return unit_of_node_[index_of(program_.value(value).producer)]; }

  // What each value takes in the activations arena: nothing for leaves, outputs and what is made in place.
  void find_bytes() {
    bytes_.assign(program_.values.size(), 0);
    readers_left_.assign(program_.values.size(), 0);
    reads_.resize(units_.size());
    const std::vector<bool> in_place = in_place_assigns(program_, units_);
    std::vector<bool> free_of_charge(program_.values.size(), false);
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[n];
      const size_t unit = unit_of_node_[n];
      if (node.op == Op::output || (node.op == Op::assign && in_place[n]))
        free_of_charge[index_of(roots_[index_of(node.operands[0])])] = true;
      for (ValueId operand : node.operands) {
        const ValueId root = roots_[index_of(operand)];
        if (maker(root) == unit || is_reshape(unit)) continue;
        if (reads_[unit].insert(root).second) ++readers_left_[index_of(root)];
      }
    }
    for (const std::set<ValueId>& reads : reads_)
      for (ValueId value : reads) {
        const bool leaf = units_[maker(value)].group < 0 && program_.producer(value).op != Op::constant;
        if (!leaf && !free_of_charge[index_of(value)]) {
          const TensorType& type = program_.type(value);
          bytes_[index_of(value)] = saturating_mul(numel(type.shape), dtype_bytes(type.dtype));
        }
      }
    // A late copy reads an assigned value at the end: it never goes before.
    for (size_t n = 0; n < program_.nodes.size(); ++n)
      if (program_.nodes[n].op == Op::assign && !in_place[n])
        ++readers_left_[index_of(roots_[index_of(program_.nodes[n].operands[0])])];
    in_place_ = in_place;
  }

  bool is_reshape(size_t unit) const {
    return units_[unit].group < 0 && program_.node(units_[unit].node).op == Op::reshape;
  }

  void add_edge(size_t before, size_t after) {
    if (before == after) return;
    waits_for_[after].insert(before);
    followers_[before].insert(after);
  }

  // Who reads what another makes comes after it; who reads an old value comes before its overwriter.
  void connect() {
    waits_for_.resize(units_.size());
    followers_.resize(units_.size());
    for (size_t n = 0; n < program_.nodes.size(); ++n)
      for (ValueId operand : program_.nodes[n].operands) add_edge(maker(operand), unit_of_node_[n]);
    for (size_t a = 0; a < program_.nodes.size(); ++a) {
      if (!in_place_[a]) continue;
      const Node& assign = program_.nodes[a];
      const size_t writer = maker(roots_[index_of(assign.operands[0])]);
      for (size_t u = 0; u < units_.size(); ++u)
        for (ValueId read : reads_[u])
          if (units_[u].group >= 0 && holds(read, assign.attrs.text(AttrKey::name))) add_edge(u, writer);
    }
  }

  bool holds(ValueId value, const std::string& name) const {
    const Node& leaf = program_.producer(value);
    return (leaf.op == Op::param || leaf.op == Op::state) && leaf.attrs.text(AttrKey::name) == name;
  }

  // Bytes that come to be live minus bytes that cease to be if the unit runs next.
  int64_t net_bytes(size_t unit) const {
    int64_t net = 0;
    for (NodeId id : nodes_of(units_[unit]))
      for (ValueId result : program_.node(id).results) net += bytes_[index_of(result)];
    for (ValueId value : reads_[unit])
      if (readers_left_[index_of(value)] == 1) net -= bytes_[index_of(value)];
    return net;
  }

  const Program& program_;
  std::vector<Unit> units_;  // in the program's order
  std::vector<ValueId> roots_;
  std::vector<size_t> unit_of_node_;
  std::vector<bool> in_place_;               // by node
  std::vector<int64_t> bytes_;               // by value
  std::vector<int> readers_left_;            // by value: units that have not run
  std::vector<std::set<ValueId>> reads_;     // by unit: roots
  std::vector<std::set<size_t>> waits_for_;  // by unit
  std::vector<std::set<size_t>> followers_;  // by unit
};

}  // namespace

std::vector<Unit> memory_order(const Program& program) { return MemoryOrder(program).run(); }

}  // namespace stepc
