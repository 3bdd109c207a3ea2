// Result types of fragment ops.
#pragma once

#include <vector>

#include "ir/kernel/kernel.h"

namespace stepc::kernel {

// Rows of the table that are pointwise on operands of one shape: neg to select.
bool is_pointwise(Op op);
// The result's dtype of a pointwise op; `cast` takes it from `declared`. The error names what was expected.
Result<Dtype> pointwise_dtype(Op op, const std::vector<Dtype>& operands, Dtype declared);

}  // namespace stepc::kernel
