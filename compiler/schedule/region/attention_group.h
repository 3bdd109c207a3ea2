// What an attention template of any target reads off a kernel group: sizes, and the kernel's operands.
#pragma once

#include <vector>

#include "ir/graph/graph.h"
#include "ir/support/result.h"

namespace stepc {

struct AttentionSizes {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  bool causal = false;
  double scale = 1;
};

// The group's attention op, and the kernel's operands that stand behind its operands: reshapes are dense.
struct AttentionGroup {
  AttentionSizes sizes;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  bool atomic = false;  // sums may be added up in any order
};
AttentionGroup analyse_attention(const Program& program, const Group& group);
// An error where the group also makes what follows the op: few templates do.
Status check_nothing_follows(const Program& program, const Group& group, const AttentionGroup& attention);

}  // namespace stepc
