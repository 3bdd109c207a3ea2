#include "compiler/kernel/drop_unused.h"

#include <algorithm>
#include <set>

namespace stepc {
namespace {

using kernel::Kernel;
using kernel::KOp;
using kernel::OpId;

// Bodies are walked backwards, so that a chain of unused ops goes in one sweep. Carried values count as used.
class Sweep {
 public:
  explicit Sweep(Kernel& kernel) : kernel_(kernel) {}

  void body(std::vector<OpId>& ops) {
    std::vector<OpId> kept;
    for (size_t i = ops.size(); i-- > 0;) {
      if (unused(kernel_.op(ops[i]))) continue;
      kept.push_back(ops[i]);
      keep(ops[i]);
    }
    ops.assign(kept.rbegin(), kept.rend());
  }

 private:
  bool unused(const KOp& op) const {
    if (op.results.empty() || !op.bodies.empty()) return false;
    return std::none_of(op.results.begin(), op.results.end(), [&](kernel::FragId id) { return used_.contains(id); });
  }

  void keep(OpId id) {
    KOp& op = kernel_.ops[index_of(id)];
    used_.insert(op.frags.begin(), op.frags.end());
    for (kernel::Body& inner : op.bodies) body(inner.ops);
  }

  Kernel& kernel_;
  std::set<kernel::FragId> used_;
};

}  // namespace

Kernel drop_unused(Kernel kernel) {
  Sweep sweep(kernel);
  for (size_t role = kernel.roles.size(); role-- > 0;) sweep.body(kernel.roles[role].body.ops);
  return kernel;
}

}  // namespace stepc
