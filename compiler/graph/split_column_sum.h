// Splits long sums so that they can run in parallel.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// A sum over the leading axes of [R, C] has nothing to run in parallel but columns, and reading a matrix by
// columns is slow; a sum over everything has nothing at all. Both become two sums: x as [P, R/P, C], first
// over axis 1, then over axis 0. So a norm's weight gradient becomes one kernel over rows, which writes dx and P rows
// of partial sums, and one small column sum. P is the largest divisor of R that is at most 64 and leaves R/P at
// least 8, up to 512 where R is so large that 64 rows are left to each; sums where there is none, or of few elements,
// stay.
//
// Changes the order of accumulation, alone among the passes. P depends on the shape only, never on the machine.
// Requires a program without kernel groups. Runs last before fusion: it is a choice of schedule, and nothing is gained
// by showing its reshapes to fold or cse.
void split_column_sum(Program& program);

}  // namespace stepc
