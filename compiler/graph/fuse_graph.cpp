#include "compiler/graph/fuse_graph.h"

#include <algorithm>

namespace stepc {
namespace {

template <class T>
void sort_unique(std::vector<T>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

FuseGraph::FuseGraph(const Program& program)
    : program_(program),
      roles_(fusion_roles(program)),
      repeated_(program.nodes.size()),
      sources_(program.nodes.size()),
      readers_(program.values.size()) {
  for (size_t n = 0; n < program.nodes.size(); ++n) trace(static_cast<NodeId>(n));
}

void FuseGraph::trace(NodeId id) {
  if (role(id) == Role::dead) return;
  std::vector<NodeId>& repeated = repeated_[index_of(id)];
  std::vector<ValueId>& sources = sources_[index_of(id)];
  for (ValueId operand : program_.node(id).operands) {
    const NodeId from = program_.value(operand).producer;
    if (role(from) != Role::repeated) {
      sources.push_back(operand);
      continue;
    }
    repeated.push_back(from);
    append(repeated, repeated_[index_of(from)]);
    append(sources, sources_[index_of(from)]);
  }
  sort_unique(repeated);
  sort_unique(sources);
  if (role(id) == Role::repeated) return;
  for (ValueId source : sources) readers_[index_of(source)].push_back(id);
}

std::vector<NodeId> FuseGraph::with_repeated(const std::vector<NodeId>& kernel) const {
  std::vector<NodeId> nodes = kernel;
  for (NodeId id : kernel) append(nodes, repeated(id));
  sort_unique(nodes);
  return nodes;
}

}  // namespace stepc
