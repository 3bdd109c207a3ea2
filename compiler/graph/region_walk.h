// The walk behind `analyse`: evaluates values of a region at indices, in the mind only.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/graph/access.h"
#include "compiler/graph/region.h"

namespace stepc {

class RegionWalk {
 public:
  RegionWalk(const Program& program, const Region& region);
  virtual ~RegionWalk() = default;

  // Evaluates `value` at `at`, unless that has been done.
  Status read(ValueId value, const TensorIndex& at);
  bool inside(NodeId id) const { return inside_[index_of(id)]; }
  bool inside(ValueId id) const { return inside_[index_of(program_.value(id).producer)]; }
  // The values that are stored for `result`: the operands of a concat, or itself.
  Result<std::vector<ValueId>> pieces(ValueId result);
  // The value before its trailing one-to-one views.
  ValueId base(ValueId value);
  // Bytes of the operands that the walk has read, and of the results.
  void add_bytes(RegionFacts& facts) const;
  Status all_visited() const;
  // Nodes that only change the operands' shapes may stand before the op.
  Status read_operands(const Node& node);
  // The other of the pair (2p, 2p + 1) of columns.
  static AxisIndex neighbour(const AxisIndex& column);

  IndexMath math;

 protected:
  // Called for an op that no index can be pushed through: a reduction that is not small, a contraction.
  virtual Status anchor(NodeId id, const TensorIndex& at) = 0;
  void visit(NodeId id) { visited_[index_of(id)] = true; }
  Error error(const Node& node, std::string message) const;

  const Program& program_;
  const Region& region_;
  double work_bytes_ = 0;

 private:
  Status evaluate(NodeId id, const TensorIndex& at);
  Status small_reduction(NodeId id, const TensorIndex& at);
  Status gather(const Node& node, const TensorIndex& at);

  std::vector<bool> inside_;
  std::vector<bool> visited_;
  std::set<std::pair<NodeId, TensorIndex>> seen_;
  std::set<std::pair<ValueId, TensorIndex>> reads_;
};

bool is_anchor(const Program& program, const Node& node);

template <class Walk>
Result<RegionFacts> finish(Walk walk) {
  STEPC_ASSIGN(RegionFacts facts, walk.run());
  STEPC_TRY(walk.all_visited());
  walk.add_bytes(facts);
  return facts;
}

}  // namespace stepc
