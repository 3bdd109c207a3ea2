// Hopper's attention kernels through LLVM and ptxas: registers as planned, no spill, no stack, and wgmma that ptxas
// leaves in flight.
#include <doctest/doctest.h>

#include "compiler/emit/nvptx.h"
#include "compiler/ptxas/ptxas.h"
#include "tests/hopper/attention_case.h"
#include "tests/support/skip.h"

namespace stepc::sm90 {
namespace {

TEST_CASE("attention assembles without spills") {
  const auto ptxas = find_ptxas();
  REQUIRE_MESSAGE(ptxas.has_value(), ptxas.error().text());
  if (!*ptxas) return test::skip("attention_ptxas", "no ptxas");
  const GpuTarget target{"sm_90a"};
  for (const int64_t dim : {128, 64})
    for (const int64_t tokens : {1, 129, 2048})
      for (const AttentionLaunch& launch : attention_kernels(attention_case(16, tokens, 24, dim))) {
        CAPTURE(launch.kernel.name);
        CAPTURE(tokens);
        CAPTURE(dim);
        const auto code = emit_ptx(launch.kernel, target);
        REQUIRE_MESSAGE(code.has_value(), code.error().text());
        const auto cubin = assemble(**ptxas, code->ptx, target.arch, launch.kernel.name);
        REQUIRE_MESSAGE(cubin.has_value(), cubin.error().text());
        CHECK(cubin->report.registers <= 168);
        CHECK_FALSE(cubin->report.uses_local_memory());
        for (const std::string& remark : cubin->report.remarks) FAIL_CHECK(remark);
      }
}

}  // namespace
}  // namespace stepc::sm90
