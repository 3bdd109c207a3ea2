// The portable templates' kernels: run on the GPU of tests against the graph evaluator, and assembled.
#pragma once

#include "compiler/schedule/cuda/templates.h"
#include "tests/support/ptxas.h"
#include "tests/support/run_gpu.h"

namespace stepc::test {

inline Scheduler portable(const GpuTarget& target) {
  return [target](const Program& program, const Group& group) -> Result<ScheduledKernel> {
    if (group.schedule == Template::attention) return cuda::schedule_attention(program, group);
    if (group.schedule == Template::attention_grad) return cuda::schedule_attention_grad(program, group);
    return cuda::schedule_matmul(program, group, target);
  };
}

// STEPC_SEEDS: in so many orders of what the emulator lets happen.
inline void run_portable(const GroupCase& test, const TensorMap& inputs = {}, const std::string& arch = "sm_80") {
  const char* wanted = std::getenv("STEPC_SEEDS");
  const uint64_t seeds = wanted ? std::strtoull(wanted, nullptr, 10) : 1;
  for (uint64_t seed = 1; seed <= seeds; ++seed) run_case(test, portable({arch}), on_gpu({arch}, seed), inputs);
}

inline std::vector<const kernel::Kernel*> kernels_of(const ScheduledKernel& scheduled) {
  std::vector<const kernel::Kernel*> kernels{&scheduled.kernel};
  for (const LaterKernel& later : scheduled.later) kernels.push_back(&later.kernel);
  return kernels;
}

inline void check_assembles(const GroupCase& test, const std::string& arch) {
  CAPTURE(test.name);
  const Module module = one_group_module(test);
  const auto scheduled = portable({arch})(module.programs[0], module.programs[0].groups[0]);
  REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
  for (const kernel::Kernel* kernel : kernels_of(*scheduled)) {
    const auto code = emit_ptx(*kernel, {arch});
    REQUIRE_MESSAGE(code.has_value(), code.error().text());
    check_ptxas(code->ptx, arch);
  }
}

}  // namespace stepc::test
