// The cases that hold the host's kernels, run as kernels of GPUs: included before a file of such cases.
#pragma once

// What those files call runs the host; here it is another function of that name.
#define run_everywhere run_on_every_host
#include "tests/support/run_group.h"
#undef run_everywhere

#include "compiler/schedule/cuda/one_role.h"
#include "tests/support/run_gpu.h"

namespace stepc::test {

inline void run_everywhere(const GroupCase& test, const TensorMap& inputs = {}, const TensorMap& misled = {}) {
  if (test.schedule == Template::matmul || test.schedule == Template::attention ||
      test.schedule == Template::attention_grad)
    return;
  run_case(test, cuda::schedule_one_role, on_gpu({"sm_90a"}), inputs, misled);
}

}  // namespace stepc::test
