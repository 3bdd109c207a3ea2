#include "compiler/graph/recompute.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "compiler/graph/fuse_check.h"
#include "compiler/graph/region.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

int64_t bytes_of(const Program& program, ValueId value) {
  const TensorType& type = program.type(value);
  return saturating_mul(numel(type.shape), dtype_bytes(type.dtype));
}

std::vector<NodeId> nodes_of(const Program& program, const Unit& unit) {
  if (unit.group < 0) return {unit.node};
  return program.groups[static_cast<size_t>(unit.group)].nodes;
}

// The phase by which profiles and plans know a kernel.
bool is_forward(const Program& program, const Unit& unit) {
  return program.node(nodes_of(program, unit).back()).phase == Phase::forward;
}

bool can_repeat(const Program& program, const Node& node) {
  switch (op_info(node.op).family) {
    case OpFamily::leaf: return node.op == Op::constant || node.op == Op::iota || node.op == Op::random_bits;
    case OpFamily::pointwise: return true;
    case OpFamily::view: return true;
    case OpFamily::reduction: return is_small_reduction(program, node);
    case OpFamily::rows: return node.op == Op::gather_rows;
    case OpFamily::contraction:
    case OpFamily::structured:
    case OpFamily::effect: return false;
  }
  return false;
}

class CandidateFinder {
 public:
  explicit CandidateFinder(const Program& program) : program_(program), group_of_(group_of_nodes(program)) {
    is_result_.assign(program.values.size(), false);
    read_late_.assign(program.values.size(), false);
    only_kernels_.assign(program.values.size(), true);
    for (const Group& group : program.groups) {
      for (ValueId result : group_results(program, group)) is_result_[index_of(result)] = true;
      if (program.node(group.nodes.back()).phase == Phase::forward) continue;
      for (ValueId operand : group_operands(program, group)) read_late_[index_of(operand)] = true;
    }
    for (size_t n = 0; n < program.nodes.size(); ++n)
      for (ValueId operand : program.nodes[n].operands)
        if (group_of_[n] < 0) only_kernels_[index_of(operand)] = false;
  }

  std::vector<RecomputeCandidate> run() const {
    std::vector<RecomputeCandidate> candidates;
    for (const Group& group : program_.groups) {
      if (program_.node(group.nodes.back()).phase != Phase::forward) continue;
      for (ValueId result : group_results(program_, group)) {
        // What effects read stays in memory.
        if (!read_late_[index_of(result)] || !only_kernels_[index_of(result)]) continue;
        if (auto candidate = make(result)) candidates.push_back(std::move(*candidate));
      }
    }
    return candidates;
  }

 private:
  int group_making(ValueId value) const { return group_of_[index_of(program_.value(value).producer)]; }

  bool is_leaf(ValueId value) const {
    const Op op = program_.producer(value).op;
    return op == Op::input || op == Op::param || op == Op::state;
  }

  // Walks from the value to what is in memory. A result of the same kernel that nobody reads late is rather made
  // again than kept.
  bool collect(ValueId value, std::set<NodeId>& nodes, std::set<ValueId>& sources) const {
    const NodeId maker = program_.value(value).producer;
    if (!can_repeat(program_, program_.node(maker))) return false;
    if (!nodes.insert(maker).second) return true;
    for (ValueId operand : program_.node(maker).operands) {
      const bool outside = group_making(operand) != group_making(value);
      const bool kept = is_result_[index_of(operand)] && read_late_[index_of(operand)];
      if (outside || kept)
        sources.insert(operand);
      else if (!collect(operand, nodes, sources))
        return false;
    }
    return true;
  }

  std::optional<RecomputeCandidate> make(ValueId value) const {
    std::set<NodeId> nodes;
    std::set<ValueId> sources;
    if (!collect(value, nodes, sources)) return std::nullopt;
    RecomputeCandidate found{value, {nodes.begin(), nodes.end()}, {sources.begin(), sources.end()}};
    const auto facts = analyse(program_, {Template::pointwise, found.nodes, {value}});
    if (!facts) return std::nullopt;
    found.moved_bytes = static_cast<int64_t>(facts->read_bytes + facts->written_bytes);
    for (NodeId id : found.nodes) found.flops = saturating_add(found.flops, node_flops(program_, program_.node(id)));
    found.saved_bytes = bytes_of(program_, value);
    for (ValueId source : found.sources)
      if (!read_late_[index_of(source)] && !is_leaf(source)) found.saved_bytes -= bytes_of(program_, source);
    if (found.saved_bytes <= 0) return std::nullopt;
    return found;
  }

  const Program& program_;
  std::vector<int> group_of_;
  // By value.
  std::vector<bool> is_result_;     // of a kernel
  std::vector<bool> read_late_;     // by a kernel after forward
  std::vector<bool> only_kernels_;  // read it
};

// Writes the program anew, its values under the numbers that they have.
class Repeater {
 public:
  Repeater(Program& program, const std::vector<RecomputeCandidate>& chosen) : program_(program), old_(program) {
    for (const RecomputeCandidate& candidate : chosen) chosen_.emplace(candidate.value, &candidate);
    for (const Value& value : program.values) value_names_.insert(value.name);
    for (const Group& group : program.groups) group_names_.insert(group.name);
  }

  void run() {
    const auto units = unit_order(old_);
    STEPC_CHECK(units.has_value(), "program @{}: kernels depend on each other in a circle", old_.name);
    program_.nodes.clear();
    program_.groups.clear();
    for (const Unit& unit : *units) {
      const bool late = unit.group >= 0 && !is_forward(old_, unit);
      if (late)
        for (ValueId operand : group_operands(old_, old_.groups[static_cast<size_t>(unit.group)])) prepare(operand);
      write(unit, late);
    }
  }

 private:
  // Makes the value again, if it is chosen and that has not been done.
  void prepare(ValueId value) {
    const auto found = chosen_.find(value);
    if (found == chosen_.end() || again_.contains(value)) return;
    const RecomputeCandidate& candidate = *found->second;
    for (ValueId source : candidate.sources) prepare(source);
    Group group{group_name(value), Template::pointwise, {}};
    std::map<ValueId, ValueId> inside = again_;
    // Sources that are made in the same kernel come from memory; everything else that the nodes make is new.
    for (NodeId id : candidate.nodes) {
      Node node = old_.node(id);
      node.phase = Phase::backward;
      for (ValueId& operand : node.operands)
        if (const auto now = inside.find(operand); now != inside.end()) operand = now->second;
      for (ValueId& result : node.results) result = inside[result] = new_value(result);
      group.nodes.push_back(append(std::move(node)));
    }
    again_[value] = inside.at(value);
    program_.groups.push_back(std::move(group));
  }

  void write(const Unit& unit, bool reads_copies) {
    Group group;
    if (unit.group >= 0) {
      const Group& old = old_.groups[static_cast<size_t>(unit.group)];
      group = {old.name, old.schedule, {}};
    }
    for (NodeId id : nodes_of(old_, unit)) {
      Node node = old_.node(id);
      if (reads_copies)
        for (ValueId& operand : node.operands)
          if (const auto now = again_.find(operand); now != again_.end()) operand = now->second;
      group.nodes.push_back(append(std::move(node)));
    }
    if (unit.group >= 0) program_.groups.push_back(std::move(group));
  }

  NodeId append(Node node) {
    const auto id = static_cast<NodeId>(program_.nodes.size());
    for (ValueId result : node.results) program_.values[index_of(result)].producer = id;
    program_.nodes.push_back(std::move(node));
    return id;
  }

  ValueId new_value(ValueId like) {
    const auto id = static_cast<ValueId>(program_.values.size());
    program_.values.push_back({unique(value_names_, old_.value(like).name + ".again"), old_.type(like)});
    return id;
  }

  // "fwd.b0.moe" of a value b0.moe.2 -> "bwd.b0.moe.again".
  std::string group_name(ValueId value) {
    const NodeId maker = old_.value(value).producer;
    const auto is_maker = [&](const Group& group) {
      return std::find(group.nodes.begin(), group.nodes.end(), maker) != group.nodes.end();
    };
    std::string name = std::find_if(old_.groups.begin(), old_.groups.end(), is_maker)->name;
    if (name.starts_with("fwd.")) name = "bwd." + name.substr(4);
    return unique(group_names_, name + ".again");
  }

  static std::string unique(std::unordered_set<std::string>& names, const std::string& wanted) {
    std::string name = wanted;
    for (int suffix = 1; !names.insert(name).second; ++suffix) name = fmt::format("{}.{}", wanted, suffix);
    return name;
  }

  Program& program_;
  const Program old_;
  std::map<ValueId, const RecomputeCandidate*> chosen_;
  std::map<ValueId, ValueId> again_;  // a chosen value -> what stands for it after forward
  std::unordered_set<std::string> value_names_, group_names_;
};

}  // namespace

std::vector<RecomputeCandidate> recompute_candidates(const Program& program) { return CandidateFinder(program).run(); }

void recompute(Program& program, const std::vector<RecomputeCandidate>& chosen) {
  if (!chosen.empty()) Repeater(program, chosen).run();
}

}  // namespace stepc
