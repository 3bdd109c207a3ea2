// Precision fp32: attention made of products and a softmax, nothing rounded to bf16, on the CPU and on a GPU.
#include "tests/support/gpu.h"
#include "tests/support/skip.h"
#include "tests/system/model_steps.h"

namespace stepc {
namespace {

using test::Machine;

// Only sums in another order and the errors of exp and its like are left; Adam magnifies them where gradients are
// small.
constexpr double kFirstStep = 2e-4;

Config fp32_config() {
  Config config = test::small_config();
  config.model.precision = PrecisionPolicy::fp32;
  return config;
}

// No value between kernels, and so no parameter and no activation, is bf16.
void check_dtypes(const Bundle& bundle) {
  for (const Plan& plan : bundle.plans)
    for (const PlanBuffer& buffer : plan.buffers)
      CHECK_MESSAGE(buffer.type.dtype != Dtype::bf16, plan.program << ": " << buffer.name);
}

TEST_CASE("fp32: three steps on the CPU are the evaluator's") {
  const Config config = fp32_config();
  Machine machine(build_module(config, stepc::differentiate));
  check_dtypes(machine.bundle());
  test::check_model_steps(config, machine, kFirstStep);
}

TEST_CASE("gpu: three steps in fp32 are the evaluator's") {
  Config config = fp32_config();
  config.model.layers = 1;
  for (const char* arch : {"sm_80", "sm_90a"}) {
    if (!test::gpu_runs(arch)) {
      test::skip(std::string("fp32-") + arch, "the card runs no code for it");
      continue;
    }
    Machine machine(build_module(config, stepc::differentiate), GpuTarget{arch});
    check_dtypes(machine.bundle());
    test::check_model_steps(config, machine, kFirstStep);
  }
}

}  // namespace
}  // namespace stepc
