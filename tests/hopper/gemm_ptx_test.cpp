// Hopper's contraction kernels through LLVM and ptxas: registers as planned, no spill, no stack, and wgmma that
// ptxas leaves in flight.
#include <cstdlib>

#include "compiler/emit/nvptx.h"
#include "compiler/ptxas/ptxas.h"
#include "tests/hopper/gemm_kernels.h"
#include "tests/support/skip.h"

namespace stepc::sm90 {
namespace {

void check_assembled(const Ptxas& ptxas, const kernel::Kernel& kernel, const std::string& name) {
  CAPTURE(name);
  const auto code = emit_ptx(kernel, kHopper);
  REQUIRE_MESSAGE(code.has_value(), code.error().text());
  const auto cubin = assemble(ptxas, code->ptx, kHopper.arch, name);
  REQUIRE_MESSAGE(cubin.has_value(), cubin.error().text());
  CHECK(cubin->report.registers <= 168);
  CHECK_FALSE(cubin->report.uses_local_memory());
  for (const std::string& remark : cubin->report.remarks) FAIL_CHECK(remark);
}

std::optional<Ptxas> assembler() {
  const auto found = find_ptxas();
  REQUIRE_MESSAGE(found.has_value(), found.error().text());
  if (!*found) test::skip("gemm_ptxas", "no ptxas");
  return *found;
}

TEST_CASE("contraction kernels assemble without spills in every operand order and tile") {
  const std::optional<Ptxas> ptxas = assembler();
  if (!ptxas) return;
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      const MatmulProblem problem = product(3000, 3008, 3072, 2, transpose_a, transpose_b);
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
        for (const GemmConfig& config : gemm_candidates(problem, dtype == Dtype::bf16, kHopper))
          check_assembled(*ptxas, build(problem, config, dtype),
                          fmt::format("{}{} {} {}", transpose_a ? "T" : "N", transpose_b ? "T" : "N", dtype_name(dtype),
                                      describe(config)));
    }
}

TEST_CASE("clusters, and two accumulators a consumer, assemble without spills") {
  const std::optional<Ptxas> ptxas = assembler();
  if (!ptxas) return;
  GemmConfig pair;
  pair.cluster = 2;
  GemmConfig tall;
  tall.tile_m = 256;
  tall.tile_n = 192;
  tall.stages = 3;
  tall.boxes = 3;
  tall.producer_registers = 24;
  tall.consumer_registers = 240;
  for (const bool transpose_b : {false, true}) {
    const MatmulProblem problem = product(3000, 3072, 3072, 1, false, transpose_b);
    for (const GemmConfig& config : {pair, tall})
      check_assembled(*ptxas, build(problem, config, Dtype::bf16), describe(config));
  }
}

}  // namespace
}  // namespace stepc::sm90
