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

// The gradient of a router's input: beside it the gradients of a token's experts, of which some have no slot.
GroupCase router_input_gradient(int64_t tokens, int64_t columns, int64_t experts) {
  GroupCase test{fmt::format("router's input gradient {} x {} x {}", tokens, columns, experts), Template::matmul,
                 [=](GraphBuilder& g) {
                   const ValueId slots = g.input("slots", {Dtype::bf16, {2 * tokens, columns}});
                   const ValueId place = g.input("place", {Dtype::i32, {2 * tokens}});
                   const ValueId logits = g.input("logits", {Dtype::f32, {tokens, experts}});
                   const ValueId w = g.input("w", {Dtype::f32, {columns, experts}});
                   const ValueId mine = g.reshape(g.emit1(Op::gather_rows, {slots, place}), {tokens, 2, columns});
                   const ValueId sum = g.reduce(Op::reduce_sum, g.cast(mine, Dtype::f32), {1});
                   g.output("dx", g.cast(g.add(sum, g.matmul(logits, w, Dtype::f32, false, true)), Dtype::bf16));
                 }};
  test.tolerance = {1e-6, 1e-5};
  test.ranges = {{"place", {-1, static_cast<double>(2 * tokens - 1)}}};
  return test;
}

TEST_CASE("products of few k") {
  for (const auto& [tokens, columns, experts] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {5, 256, 8}, {70, 1100, 8}, {33, 136, 16}, {64, 3072, 8}, {9, 200, 3}, {3, 128, 1}})
    test::run_portable(router_input_gradient(tokens, columns, experts));
  for (const int64_t depth : {1, 5, 8, 16}) {
    run_orders({39, 260, depth}, Dtype::f32, Dtype::f32);
    run_orders({18, 1031, depth}, Dtype::f32, Dtype::bf16);
  }
}

TEST_CASE("products of few columns and many k") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const Sizes& sizes : std::vector<Sizes>{{130, 8, 1030}, {1100, 3, 1100}, {136, 16, 1024}, {200, 1, 1500}})
      for (const bool transpose_b : {false, true}) {
        GroupCase test{fmt::format("{} {}x{}x{}", dtype_name(dtype), sizes.m, sizes.n, sizes.k), Template::matmul,
                       [&](GraphBuilder& g) {
                         const ValueId a = g.input("a", {dtype, {sizes.k, sizes.m}});
                         const Shape b = transpose_b ? Shape{sizes.n, sizes.k} : Shape{sizes.k, sizes.n};
                         const ValueId x = dtype == Dtype::f32 ? a : g.cast(a, Dtype::f32);
                         g.output("y", g.matmul(x, g.input("b", {Dtype::f32, b}), Dtype::f32, true, transpose_b));
                       }};
        test.tolerance = {1e-6, 1e-6 + 3e-7 * static_cast<double>(sizes.k)};
        test::run_portable(test);
      }
  run_orders({128, 9, 1025}, Dtype::f32, Dtype::bf16);
}

GroupCase product_of_parts(const Sizes& sizes, bool transpose_b) {
  GroupCase test{fmt::format("parts {}x{}x{}{}", sizes.m, sizes.n, sizes.k, transpose_b ? 'T' : 'N'), Template::matmul,
                 [=](GraphBuilder& g) {
                   const ValueId a = g.cast(g.input("a", {Dtype::bf16, {sizes.m, sizes.k}}), Dtype::f32);
                   const Shape b = transpose_b ? Shape{sizes.n, sizes.k} : Shape{sizes.k, sizes.n};
                   const ValueId y = g.matmul(a, g.input("b", {Dtype::f32, b}), Dtype::f32, false, transpose_b);
                   g.output("y", y);
                   g.output("shifted", g.add(y, g.input("shift", {Dtype::f32, {sizes.m, sizes.n}})));
                 }};
  test.tolerance = {1e-6, 1e-7 * static_cast<double>(sizes.k)};  // tensor cores cut sums off, they do not round
  return test;
}

// The last of three parts of bf16 is below 2^-17 of an f32 number: without it the tolerance would not do.
TEST_CASE("f32 columns of a long bf16 operand in three parts") {
  for (const Sizes& sizes : std::vector<Sizes>{{520, 8, 512}, {1031, 3, 264}, {700, 16, 400}, {1027, 9, 256}})
    for (const bool transpose_b : {false, true}) test::run_portable(product_of_parts(sizes, transpose_b));
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
      test::check_assembles(product({size, size, 8}, Dtype::f32, Dtype::f32, false, true), arch);
      test::check_assembles(router_input_gradient(size, 3072, 8), arch);
      test::check_assembles(product_of_parts({8 * size, 8, 3072}, false), arch);
      test::check_assembles(product({3072, 8, 8 * size}, Dtype::f32, Dtype::f32, true, false), arch);
    }
}

}  // namespace
}  // namespace stepc
