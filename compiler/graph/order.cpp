#include "compiler/graph/order.h"

#include <map>
#include <set>

#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

// Units, by number in the present order, and what each waits for.
struct Constraints {
  std::vector<Unit> units;
  std::vector<size_t> unit_of_node;
  std::vector<std::set<size_t>> hard;  // it reads what they make
  std::vector<std::set<size_t>> soft;  // they read what it overwrites
};

const std::vector<NodeId> nodes_of(const Program& program, const Unit& unit) {
  if (unit.group < 0) return {unit.node};
  return program.groups[static_cast<size_t>(unit.group)].nodes;
}

Constraints number_units(const Program& program) {
  auto units = unit_order(program);
  STEPC_CHECK(units.has_value(), "program @{}: kernels depend on each other in a circle", program.name);
  Constraints found{std::move(*units), std::vector<size_t>(program.nodes.size()), {}, {}};
  for (size_t u = 0; u < found.units.size(); ++u)
    for (NodeId id : nodes_of(program, found.units[u])) found.unit_of_node[index_of(id)] = u;
  found.hard.resize(found.units.size());
  found.soft.resize(found.units.size());
  return found;
}

// The kernel that makes the value which an assign stores, before reshapes outside of kernels.
size_t maker(const Program& program, const Constraints& found, ValueId value) {
  for (;;) {
    const size_t unit = found.unit_of_node[index_of(program.value(value).producer)];
    const Node& node = program.producer(value);
    if (found.units[unit].group >= 0 || node.op != Op::reshape) return unit;
    value = node.operands[0];
  }
}

Constraints find_constraints(const Program& program) {
  Constraints found = number_units(program);
  std::map<std::string_view, std::set<size_t>> readers;  // of a persistent's old value
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const size_t unit = found.unit_of_node[n];
    for (ValueId operand : program.nodes[n].operands) {
      const Node& from = program.producer(operand);
      const size_t producer = found.unit_of_node[index_of(program.value(operand).producer)];
      if (producer != unit) found.hard[unit].insert(producer);
      if (from.op == Op::param || from.op == Op::state) readers[from.attrs.text(AttrKey::name)].insert(unit);
    }
  }
  for (const Node& node : program.nodes) {
    if (node.op != Op::assign) continue;
    const size_t unit = maker(program, found, node.operands[0]);
    if (found.units[unit].group < 0) continue;
    for (size_t reader : readers[node.attrs.text(AttrKey::name)])
      if (reader != unit) found.soft[unit].insert(reader);
  }
  return found;
}

// The earliest unit that may run; if only soft constraints hold all back, the earliest of those.
std::vector<size_t> schedule(Constraints found) {
  const size_t count = found.units.size();
  std::vector<std::vector<size_t>> released(count);
  for (size_t u = 0; u < count; ++u) {
    for (size_t before : found.hard[u]) released[before].push_back(u);
    for (size_t before : found.soft[u]) released[before].push_back(u);
  }
  std::set<size_t> free, held, done;  // free: nothing to wait for; held: soft constraints left
  const auto place = [&](size_t u) {
    if (!found.hard[u].empty()) return;
    held.erase(u);
    (found.soft[u].empty() ? free : held).insert(u);
  };
  for (size_t u = 0; u < count; ++u) place(u);
  std::vector<size_t> order;
  while (order.size() < count) {
    STEPC_CHECK(!free.empty() || !held.empty(), "units wait for each other");
    std::set<size_t>& from = free.empty() ? held : free;
    const size_t unit = *from.begin();
    from.erase(from.begin());
    order.push_back(unit);
    done.insert(unit);
    for (size_t next : released[unit]) {
      if (done.contains(next)) continue;
      found.hard[next].erase(unit);
      found.soft[next].erase(unit);
      place(next);
    }
  }
  return order;
}

// The program with its nodes in this order. Values keep their numbers.
void renumber(Program& program, const std::vector<Unit>& units, const std::vector<size_t>& order) {
  std::vector<Node> nodes;
  std::vector<Group> groups;
  const std::vector<Node> old = std::move(program.nodes);
  for (size_t u : order) {
    std::vector<NodeId> now;
    const bool grouped = units[u].group >= 0;
    const Group* group = grouped ? &program.groups[static_cast<size_t>(units[u].group)] : nullptr;
    for (NodeId id : grouped ? group->nodes : std::vector<NodeId>{units[u].node}) {
      now.push_back(static_cast<NodeId>(nodes.size()));
      for (ValueId result : old[index_of(id)].results) program.values[index_of(result)].producer = now.back();
      nodes.push_back(old[index_of(id)]);
    }
    if (grouped) groups.push_back({group->name, group->schedule, std::move(now)});
  }
  program.nodes = std::move(nodes);
  program.groups = std::move(groups);
}

}  // namespace

void order(Program& program) {
  const Constraints found = find_constraints(program);
  renumber(program, found.units, schedule(found));
}

}  // namespace stepc
