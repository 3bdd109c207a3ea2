// Hopper's contraction template as kernel IR: what it declares, and that every access but those TMA clips is proved
// to be in bounds, for all operand orders and edges.
#include "compiler/schedule/sm90/templates.h"
#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"
#include "tests/hopper/gemm_kernels.h"
#include "tests/support/golden.h"
#include "tests/support/run_group.h"

namespace stepc::sm90 {
namespace {

TEST_CASE("the contraction kernel's accesses are in bounds for every operand order") {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const int64_t m : {8, 296, 8192}) {
        const MatmulProblem problem = product(m, 504, 200, 2, transpose_a, transpose_b);
        REQUIRE_FALSE(gemm_obstacle(problem).has_value());
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
          for (const GemmConfig& config : gemm_candidates(problem, dtype == Dtype::bf16, kHopper)) {
            CAPTURE(describe(config));
            const kernel::Kernel kernel = build(problem, config, dtype);
            for (const std::string& access : kernel::unproved_accesses(kernel)) FAIL_CHECK(access);
            CHECK(kernel::shared_layout(kernel).total_bytes <= kSharedBytes);
            const auto again = kernel::parse_kernel(kernel::print_kernel(kernel), "k.kir");
            REQUIRE_MESSAGE(again.has_value(), again.error().text());
            CHECK(kernel::print_kernel(*again) == kernel::print_kernel(kernel));
          }
      }
}

TEST_CASE("the tile follows the shape") {
  const auto tile = [](int64_t m, int64_t n, int64_t k) {
    const GemmConfig config = gemm_candidates(product(m, n, k, 1, false, false), true, kHopper)[0];
    return fmt::format("{}x{}", config.tile_m, config.tile_n);
  };
  CHECK(tile(8192, 8192, 8192) == "128x256");
  CHECK(tile(32768, 9216, 3072) == "128x256");
  CHECK(tile(3072, 3072, 32768) == "128x192");  // 288 tiles of 128 x 256 fill three waves to 73%
  CHECK(tile(4096, 64, 512) == "128x64");
}

TEST_CASE("what TMA cannot read is for another template") {
  MatmulProblem problem = product(64, 64, 64, 1, false, false);
  CHECK_FALSE(gemm_obstacle(problem).has_value());
  problem.k = 60;
  CHECK(gemm_obstacle(problem) == "rows of the first operand that are no multiple of 16 bytes");
  problem.transpose_a = true;
  CHECK_FALSE(gemm_obstacle(problem).has_value());
  problem.n = 60;
  CHECK(gemm_obstacle(problem) == "rows of the second operand that are no multiple of 16 bytes");
  problem = product(64, 64, 0, 1, false, false);
  CHECK(gemm_obstacle(problem) == "an empty product");
  problem = product(64, 64, 64, 1, false, false);
  problem.a_dtype = Dtype::f32;
  CHECK(gemm_obstacle(problem) == "operands that are not bf16 in memory");
}

TEST_CASE("the text of a product rounded to bf16") {
  const test::GroupCase test{"", Template::matmul, [](GraphBuilder& g) {
                               const ValueId x = g.input("x", {Dtype::bf16, {32768, 3072}});
                               const ValueId w = g.input("w", {Dtype::bf16, {3072, 9216}});
                               g.output("y", g.matmul(x, w, Dtype::bf16));
                             }};
  const Module module = test::one_group_module(test);
  const auto scheduled = schedule_gemm(module.programs[0], module.programs[0].groups[0], kHopper);
  REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
  REQUIRE(scheduled->has_value());
  test::check_golden("schedule/gemm.sm90.kir", fmt::format("// {}; {}\n{}", (*scheduled)->problem, (*scheduled)->config,
                                                           kernel::print_kernel((*scheduled)->kernel)));
}

}  // namespace
}  // namespace stepc::sm90
