// The graph that fusion works on: nodes in kernels, each with the repeated nodes that it evaluates for itself.
#pragma once

#include <vector>

#include "compiler/graph/fuse_roles.h"
#include "ir/graph/graph.h"

namespace stepc {

class FuseGraph {
 public:
  explicit FuseGraph(const Program& program);

  const Program& program() const { return program_; }
  Role role(NodeId id) const { return roles_[index_of(id)]; }
  // The repeated nodes that the node's operands need, ascending.
  const std::vector<NodeId>& repeated(NodeId id) const { return repeated_[index_of(id)]; }
  // The values in memory that the node reads, if through repeated nodes; ascending.
  const std::vector<ValueId>& sources(NodeId id) const { return sources_[index_of(id)]; }
  // The nodes in kernels, aliases and effects that read the value, if through repeated nodes; ascending.
  const std::vector<NodeId>& readers(ValueId id) const { return readers_[index_of(id)]; }
  // `kernel` and the repeated nodes that they need, ascending.
  std::vector<NodeId> with_repeated(const std::vector<NodeId>& kernel) const;

 private:
  void trace(NodeId id);

  const Program& program_;
  std::vector<Role> roles_;
  std::vector<std::vector<NodeId>> repeated_;
  std::vector<std::vector<ValueId>> sources_;
  std::vector<std::vector<NodeId>> readers_;
};

}  // namespace stepc
