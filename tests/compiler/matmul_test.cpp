// Contractions on this machine against the graph evaluator: operand orders, dtypes, odd sizes, and what is
// fused behind and before them; with AVX-512 (where the machine has it) and without.
#include "compiler/graph/fuse_check.h"
#include "tests/support/run_group.h"

namespace stepc {
namespace {

using test::GroupCase;
using test::run_everywhere;
using test::Tolerance;

struct Sizes {
  int64_t m, n, k;
  Shape batch = {};
};

Shape with_batch(Shape batch, int64_t rows, int64_t columns) {
  batch.insert(batch.end(), {rows, columns});
  return batch;
}

// The error of a sum of k products of numbers in [-2, 2], in f32.
Tolerance sum_tolerance(int64_t k) { return {1e-6, 1e-6 + 3e-7 * static_cast<double>(k)}; }

void check_product(const Sizes& sizes, Dtype operands, Dtype result, bool transpose_a, bool transpose_b) {
  const Shape a = transpose_a ? with_batch(sizes.batch, sizes.k, sizes.m) : with_batch(sizes.batch, sizes.m, sizes.k);
  const Shape b = transpose_b ? with_batch(sizes.batch, sizes.n, sizes.k) : with_batch(sizes.batch, sizes.k, sizes.n);
  GroupCase test{
      fmt::format("{} {} x {} {} -> {}", dtype_name(operands), shape_text(a), shape_text(b),
                  transpose_a ? (transpose_b ? "TT" : "TN") : (transpose_b ? "NT" : "NN"), dtype_name(result)),
      Template::matmul, [&](GraphBuilder& g) {
        const ValueId x = g.input("a", {operands, a});
        const ValueId y = g.input("b", {operands, b});
        g.output("y", g.matmul(x, y, result, transpose_a, transpose_b));
      }};
  test.tolerance = sum_tolerance(sizes.k);
  run_everywhere(test);
}

void check_orders(const Sizes& sizes, Dtype operands, Dtype result) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) check_product(sizes, operands, result, transpose_a, transpose_b);
}

TEST_CASE("products of odd sizes in every operand order") {
  const std::vector<Sizes> all = {{1, 1, 1},       {7, 31, 33, {3}}, {33, 7, 127},       {8, 32, 0, {2}},
                                  {31, 9, 7, {0}}, {40, 100, 64},    {20, 40, 5, {2, 3}}};
  for (const Sizes& sizes : all)
    for (const Dtype operands : {Dtype::f32, Dtype::bf16}) check_orders(sizes, operands, Dtype::f32);
}

TEST_CASE("products rounded to bf16") {
  for (const Dtype operands : {Dtype::f32, Dtype::bf16}) check_orders({33, 71, 65, {2}}, operands, Dtype::bf16);
}

TEST_CASE("several blocks in every direction") {
  for (const Dtype operands : {Dtype::f32, Dtype::bf16})
    for (const bool transpose_a : {false, true}) {
      check_product({273, 541, 1031}, operands, Dtype::f32, transpose_a, !transpose_a);
      check_product({11, 67, 1031}, operands, Dtype::f32, transpose_a, !transpose_a);  // small enough to interpret
    }
}

TEST_CASE("few columns, few products") {
  for (const Dtype operands : {Dtype::f32, Dtype::bf16}) {
    check_product({100, 4, 128}, operands, Dtype::f32, false, false);
    check_product({128, 8, 300}, operands, Dtype::f32, true, false);
    check_product({100, 128, 4}, operands, Dtype::f32, false, true);
  }
}

TEST_CASE("bf16 operands widened for an f32 product, and reshaped") {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      GroupCase test{"widened", Template::matmul, [&](GraphBuilder& g) {
                       const ValueId a = g.input("a", {Dtype::bf16, {2, 37, 4}});
                       const ValueId b = g.input("b", {Dtype::f32, {37, 41}});
                       const ValueId rows = g.reshape(g.cast(a, Dtype::f32), transpose_a ? Shape{37, 8} : Shape{8, 37});
                       g.output("y", g.matmul(rows, transpose_b ? g.reshape(b, {41, 37}) : b, Dtype::f32, transpose_a,
                                              transpose_b));
                     }};
      test.tolerance = sum_tolerance(37);
      run_everywhere(test);
    }
}

TEST_CASE("one operand on both sides") {
  GroupCase test{"square", Template::matmul, [&](GraphBuilder& g) {
                   const ValueId x = g.input("x", {Dtype::bf16, {3, 20, 36}});
                   g.output("y", g.matmul(x, x, Dtype::f32, false, true));
                 }};
  test.tolerance = sum_tolerance(36);
  run_everywhere(test);
}

TEST_CASE("a residual is added before the result is rounded") {
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{9, 33}, {64, 128}, {130, 5}}) {
    GroupCase test{fmt::format("residual {}x{}", rows, columns), Template::matmul, [&](GraphBuilder& g) {
                     const ValueId a = g.input("a", {Dtype::bf16, {rows, 48}});
                     const ValueId b = g.input("b", {Dtype::bf16, {48, columns}});
                     const ValueId x = g.input("x", {Dtype::bf16, {rows, columns}});
                     const ValueId bias = g.broadcast(g.input("bias", {Dtype::f32, {columns}}), {rows, columns}, {1});
                     const ValueId sum = g.add(g.cast(x, Dtype::f32), g.matmul(a, b, Dtype::f32));
                     g.output("y", g.cast(sum, Dtype::bf16));
                     g.output("biased", g.add(sum, bias));
                   }};
    test.tolerance = sum_tolerance(48);
    run_everywhere(test);
  }
}

TEST_CASE("the matmul's operand is read by the epilogue too") {
  GroupCase test{"x + x w", Template::matmul, [&](GraphBuilder& g) {
                   const ValueId x = g.input("x", {Dtype::bf16, {2, 3, 64}});
                   const ValueId w = g.input("w", {Dtype::bf16, {64, 64}});
                   const ValueId rows = g.reshape(x, {6, 64});
                   const ValueId wide = g.cast(rows, Dtype::f32);
                   g.output("y", g.cast(g.add(wide, g.matmul(rows, w, Dtype::f32)), Dtype::bf16));
                 }};
  test.tolerance = sum_tolerance(64);
  run_everywhere(test);
}

// Each adjacent pair of columns is turned by an angle of its own.
void check_rope(Shape shape) {
  GroupCase test{"rope " + shape_text(shape), Template::matmul, [&](GraphBuilder& g) {
                   const int64_t columns = shape[2] * shape[3];
                   const ValueId a = g.input("a", {Dtype::bf16, {shape[0] * shape[1], 40}});
                   const ValueId b = g.input("b", {Dtype::bf16, {40, columns}});
                   const ValueId x = g.reshape(g.matmul(a, b, Dtype::f32), shape);
                   const Shape table{shape[1], shape[3]};
                   const ValueId cosines = g.broadcast(g.input("cos", {Dtype::f32, table}), shape, {1, 3});
                   const ValueId sines = g.broadcast(g.input("sin", {Dtype::f32, table}), shape, {1, 3});
                   Shape pairs = shape;
                   pairs.back() /= 2;
                   pairs.push_back(2);
                   const ValueId swapped =
                       g.emit1(Op::reverse, {g.reshape(x, pairs)}, {{AttrKey::axes, std::vector<int64_t>{4}}});
                   const ValueId turned = g.add(g.mul(x, cosines), g.mul(g.reshape(swapped, shape), sines));
                   g.output("y", g.cast(turned, Dtype::bf16));
                 }};
  test.tolerance = sum_tolerance(40 * 4);
  run_everywhere(test);
}

TEST_CASE("rope: pairs of columns meet") {
  check_rope({2, 5, 3, 64});
  check_rope({1, 9, 7, 6});
  check_rope({1, 3, 1, 128});
}

GroupCase swiglu_case(int64_t rows, int64_t width) {
  GroupCase test{fmt::format("swiglu {}x{}", rows, width), Template::matmul, [=](GraphBuilder& g) {
                   const ValueId a = g.input("a", {Dtype::bf16, {2, rows, 24}});
                   const ValueId b = g.input("b", {Dtype::bf16, {2, 24, 2 * width}});
                   const ValueId product = g.matmul(a, b, Dtype::bf16);
                   const ValueId wide = g.cast(product, Dtype::f32);
                   const ValueId gate = g.slice(wide, 2, 0, width);
                   const ValueId up = g.slice(wide, 2, width, 2 * width);
                   g.output("z", product);
                   g.output("y", g.cast(g.mul(g.mul(gate, g.unary(Op::logistic, gate)), up), Dtype::bf16));
                 }};
  test.tolerance = {1e-5, 2e-2};  // a product may round the other way
  test.ranges = {{"a", {-0.5, 0.5}}, {"b", {-0.5, 0.5}}};
  return test;
}

TEST_CASE("swiglu: halves of the columns meet") {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{{9, 128}, {70, 33}, {3, 5}, {17, 300}}) {
    const GroupCase test = swiglu_case(rows, width);
    const Module module = test::one_group_module(test);
    const Program& program = module.programs[0];
    CHECK(column_map(program, program.groups[0]) == ColumnMap::halves);
    const auto scheduled = schedule_host(program, program.groups[0], baseline_host_target());
    REQUIRE(scheduled.has_value());
    CHECK_MESSAGE(scheduled->config.ends_with("on 16 lanes"), scheduled->config);
    run_everywhere(test);
  }
}

TEST_CASE("swiglu's gradient stores both halves of a concat") {
  for (const int64_t width : {128, 33}) {
    GroupCase test{fmt::format("dswiglu {}", width), Template::matmul, [=](GraphBuilder& g) {
                     const ValueId dy = g.input("dy", {Dtype::bf16, {2, 19, 24}});
                     const ValueId w = g.input("w", {Dtype::bf16, {2, width, 24}});
                     const ValueId z = g.cast(g.input("z", {Dtype::bf16, {2, 19, 2 * width}}), Dtype::f32);
                     const ValueId dh = g.matmul(dy, w, Dtype::f32, false, true);
                     const ValueId gate = g.slice(z, 2, 0, width);
                     const ValueId up = g.slice(z, 2, width, 2 * width);
                     const ValueId dgate = g.mul(g.mul(dh, up), g.unary(Op::logistic, gate));
                     const ValueId dup = g.mul(dh, gate);
                     const std::vector<ValueId> halves{g.cast(dgate, Dtype::bf16), g.cast(dup, Dtype::bf16)};
                     g.output("dz", g.emit1(Op::concat, halves, {{AttrKey::axis, int64_t{2}}}));
                   }};
    test.tolerance = sum_tolerance(24 * 16);
    run_everywhere(test);
  }
}

TEST_CASE("results in another order of dimensions") {
  GroupCase test{"heads first", Template::matmul, [=](GraphBuilder& g) {
                   const ValueId a = g.input("a", {Dtype::f32, {12, 16}});
                   const ValueId b = g.input("b", {Dtype::f32, {16, 80}});
                   const ValueId split = g.reshape(g.mul(g.matmul(a, b, Dtype::f32), 2.0), {3, 4, 5, 16});
                   g.output("y", g.transpose(split, {0, 2, 1, 3}));
                 }};
  test.tolerance = sum_tolerance(16 * 4);
  run_everywhere(test);
}

TEST_CASE("kernels are named by place, so equal problems give equal text") {
  const auto kernel_of = [](std::string name) {
    GroupCase test{"k", Template::matmul, [=](GraphBuilder& g) {
                     const ValueId a = g.input(name, {Dtype::f32, {16, 16}});
                     g.set_name_hint(name);
                     g.output("y", g.matmul(a, a, Dtype::f32));
                   }};
    const Module module = test::one_group_module(test);
    const auto scheduled = schedule_host(module.programs[0], module.programs[0].groups[0], baseline_host_target());
    REQUIRE(scheduled.has_value());
    std::vector<std::string> names;
    for (const kernel::Frag& frag : scheduled->kernel.frags) names.push_back(frag.name);
    for (const kernel::Buffer& buffer : scheduled->kernel.buffers) names.push_back(buffer.name);
    return names;
  };
  CHECK(kernel_of("p") == kernel_of("q"));
}

}  // namespace
}  // namespace stepc
