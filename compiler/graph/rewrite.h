// Rebuilds a program: a pass walks the old nodes in order and, for each, keeps it, replaces its results by
// values of the new program, or emits other nodes in its place. Names and phases stay.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

class Rewriter {
 public:
  // `from` must outlive the rewriter and be without kernel groups: it runs before fusion.
  explicit Rewriter(const Program& from);

  // The node on the new program's operands; its results are still the old ones.
  Node mapped(const Node& old) const;
  ValueId mapped(ValueId old) const;
  // From here on `by`, of the new program, stands for `old`.
  void replace(ValueId old, ValueId by);
  // Appends a node made by `mapped`, its results under the names that they have; it may have been changed in
  // all but their number and types.
  void keep(const Node& node);
  // Appends a node with one result. `like` gives phase and location; `name` gets a suffix where it is taken.
  ValueId emit(Op op, std::vector<ValueId> operands, Attrs attrs, TensorType type, const Node& like,
               const std::string& name);

  const Program& program() const { return to_; }
  Program& program() { return to_; }
  Program finish() { return std::move(to_); }

 private:
  const Program& from_;
  Program to_;
  std::vector<ValueId> map_;               // old value -> new value
  std::unordered_set<std::string> names_;  // of both programs
};

}  // namespace stepc
