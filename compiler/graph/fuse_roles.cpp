#include "compiler/graph/fuse_roles.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/graph/fuse_prepare.h"
#include "compiler/graph/region_walk.h"

namespace stepc {
namespace {

constexpr size_t kMaxSources = 12;
// A source is negligible below this share of the result's bytes.
constexpr double kNegligible = 0.1;
// Beyond rounding: broadcast operands may come on top of the result's own bytes.
constexpr double kSlack = 1.05;

// What evaluating an element of a repeated value takes.
struct Recipe {
  std::map<ValueId, double> sources;  // values in memory -> elements read for all of the result
  std::set<NodeId> nodes;             // the repeated nodes between them and the result, itself included
  double work = 0;                    // an element
};

class RoleFinder {
 public:
  explicit RoleFinder(const Program& program)
      : program_(program),
        roles_(program.nodes.size(), Role::kernel),
        users_(program.values.size()),
        from_memory_(program.values.size(), false),
        recipes_(program.nodes.size()) {}

  std::vector<Role> run() {
    find_users();
    find_outside();
    for (size_t n = 0; n < program_.nodes.size(); ++n) decide(static_cast<NodeId>(n));
    return roles_;
  }

 private:
  const Node& node(size_t n) const { return program_.nodes[n]; }
  double elements(ValueId id) const { return static_cast<double>(numel(program_.type(id).shape)); }
  double bytes(ValueId id) const { return elements(id) * static_cast<double>(dtype_bytes(program_.type(id).dtype)); }

  // Only what effects need has users.
  void find_users() {
    for (size_t n = program_.nodes.size(); n-- > 0;) {
      bool live = op_info(node(n).op).family == OpFamily::effect;
      for (ValueId result : node(n).results) live |= !users_[index_of(result)].empty();
      if (!live) roles_[n] = Role::dead;
      if (!live) continue;
      for (size_t i = 0; i < node(n).operands.size(); ++i) {
        users_[index_of(node(n).operands[i])].push_back(static_cast<NodeId>(n));
        const ValueId base = memory_base(program_, node(n), i);
        // A gather reads anywhere: of what a product or the like makes it can only take the whole.
        const bool gathers = node(n).op == Op::gather_rows && i == 0 && is_anchor(program_, program_.producer(base));
        if (reads_memory(node(n), i) || gathers) from_memory_[index_of(base)] = true;
      }
    }
  }

  void find_outside() {
    for (size_t n = program_.nodes.size(); n-- > 0;) {
      const Op op = node(n).op;
      const bool no_code = op == Op::input || op == Op::param || op == Op::state;
      if (no_code || op_info(op).family == OpFamily::effect) roles_[n] = Role::outside;
      if (op != Op::reshape || roles_[n] == Role::dead) continue;
      const std::vector<NodeId>& users = users_[index_of(node(n).results[0])];
      const bool alias = std::all_of(users.begin(), users.end(), [&](NodeId user) {
        return op_info(program_.node(user).op).family == OpFamily::effect || role(user) == Role::alias;
      });
      if (alias) roles_[n] = Role::alias;
    }
  }

  Role role(NodeId id) const { return roles_[index_of(id)]; }
  bool widens(const Node& made) const {
    return made.op == Op::cast && program_.type(made.operands[0]).dtype == Dtype::bf16;
  }

  void decide(NodeId id) {
    if (role(id) != Role::kernel) return;
    const Node& made = program_.node(id);
    if (made.results.size() != 1 || from_memory_[index_of(made.results[0])]) return;
    if (!can_repeat(made)) return;
    Recipe recipe = recipe_of(id);
    const bool always = is_free(made.op) || made.op == Op::reshape || widens(made);
    if (!always && !is_mask(made, recipe) && !is_scalar(made, recipe) && !is_cheap(id, recipe)) return;
    roles_[index_of(id)] = Role::repeated;
    recipes_[index_of(id)] = std::move(recipe);
  }

  static bool can_repeat(const Node& made) {
    switch (op_info(made.op).family) {
      case OpFamily::leaf: return made.op == Op::constant || made.op == Op::iota;
      case OpFamily::pointwise: return true;
      case OpFamily::view: return made.op != Op::concat;
      case OpFamily::rows: return made.op == Op::gather_rows;
      case OpFamily::reduction:
      case OpFamily::contraction:
      case OpFamily::structured:
      case OpFamily::effect: return false;
    }
    return false;
  }

  Recipe recipe_of(NodeId id) const {
    const Node& made = program_.node(id);
    const double count = elements(made.results[0]);
    Recipe recipe{{}, {id}, op_work_bytes(made.op)};
    for (ValueId operand : made.operands) {
      const NodeId from = program_.value(operand).producer;
      if (role(from) != Role::repeated) {
        double& read = recipe.sources[operand];
        read = std::max(read, std::min(elements(operand), count));
        continue;
      }
      const Recipe& inner = recipes_[index_of(from)];
      recipe.nodes.insert(inner.nodes.begin(), inner.nodes.end());
      recipe.work += inner.work;
      for (const auto& [source, elements_read] : inner.sources) {
        double& read = recipe.sources[source];
        read = std::max(read, std::min(elements_read, count));
      }
    }
    return recipe;
  }

  // Places compared, which takes less than to read the answer: its only reader may be evaluated in many kernels.
  bool is_mask(const Node& made, const Recipe& recipe) const {
    return program_.type(made.results[0]).dtype == Dtype::pred && recipe.sources.empty() && recipe.work < 1;
  }

  bool is_scalar(const Node& made, const Recipe& recipe) const {
    if (elements(made.results[0]) != 1 || recipe.sources.size() > kMaxSources) return false;
    return std::all_of(recipe.sources.begin(), recipe.sources.end(),
                       [&](const auto& source) { return elements(source.first) == 1; });
  }

  bool is_cheap(NodeId id, const Recipe& recipe) const {
    const ValueId result = program_.node(id).results[0];
    const std::set<NodeId> readers = readers_of(result);
    const auto k = static_cast<double>(readers.size());
    if (k < 2 || recipe.sources.size() > kMaxSources) return false;
    double source_bytes = 0;
    bool must_not_grow = std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
      return program_.node(reader).phase != program_.node(id).phase;
    });
    for (const auto& [source, count] : recipe.sources) {
      const double read = count * static_cast<double>(dtype_bytes(program_.type(source).dtype));
      must_not_grow |= read > kNegligible * bytes(result) && !needed_elsewhere(source, recipe);
      source_bytes += read;
    }
    if (must_not_grow && source_bytes > kSlack * bytes(result)) return false;
    const double again = recipe.work * elements(result) * (evaluations(result) - 1);
    return again + source_bytes * (k - 1) <= kSlack * k * bytes(result);
  }

  // The nodes that compute with the value, through views and casts that will be repeated.
  std::set<NodeId> readers_of(ValueId value) const {
    std::set<NodeId> readers;
    for (NodeId user : users_[index_of(value)]) {
      const Node& reader = program_.node(user);
      const bool through = is_free(reader.op) || reader.op == Op::reshape || widens(reader);
      if (through && !from_memory_[index_of(reader.results[0])] && role(user) != Role::alias)
        readers.merge(readers_of(reader.results[0]));
      else
        readers.insert(user);
    }
    return readers;
  }

  bool needed_elsewhere(ValueId source, const Recipe& recipe) const {
    const Node& made = program_.producer(source);
    const bool in_memory = made.op == Op::input || made.op == Op::param || made.op == Op::state ||
                           op_info(made.op).family == OpFamily::structured || made.op == Op::scatter_add_rows;
    if (in_memory || from_memory_[index_of(source)]) return true;
    const std::set<NodeId> readers = readers_of(source);
    return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) { return !recipe.nodes.contains(reader); });
  }

  // Of one element, over all readers.
  double evaluations(ValueId value) const {
    double count = 0;
    for (NodeId user : users_[index_of(value)]) {
      const Node& reader = program_.node(user);
      const bool view = op_info(reader.op).family == OpFamily::view || widens(reader);
      const bool gathers = reader.op == Op::gather_rows && reader.operands[0] == value;
      if (!view && !gathers) count += 1;
      if (!view && !gathers) continue;
      const bool once = gathers || from_memory_[index_of(reader.results[0])];
      const double share = elements(reader.results[0]) / std::max(1.0, elements(value));
      count += share * (once ? 1 : evaluations(reader.results[0]));
    }
    return count;
  }

  const Program& program_;
  std::vector<Role> roles_;
  std::vector<std::vector<NodeId>> users_;  // of a value, among the nodes that are needed
  std::vector<bool> from_memory_;
  std::vector<Recipe> recipes_;  // of repeated nodes
};

}  // namespace

std::vector<Role> fusion_roles(const Program& program) { return RoleFinder(program).run(); }

}  // namespace stepc
