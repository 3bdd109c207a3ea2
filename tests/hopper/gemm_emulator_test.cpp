// Hopper's contraction kernels, executed: equal to the graph evaluator for edges in every direction, several blocks of
// k, several tiles a task, batches, and both operand orders on either side.
#include "compiler/schedule/sm90/templates.h"
#include "tests/hopper/gemm_kernels.h"
#include "tests/hopper/run_hopper.h"

namespace stepc::sm90 {
namespace {

using test::GroupCase;

// Two tasks take turns over all tiles.
const GpuTarget kSmall{"sm_90a", 2};

ScheduledKernel scheduled(const Program& program, const Group& group) {
  auto kernel = schedule_gemm(program, group, kSmall);
  REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
  REQUIRE_MESSAGE(kernel->has_value(), "the template does not take the group");
  return std::move(**kernel);
}

struct Sizes {
  int64_t m, n, k;
  int64_t batch = 1;
};

GroupCase product_case(const Sizes& s, bool transpose_a, bool transpose_b, Dtype result) {
  const auto matrix = [=](int64_t rows, int64_t columns, bool transposed) {
    return transposed ? Shape{s.batch, columns, rows} : Shape{s.batch, rows, columns};
  };
  GroupCase test{fmt::format("{}x{}x{}*{} {}{} {}", s.m, s.n, s.k, s.batch, transpose_a ? "T" : "N",
                             transpose_b ? "T" : "N", dtype_name(result)),
                 Template::matmul, [=](GraphBuilder& g) {
                   const ValueId a = g.input("a", {Dtype::bf16, matrix(s.m, s.k, transpose_a)});
                   const ValueId b = g.input("b", {Dtype::bf16, matrix(s.k, s.n, transpose_b)});
                   g.output("y", g.matmul(a, b, result, transpose_a, transpose_b));
                 }};
  test.tolerance = {1e-6, 1e-6 + 3e-7 * static_cast<double>(s.k)};
  return test;
}

void check_product(const Sizes& s, bool transpose_a, bool transpose_b, Dtype result, uint64_t seed = 1) {
  test::check_on_gpu(product_case(s, transpose_a, transpose_b, result), scheduled, seed);
}

TEST_CASE("products with ragged edges in every operand order") {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const Dtype result : {Dtype::f32, Dtype::bf16})
        check_product({transpose_a ? 136 : 131, 72, 200}, transpose_a, transpose_b, result);
}

TEST_CASE("several tiles a task and blocks of k, batches") {
  check_product({300, 520, 72, 3}, false, false, Dtype::bf16);
  check_product({296, 264, 328, 2}, true, false, Dtype::f32);
  check_product({520, 136, 648}, false, true, Dtype::bf16);
}

TEST_CASE("one row, one column, one block of k") {
  check_product({1, 8, 8}, false, false, Dtype::f32);
  check_product({1, 8, 64}, false, true, Dtype::bf16);
  check_product({64, 1, 64}, false, true, Dtype::f32);
  check_product({128, 256, 64}, false, false, Dtype::bf16);
}

TEST_CASE("whatever the order in which copies land and warps run") {
  for (uint64_t seed = 1; seed <= 8; ++seed) check_product({264, 328, 456}, false, false, Dtype::bf16, seed);
}

// A kernel of one configuration against the graph evaluator, whatever the shape would pick.
void check_config(const Sizes& s, const GemmConfig& config, bool transpose_a, bool transpose_b, Dtype result) {
  const auto with_config = [&](const Program& program, const Group& group) {
    ScheduledKernel made = scheduled(program, group);
    const MatmulProblem problem = product(s.m, s.n, s.k, s.batch, transpose_a, transpose_b);
    made.kernel = build(problem, config, result);
    made.grid = config.tasks(problem);
    made.config = describe(config);
    return made;
  };
  test::check_on_gpu(product_case(s, transpose_a, transpose_b, result), with_config);
}

TEST_CASE("two tasks of a cluster share the tiles of one operand") {
  GemmConfig config;
  config.cluster = 2;
  config.processors = 4;
  for (const int64_t tile_n : {256, 128})
    for (const bool transpose_b : {false, true}) {
      config.tile_n = tile_n;
      check_config({520, 264, 328, 2}, config, false, transpose_b, Dtype::bf16);
      check_config({136, 264, 200}, config, true, transpose_b, Dtype::f32);  // an odd tile: half of the pair is idle
    }
}

TEST_CASE("two accumulators a consumer: tiles of 256 x 192") {
  GemmConfig config;
  config.tile_m = 256;
  config.tile_n = 192;
  config.stages = 3;
  config.boxes = 3;
  config.processors = 2;
  config.producer_registers = 24;
  config.consumer_registers = 240;
  check_config({520, 392, 200}, config, false, false, Dtype::bf16);
  check_config({264, 200, 136}, config, true, false, Dtype::f32);
}

}  // namespace
}  // namespace stepc::sm90
