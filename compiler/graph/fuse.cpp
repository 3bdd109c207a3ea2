#include "compiler/graph/fuse.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <unordered_set>

#include "compiler/graph/fuse_graph.h"
#include "compiler/graph/fuse_merge.h"
#include "compiler/graph/fuse_names.h"
#include "compiler/graph/fuse_prepare.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

// What is written as one: a kernel or a lone node.
struct Step {
  std::vector<NodeId> nodes;  // without the repeated ones
  int kernel = -1;
};

// Inputs, params and states; then kernels, aliases and effects, each after what it reads, else in the order of their
// first nodes.
std::vector<Step> ordered_steps(const FuseGraph& graph, const std::vector<FusedKernel>& kernels) {
  const Program& program = graph.program();
  std::vector<Step> steps;
  for (size_t k = 0; k < kernels.size(); ++k) steps.push_back({kernels[k].nodes, static_cast<int>(k)});
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const auto id = static_cast<NodeId>(n);
    if (graph.role(id) == Role::outside || graph.role(id) == Role::alias) steps.push_back({{id}, -1});
  }
  const auto place = [&](const Step& step) {
    return std::pair(op_info(program.node(step.nodes[0]).op).family != OpFamily::leaf || step.kernel >= 0,
                     step.nodes[0]);
  };
  std::sort(steps.begin(), steps.end(), [&](const Step& a, const Step& b) { return place(a) < place(b); });
  std::vector<size_t> step_of(program.nodes.size(), 0);
  for (size_t s = 0; s < steps.size(); ++s)
    for (NodeId id : steps[s].nodes) step_of[index_of(id)] = s;
  std::vector<std::vector<size_t>> readers(steps.size());
  std::vector<int> waits_for(steps.size(), 0);
  for (size_t s = 0; s < steps.size(); ++s)
    for (NodeId id : steps[s].nodes)
      for (ValueId source : graph.sources(id)) {
        const size_t from = step_of[index_of(program.value(source).producer)];
        if (from == s) continue;
        readers[from].push_back(s);
        ++waits_for[s];
      }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t s = 0; s < steps.size(); ++s)
    if (waits_for[s] == 0) ready.push(s);
  std::vector<Step> order;
  while (!ready.empty()) {
    const size_t s = ready.top();
    ready.pop();
    order.push_back(steps[s]);
    for (size_t reader : readers[s])
      if (--waits_for[reader] == 0) ready.push(reader);
  }
  STEPC_CHECK(order.size() == steps.size(), "program @{}: kernels depend on each other in a circle", program.name);
  return order;
}

class Writer {
 public:
  Writer(const FuseGraph& graph, const std::vector<FusedKernel>& kernels)
      : graph_(graph), from_(graph.program()), kernels_(kernels), map_(from_.values.size(), ValueId::none) {
    to_.name = from_.name;
    for (const Value& value : from_.values) names_.insert(value.name);
  }

  Program run() {
    for (const Step& step : ordered_steps(graph_, kernels_)) {
      if (step.kernel < 0)
        write(step.nodes[0]);
      else
        write_kernel(kernels_[static_cast<size_t>(step.kernel)]);
    }
    name_groups(to_);
    return std::move(to_);
  }

 private:
  // Each node right after what it needs first, wherever that stood in the program: kernels of equal structure then
  // come out as equal texts and share their code.
  void write_kernel(const FusedKernel& kernel) {
    const std::vector<NodeId> nodes = graph_.with_repeated(kernel.nodes);
    std::set<NodeId> open(nodes.begin(), nodes.end());
    Group group{"", kernel.schedule, {}};
    for (NodeId id : kernel.nodes) write_needed(id, open, group);
    to_.groups.push_back(std::move(group));
  }

  void write_needed(NodeId id, std::set<NodeId>& open, Group& group) {
    if (open.erase(id) == 0) return;
    for (ValueId operand : from_.node(id).operands) write_needed(from_.value(operand).producer, open, group);
    group.nodes.push_back(write(id));
  }

  // A repeated node's results are new values every time; what reads them is written next, in the same kernel.
  NodeId write(NodeId old) {
    const auto id = static_cast<NodeId>(to_.nodes.size());
    Node node = from_.node(old);
    for (ValueId& operand : node.operands) operand = map_[index_of(operand)];
    for (ValueId& result : node.results) {
      const ValueId now = static_cast<ValueId>(to_.values.size());
      const bool again = map_[index_of(result)] != ValueId::none;
      to_.values.push_back(
          {again ? unique_name(from_.value(result).name) : from_.value(result).name, from_.type(result), id});
      map_[index_of(result)] = now;
      result = now;
    }
    to_.nodes.push_back(std::move(node));
    return id;
  }

  std::string unique_name(const std::string& name) {
    int& suffix = suffixes_[name];
    for (;;) {
      std::string unique = fmt::format("{}.{}", name, ++suffix);
      if (names_.insert(unique).second) return unique;
    }
  }

  const FuseGraph& graph_;
  const Program& from_;
  const std::vector<FusedKernel>& kernels_;
  Program to_;
  std::vector<ValueId> map_;  // old value -> its latest new one
  std::unordered_set<std::string> names_;
  std::map<std::string, int> suffixes_;
};

}  // namespace

void fuse(Program& program, const FuseOptions& options) {
  STEPC_CHECK(program.groups.empty(), "program @{} is already fused", program.name);
  prepare_fusion(program);
  const FuseGraph graph(program);
  const std::vector<FusedKernel> kernels = merge_kernels(graph, options);
  Program fused = Writer(graph, kernels).run();
  program = std::move(fused);
}

}  // namespace stepc
