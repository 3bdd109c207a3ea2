// The reference meaning of host kernels: every task in turn, one op at a time. Shared memory starts out
// undefined and what comes of undefined lanes is undefined; storing such a lane to global memory is an error,
// as are an access out of bounds, an index outside its declared range, and two tasks of which one writes what
// the other touches. Slow: for tests of templates without code generation.
#pragma once

#include <vector>

#include "ir/graph/evaluate.h"
#include "ir/kernel/kernel.h"

namespace stepc::kernel {

// Runs a kernel of target host that the verifier accepts. `globals` are the global buffers in order; each holds
// the elements that its buffer's shape and strides span. Arithmetic rounds as the graph evaluator does in f32.
Status interpret(const Kernel& kernel, const std::vector<Tensor*>& globals, const std::vector<int64_t>& scalars = {});

}  // namespace stepc::kernel
