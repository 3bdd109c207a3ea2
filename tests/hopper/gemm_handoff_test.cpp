// Which results can be made of a product that is handed over, a strip of it at a time.
#include "compiler/schedule/region/tile_plan.h"
#include "compiler/schedule/sm90/gemm.h"
#include "ir/graph/fused.h"
#include "tests/support/epilogue_cases.h"

namespace stepc::sm90 {
namespace {

// bf16(product * t + x), heads before tokens: rows and columns are taken apart and put in another order.
test::GroupCase heads_case(int64_t batches, int64_t tokens, int64_t heads, int64_t dim) {
  const test::ProductSizes s{batches * tokens, heads * dim, 64};
  return test::epilogue_case(fmt::format("{} heads of {} tokens", heads, tokens), s, [=](GraphBuilder& g) {
    const Shape shape{batches, tokens, heads, dim};
    const ValueId product = g.reshape(g.cast(test::product_of(g, s, Dtype::bf16), Dtype::f32), shape);
    const ValueId t = g.broadcast(g.input("t", {Dtype::f32, {tokens, dim}}), shape, {1, 3});
    const ValueId x = g.cast(g.input("x", {Dtype::bf16, shape}), Dtype::f32);
    g.output("y", g.transpose(g.cast(g.add(g.mul(product, t), x), Dtype::bf16), {0, 2, 1, 3}));
  });
}

// Whether the group can be made of tiles of so many rows and of columns of one panel.
bool can_plan(const test::GroupCase& test, int64_t rows) {
  const Module module = test::one_group_module(test);
  const Program& program = module.programs[0];
  const Group& group = program.groups[0];
  const MatmulGroup matmul = analyse_matmul(program, group, group_results(program, group));
  return plan_tiles(program, group, matmul, rows, kPanel, kPanel).has_value();
}

// schedule_gemm relies on it.
TEST_CASE("what can be made of a consumer's rows can be made of a strip of them") {
  int made = 0;
  const auto check = [&](const test::GroupCase& test) {
    CAPTURE(test.name);
    const bool whole = can_plan(test, kGroupRows);
    if (whole) CHECK(can_plan(test, kStripRows));
    made += whole;
  };
  // Also rows that are no multiple of a strip's, and that a strip, but no consumer's rows, divides.
  for (const int64_t tokens : {1, 3, 8, 16, 20, 24, 33, 40, 48, 64, 72, 96, 112, 128, 144, 192, 256, 320})
    for (const int64_t batches : {1, 2, 3, 5}) {
      check(heads_case(batches, tokens, 2, 64));
      check(heads_case(batches, tokens, 3, 24));
      check(test::rope_case(batches, tokens, 2, 64, 64));
      check(test::rope_case(batches, tokens, 1, 48, 64));
      check(test::transposed_case(batches, tokens, 3, 24, 64, false));
      check(test::transposed_case(batches, tokens, 3, 24, 64, true));
      check(test::gathered_case({batches * tokens, 72, 64}, 9));
      check(test::vectors_case({tokens, 72, 64, batches}));
      check(test::swiglu_case({tokens, 272, 64, batches}));
      check(test::swiglu_gradient_case({tokens, 136, 64, batches}));
    }
  CHECK(made == 720);
}

}  // namespace
}  // namespace stepc::sm90
