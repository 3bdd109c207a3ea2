// Hopper's contraction template as kernel IR: what it declares, and that every access but those TMA clips is proved
// to be in bounds, for all operand orders and edges.
#include <doctest/doctest.h>

#include "compiler/schedule/sm90/gemm.h"
#include "compiler/schedule/sm90/templates.h"
#include "ir/kernel/builder_hopper.h"
#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"
#include "tests/support/golden.h"
#include "tests/support/run_group.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;

MatmulProblem product(int64_t m, int64_t n, int64_t k, int64_t batch, bool transpose_a, bool transpose_b) {
  MatmulProblem problem{m, n, k, batch};
  problem.a_dtype = problem.b_dtype = problem.math_dtype = Dtype::bf16;
  problem.transpose_a = transpose_a;
  problem.transpose_b = transpose_b;
  return problem;
}

kernel::Kernel build(const MatmulProblem& problem, const GemmConfig& config, Dtype dtype) {
  KernelBuilder builder("gemm", kernel::Target::sm90);
  const int64_t m = problem.m, n = problem.n, k = problem.k;
  const Shape a = problem.transpose_a ? Shape{problem.batch, k, m} : Shape{problem.batch, m, k};
  const Shape b = problem.transpose_b ? Shape{problem.batch, n, k} : Shape{problem.batch, k, n};
  const GemmBuffers buffers{builder.global("a", Dtype::bf16, a), builder.global("b", Dtype::bf16, b)};
  const BufferId y = builder.global("y", dtype, {problem.batch, m, n});
  builder.set_grid(config.tasks(problem));
  builder.set_cluster(config.cluster);
  const bool by_tma = dtype == Dtype::bf16;
  const BufferId map = by_tma ? builder.tensor_map("y_map", y, {1, kGroupRows, kPanel}, 128) : y;
  PanelStores panels(builder, config, by_tma ? config.blocks() * config.tile_n / kPanel : 0);
  GemmEpilogue epilogue;
  epilogue.begin_tile = [&] { panels.begin_tile(); };
  epilogue.finish = [&] { panels.finish(); };
  epilogue.store = [&](const GemmSlice& slice) {
    const kernel::Value rounded = builder.cast(slice.sums[0], dtype);
    const std::vector<Index> at{slice.batch, slice.row, slice.column};
    if (by_tma) return panels.put(rounded, map, at);
    builder.store_tile(rounded, y, at, 1, min(n - slice.column, slice.columns), min(m - slice.row, kGroupRows));
  };
  emit_gemm(builder, problem, config, buffers, epilogue);
  return builder.finish();
}

TEST_CASE("the contraction kernel's accesses are in bounds for every operand order") {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const int64_t m : {8, 296, 8192}) {
        const MatmulProblem problem = product(m, 504, 200, 2, transpose_a, transpose_b);
        REQUIRE_FALSE(gemm_obstacle(problem).has_value());
        for (GemmConfig config : gemm_candidates(problem))
          for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
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
    const GemmConfig config = pick_gemm(product(m, n, k, 1, false, false));
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
  const auto scheduled = schedule_gemm(module.programs[0], module.programs[0].groups[0]);
  REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
  REQUIRE(scheduled->has_value());
  test::check_golden("schedule/gemm.sm90.kir", fmt::format("// {}; {}\n{}", (*scheduled)->problem, (*scheduled)->config,
                                                           kernel::print_kernel((*scheduled)->kernel)));
}

}  // namespace
}  // namespace stepc::sm90
