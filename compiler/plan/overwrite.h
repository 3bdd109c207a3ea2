// Which results may take the place of an operand that nothing needs any more.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

// Whether a kernel may write `result` over its operand `old`, of as many bytes. It may if whoever writes an element has
// read the old one at the same index, and nothing reads it later:
//  - the group is pointwise, or of template row, whose sums over a row are complete before it stores any of it: in all
//    threads, for which rows must have an even number of elements;
//  - from `old` to `result` there are pointwise ops alone, but for what goes through such sums;
//  - no other result depends on `old` in any way but through them.
// That no other operand lies in the same place is the caller's to know.
bool can_overwrite(const Program& program, const Group& group, ValueId old, ValueId result);

}  // namespace stepc
