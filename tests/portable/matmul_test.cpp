// Portable products against the graph evaluator: operand orders, dtypes, ragged sizes and epilogues; and what ptxas
// says.
#include "compiler/schedule/cuda/matmul.h"

#include "tests/portable/portable.h"

namespace stepc {
namespace {

using test::GroupCase;

struct Sizes {
  int64_t m, n, k;
  int64_t batch = 1;
};

GroupCase product(const Sizes& s, Dtype operands, Dtype result, bool transpose_a, bool transpose_b) {
  const Shape a = transpose_a ? Shape{s.batch, s.k, s.m} : Shape{s.batch, s.m, s.k};
  const Shape b = transpose_b ? Shape{s.batch, s.n, s.k} : Shape{s.batch, s.k, s.n};
  GroupCase test{fmt::format("{} {}x{}x{} x {} {}{} -> {}", dtype_name(operands), s.m, s.n, s.k, s.batch,
                             transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', dtype_name(result)),
                 Template::matmul, [=](GraphBuilder& g) {
                   const ValueId x = g.input("a", {operands, a});
                   const ValueId y = g.input("b", {operands, b});
                   g.output("y", g.matmul(x, y, result, transpose_a, transpose_b));
                 }};
  test.tolerance = {1e-6, 1e-6 + 3e-7 * static_cast<double>(s.k)};
  return test;
}

void run_orders(const Sizes& sizes, Dtype operands, Dtype result) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      test::run_portable(product(sizes, operands, result, transpose_a, transpose_b));
}

TEST_CASE("portable products of any size in every operand order") {
  for (const int64_t size : {1, 7, 33, 64, 127, 130}) {
    run_orders({size, size, size}, Dtype::bf16, Dtype::f32);
    run_orders({size, size, size}, Dtype::f32, Dtype::bf16);
  }
  for (const Dtype operands : {Dtype::bf16, Dtype::f32}) {
    run_orders({33, 40, 130, 2}, operands, Dtype::f32);
    run_orders({40, 72, 64, 3}, operands, Dtype::bf16);
    run_orders({65, 8, 100}, operands, Dtype::f32);  // few columns
    run_orders({70, 136, 8}, operands, Dtype::f32);  // a short k
    run_orders({5, 9, 0}, operands, Dtype::f32);     // nothing to sum
  }
}

// Of 128 x 128: enough of them to fill a card.
TEST_CASE("large tiles") {
  for (const bool transposed : {false, true}) {
    test::run_portable(product({256, 129, 70, 27}, Dtype::bf16, Dtype::bf16, transposed, transposed));
    test::run_portable(product({129, 256, 64, 27}, Dtype::bf16, Dtype::f32, transposed, !transposed));
  }
}

// Few tiles and a long k: parts of it are summed side by side, then in order.
TEST_CASE("k in parts") {
  CHECK(cuda::pick_matmul({.m = 70, .n = 40, .k = 1100, .math_dtype = Dtype::bf16}, {"sm_80"}).splits == 2);
  CHECK(cuda::pick_matmul({.m = 4096, .n = 4096, .k = 4096, .math_dtype = Dtype::bf16}, {"sm_80"}).splits == 1);
  run_orders({70, 40, 1100}, Dtype::bf16, Dtype::bf16);
  run_orders({9, 8, 1030, 2}, Dtype::f32, Dtype::f32);
}

TEST_CASE("a bf16 operand of an f32 product is widened on its way") {
  for (const bool transposed : {false, true}) {
    GroupCase test{"widened", Template::matmul, [&](GraphBuilder& g) {
                     const ValueId a = g.input("a", {Dtype::bf16, transposed ? Shape{37, 70} : Shape{70, 37}});
                     const ValueId b = g.input("b", {Dtype::f32, {37, 8}});
                     g.output("y", g.matmul(g.cast(a, Dtype::f32), b, Dtype::f32, transposed, false));
                   }};
    test.tolerance = {1e-6, 2e-5};
    test::run_portable(test);
  }
}

TEST_CASE("epilogues of portable products") {
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{9, 33}, {64, 128}, {130, 6}}) {
    GroupCase test{fmt::format("residual {}x{}", rows, columns), Template::matmul, [&](GraphBuilder& g) {
                     const ValueId a = g.input("a", {Dtype::bf16, {rows, 48}});
                     const ValueId b = g.input("b", {Dtype::bf16, {48, columns}});
                     const ValueId x = g.input("x", {Dtype::bf16, {rows, columns}});
                     const ValueId bias = g.broadcast(g.input("bias", {Dtype::f32, {columns}}), {rows, columns}, {1});
                     const ValueId sum = g.add(g.cast(x, Dtype::f32), g.matmul(a, b, Dtype::f32));
                     g.output("y", g.cast(sum, Dtype::bf16));
                     g.output("biased", g.add(sum, bias));
                   }};
    test.tolerance = {1e-6, 2e-5};
    test::run_portable(test);
  }
}

TEST_CASE("SwiGLU's halves meet in one tile") {
  for (const auto& [half, depth] : std::vector<std::pair<int64_t, int64_t>>{{40, 48}, {64, 48}, {40, 1100}}) {
    GroupCase test{fmt::format("swiglu {} of {}", half, depth), Template::matmul, [&](GraphBuilder& g) {
                     const ValueId a = g.input("a", {Dtype::bf16, {70, depth}});
                     const ValueId b = g.input("b", {Dtype::bf16, {depth, 2 * half}});
                     const ValueId y = g.matmul(a, b, Dtype::f32);
                     const ValueId gate = g.slice(y, 1, 0, half);
                     const ValueId up = g.slice(y, 1, half, 2 * half);
                     g.output("y", g.cast(g.mul(g.mul(gate, g.emit1(Op::logistic, {gate})), up), Dtype::bf16));
                   }};
    test.tolerance = {1e-5, 1e-3};
    test::run_portable(test);
  }
}

TEST_CASE("ptxas takes portable products without spilling") {
  for (const char* arch : {"sm_80", "sm_89", "sm_90a"})
    for (const int64_t size : {130, 4096}) {
      for (const bool transposed : {false, true})
        test::check_assembles(product({size, size, size}, Dtype::bf16, Dtype::bf16, transposed, !transposed), arch);
      test::check_assembles(product({size, 8, 8 * size}, Dtype::f32, Dtype::f32, true, false), arch);
      test::check_assembles(product({size, size, size}, Dtype::f32, Dtype::f32, false, true), arch);
    }
}

}  // namespace
}  // namespace stepc
