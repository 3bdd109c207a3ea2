// Epilogues from the graph on Hopper's contraction: executed, with edges in every direction, and assembled for tiles
// as large as the model's, without a spill.
#include "tests/support/epilogue_cases.h"

#include "compiler/ptxas/ptxas.h"
#include "compiler/schedule/sm90/templates.h"
#include "tests/hopper/run_hopper.h"
#include "tests/support/skip.h"

namespace stepc::sm90 {
namespace {

ScheduledKernel scheduled_on(const Program& program, const Group& group, const GpuTarget& target) {
  auto kernel = schedule_gemm(program, group, target);
  REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
  REQUIRE_MESSAGE(kernel->has_value(), "the template does not take the group");
  return std::move(**kernel);
}

// Two tasks take turns over all tiles.
ScheduledKernel scheduled(const Program& program, const Group& group) {
  return scheduled_on(program, group, {"sm_90a", 2});
}

TEST_CASE("cases of epilogues, executed: residual, rope") {
  test::check_on_gpu(test::residual_case({131, 72, 72}), scheduled);
  test::check_on_gpu(test::residual_case({128, 520, 64, 2}), scheduled);
  test::check_on_gpu(test::gathered_case({70, 136, 72}, 9), scheduled);
  test::check_on_gpu(test::rope_case(2, 64, 2, 64, 64), scheduled);
  test::check_on_gpu(test::rope_case(2, 33, 1, 16, 64), scheduled);
}

TEST_CASE("cases of epilogues, executed: swiglu and its gradient") {
  test::check_on_gpu(test::swiglu_case({128, 256, 64, 2}), scheduled);
  test::check_on_gpu(test::swiglu_case({65, 144, 72}), scheduled);
  test::check_on_gpu(test::swiglu_gradient_case({128, 128, 64, 2}), scheduled);
  for (uint64_t seed = 1; seed <= 3; ++seed)
    test::check_on_gpu(test::swiglu_gradient_case({200, 256, 64, 2}), scheduled, seed);
  for (uint64_t seed = 1; seed <= 4; ++seed)
    test::check_on_gpu(test::swiglu_gradient_case({65, 72, 72}), scheduled, seed);
}

TEST_CASE("cases of epilogues, executed: adamw, transposes, vectors") {
  test::check_on_gpu(test::adamw_case({128, 256, 64, 2}), scheduled);
  test::check_on_gpu(test::adamw_case({72, 72, 72}), scheduled);
  test::check_on_gpu(test::transposed_case(2, 64, 2, 64, 64, false), scheduled);
  test::check_on_gpu(test::transposed_case(3, 11, 3, 24, 64, false), scheduled);
  test::check_on_gpu(test::transposed_case(1, 65, 1, 72, 64, true), scheduled);
  test::check_on_gpu(test::vectors_case({131, 72, 64}), scheduled);
}

void check_assembled(const Ptxas& ptxas, const test::GroupCase& test) {
  CAPTURE(test.name);
  const Module module = test::one_group_module(test);
  const Program& program = module.programs[0];
  const GpuTarget hopper{"sm_90a"};
  const ScheduledKernel kernel = scheduled_on(program, program.groups[0], hopper);
  CAPTURE(kernel.config);
  test::check_kernel(kernel.kernel, false);
  const auto code = emit_ptx(kernel.kernel, hopper);
  REQUIRE_MESSAGE(code.has_value(), code.error().text());
  const auto cubin = assemble(ptxas, code->ptx, hopper.arch, test.name);
  REQUIRE_MESSAGE(cubin.has_value(), cubin.error().text());
  CHECK(cubin->report.registers <= 168);
  CHECK_FALSE(cubin->report.uses_local_memory());
  for (const std::string& remark : cubin->report.remarks) FAIL_CHECK(remark);
}

TEST_CASE("cases of epilogues of the model's sizes assemble without spills") {
  const auto found = find_ptxas();
  REQUIRE_MESSAGE(found.has_value(), found.error().text());
  if (!*found) return test::skip("gemm_epilogue_ptxas", "no ptxas");
  check_assembled(**found, test::residual_case({32768, 3072, 3072}));
  check_assembled(**found, test::gathered_case({32768, 3072, 3072}, 50257));
  check_assembled(**found, test::rope_case(16, 2048, 24, 128, 3072));
  check_assembled(**found, test::swiglu_case({8192, 8192, 3072, 8}));
  check_assembled(**found, test::swiglu_gradient_case({8192, 4096, 3072, 8}));
  check_assembled(**found, test::adamw_case({3072, 8192, 8192, 8}));
}

}  // namespace
}  // namespace stepc::sm90
