// How far a kernel's result may be from the evaluator's, by the ops of its group: the op table's errors, the order of
// sums, and roundings to bf16 that fall the other way.
#pragma once

#include "ir/graph/evaluate.h"
#include "tests/support/run_group.h"

namespace stepc::test {

Tolerance tolerance_of(const Program& program, const Group& group, const Tensor& wanted);

}  // namespace stepc::test
