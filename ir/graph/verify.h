// What every graph must satisfy: operands defined before use, unique names, the op table's operand and
// attribute lists, shape rules, one assign per state, persistent references that exist, and (after
// fusion) groups that are disjoint, ordered and free of cycles.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

Status verify(const Module& module);
Status verify(const Module& module, const Program& program);

// The result types of an op on operands of these types; `declared` are the result types written in the
// text (or given to the builder), which ops with declared results use and others must match if not empty.
Result<std::vector<TensorType>> infer_types(Op op, const std::vector<TensorType>& operands, const Attrs& attrs,
                                            const std::vector<TensorType>& declared);

// True of ops whose result type is (in part) written rather than inferred: leaves, cast, reshape,
// broadcast, matmul (the dtype), scatter_add_rows (the rows).
bool declares_result(Op op);

}  // namespace stepc
