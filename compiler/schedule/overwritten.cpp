#include "compiler/schedule/overwritten.h"

#include <algorithm>

#include "compiler/plan/assign.h"
#include "compiler/plan/overwrite.h"

namespace stepc {
namespace {

class Overwritten {
 public:
  Overwritten(const Program& program, const Group& group, const std::vector<ValueId>& results)
      : program_(program), group_(group), results_(results), roots_(root_values(program)) {}

  bool may_be(ValueId operand) const {
    const Node& source = program_.producer(roots_[index_of(operand)]);
    const bool persists = source.op == Op::param || source.op == Op::state;
    if (persists && is_assigned(source.attrs.text(AttrKey::name))) return true;
    // Asked of inputs too, which nothing overwrites: kernels that differ in that alone would not be one.
    return std::any_of(results_.begin(), results_.end(),
                       [&](ValueId result) { return can_overwrite(program_, group_, operand, result); });
  }

 private:
  // By the group, perhaps in place.
  bool is_assigned(const std::string& name) const {
    return can_assign_in_place(group_) &&
           std::any_of(program_.nodes.begin(), program_.nodes.end(), [&](const Node& node) {
             return node.op == Op::assign && node.attrs.text(AttrKey::name) == name &&
                    std::count(results_.begin(), results_.end(), roots_[index_of(node.operands[0])]) > 0;
           });
  }

  const Program& program_;
  const Group& group_;
  const std::vector<ValueId>& results_;
  std::vector<ValueId> roots_;
};

}  // namespace

void mark_overwritten(const Program& program, const Group& group, ScheduledKernel& scheduled) {
  const Overwritten overwritten(program, group, scheduled.results);
  for (size_t i = 0; i < scheduled.operands.size(); ++i) {
    if (!overwritten.may_be(scheduled.operands[i])) continue;
    scheduled.kernel.buffers[i].overwritten = true;
    for (LaterKernel& later : scheduled.later) later.kernel.buffers[i].overwritten = true;
  }
}

}  // namespace stepc
