#include "compiler/schedule/overwritten.h"

#include <algorithm>
#include <set>

#include "compiler/plan/assign.h"
#include "compiler/plan/overwrite.h"

namespace stepc {
namespace {

class Overwritten {
 public:
  Overwritten(const Program& program, const Group& group, const std::vector<ValueId>& results)
      : program_(program), group_(group), results_(results) {
    if (!can_assign_in_place(group)) return;
    for (const Node& node : program.nodes)
      if (node.op == Op::assign && is_result(node.operands[0])) assigned_.insert(node.attrs.text(AttrKey::name));
  }

  bool may_be(ValueId operand) const {
    if (assigned_.contains(persistent_name(operand))) return true;
    // Asked of inputs too, which nothing overwrites: kernels that differ in that alone would not be one.
    return std::any_of(results_.begin(), results_.end(),
                       [&](ValueId result) { return can_overwrite(program_, group_, operand, result); });
  }

 private:
  // Of the parameter or state that holds the value, perhaps in another shape; "" of others.
  std::string_view persistent_name(ValueId value) const {
    while (program_.producer(value).op == Op::reshape) value = program_.producer(value).operands[0];
    const Node& source = program_.producer(value);
    if (source.op != Op::param && source.op != Op::state) return "";
    return source.attrs.text(AttrKey::name);
  }
  // Or its bytes in another shape.
  bool is_result(ValueId value) const {
    for (;;) {
      if (std::count(results_.begin(), results_.end(), value) > 0) return true;
      if (program_.producer(value).op != Op::reshape) return false;
      value = program_.producer(value).operands[0];
    }
  }

  const Program& program_;
  const Group& group_;
  const std::vector<ValueId>& results_;
  std::set<std::string_view> assigned_;  // states that the group makes new values of, perhaps in place
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
