// The verifier's checks of kernel groups: disjoint, ordered, without leaves or effects that need no
// code, with the op that the template schedules, and free of circles between groups.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

Status verify_groups(const Program& program);

}  // namespace stepc
