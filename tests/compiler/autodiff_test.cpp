// Every gradient rule against central differences in double precision.
#include "compiler/graph/autodiff.h"

#include <map>

#include "tests/compiler/gradient_check.h"

namespace stepc::test {
namespace {

using Xs = std::vector<ValueId>;

TensorType f32(Shape shape) { return {Dtype::f32, std::move(shape)}; }
TensorType bf16(Shape shape) { return {Dtype::bf16, std::move(shape)}; }
TensorType i32(Shape shape) { return {Dtype::i32, std::move(shape)}; }

const std::vector<Shape>& odd_shapes() {
  static const std::vector<Shape> shapes = {{}, {1}, {7}, {3, 5}, {0}, {2, 0, 3}, {1, 1, 2}};
  return shapes;
}

Build unary(Op op) {
  return [op](GraphBuilder& b, const Xs& x) { return b.unary(op, x[0]); };
}
Build binary(Op op) {
  return [op](GraphBuilder& b, const Xs& x) { return b.binary(op, x[0], x[1]); };
}
Build with_attrs(Op op, Attrs attrs) {
  return [op, attrs](GraphBuilder& b, const Xs& x) { return b.emit1(op, x, attrs); };
}

struct PointwiseCase {
  Op op;
  int operands;
  double low, high;
};

const std::vector<PointwiseCase>& pointwise_cases() {
  static const std::vector<PointwiseCase> cases = {
      {Op::neg, 1, -2, 2},    {Op::abs, 1, -2, 2}, {Op::exp, 1, -2, 2}, {Op::log, 1, 0.5, 3}, {Op::sqrt, 1, 0.5, 3},
      {Op::rsqrt, 1, 0.5, 3}, {Op::sin, 1, -3, 3}, {Op::cos, 1, -3, 3}, {Op::tanh, 1, -2, 2}, {Op::logistic, 1, -3, 3},
      {Op::floor, 1, -3, 3},  {Op::add, 2, -2, 2}, {Op::sub, 2, -2, 2}, {Op::mul, 2, -2, 2},  {Op::div, 2, 0.5, 2},
      {Op::pow, 2, 0.5, 2},   {Op::max, 2, -2, 2}, {Op::min, 2, -2, 2}, {Op::fma, 3, -2, 2}};
  return cases;
}

// Ops whose gradients the cases of this file check, each in a test case of its family.
const std::vector<Op>& ops_checked_elsewhere() {
  static const std::vector<Op> ops = {Op::cast,       Op::select,     Op::reshape,     Op::transpose, Op::broadcast,
                                      Op::slice,      Op::pad,        Op::reverse,     Op::concat,    Op::reduce_sum,
                                      Op::reduce_max, Op::reduce_min, Op::gather_rows, Op::matmul,    Op::attention};
  return ops;
}

TEST_CASE("every op with a gradient rule has a finite difference test") {
  std::vector<Op> checked = ops_checked_elsewhere();
  for (const PointwiseCase& test : pointwise_cases()) checked.push_back(test.op);
  const std::vector<std::pair<Op, std::string_view>> rules = {
#define OP(name, family, operands, results, attrs, shape_rule, gradient_rule, error, doc) {Op::name, #gradient_rule},
#include "ir/graph/graph_ops.def"
#undef OP
  };
  for (const auto& [op, rule] : rules) {
    const bool has_rule = rule != "none" && rule != "effect";
    CAPTURE(op_info(op).name);
    CHECK(has_rule == (std::find(checked.begin(), checked.end(), op) != checked.end()));
  }
}

TEST_CASE("gradients of pointwise ops") {
  for (const PointwiseCase& test : pointwise_cases())
    for (const Shape& shape : odd_shapes()) {
      const Build build = [&](GraphBuilder& b, const Xs& x) { return b.emit1(test.op, x); };
      check_gradients(
          {std::vector<TensorType>(static_cast<size_t>(test.operands), f32(shape)), build, test.low, test.high, 1e-5});
    }
}

TEST_CASE("gradients of one value used twice add up") {
  check_gradients({{f32({5})}, [](GraphBuilder& b, const Xs& x) { return b.mul(x[0], b.unary(Op::sin, x[0])); }});
  check_gradients({{f32({5})}, [](GraphBuilder& b, const Xs& x) { return b.mul(x[0], x[0]); }});
  check_gradients({{f32({5})}, [](GraphBuilder& b, const Xs& x) { return b.sub(x[0], x[0]); }});
}

TEST_CASE("gradients of select flow to the arm that is taken") {
  const Build build = [](GraphBuilder& b, const Xs& x) {
    return b.select(b.binary(Op::less, x[2], b.constant(0, b.type(x[2]))), b.mul(x[0], x[1]), x[1]);
  };
  for (const Shape& shape : odd_shapes()) check_gradients({{f32(shape), f32(shape), f32(shape)}, build});
}

TEST_CASE("gradients of views") {
  using Integers = std::vector<int64_t>;
  check_gradients({{f32({2, 3, 5})}, [](GraphBuilder& b, const Xs& x) { return b.reshape(x[0], {6, 5}); }});
  check_gradients({{f32({0, 3})}, [](GraphBuilder& b, const Xs& x) { return b.reshape(x[0], {5, 0}); }});
  check_gradients({{f32({1})}, [](GraphBuilder& b, const Xs& x) { return b.reshape(x[0], {}); }});
  check_gradients({{f32({2, 3, 5})}, with_attrs(Op::transpose, {{AttrKey::permutation, Integers{2, 0, 1}}})});
  check_gradients({{f32({3})}, [](GraphBuilder& b, const Xs& x) { return b.broadcast(x[0], {2, 3, 4}, {1}); }});
  check_gradients({{f32({})}, [](GraphBuilder& b, const Xs& x) { return b.broadcast(x[0], {7}, {}); }});
  check_gradients({{f32({3})}, [](GraphBuilder& b, const Xs& x) { return b.broadcast(x[0], {0, 3}, {1}); }});
  check_gradients({{f32({3, 2})}, [](GraphBuilder& b, const Xs& x) { return b.broadcast(x[0], {3, 2}, {0, 1}); }});
  check_gradients(
      {{f32({5, 3})}, with_attrs(Op::slice, {{AttrKey::start, Integers{1, 0}}, {AttrKey::limit, Integers{4, 2}}})});
  check_gradients({{f32({5})}, with_attrs(Op::slice, {{AttrKey::start, Integers{2}}, {AttrKey::limit, Integers{2}}})});
  check_gradients(
      {{f32({2, 3})}, with_attrs(Op::pad, {{AttrKey::low, Integers{1, 0}}, {AttrKey::high, Integers{0, 2}}})});
  check_gradients({{f32({2, 3})}, with_attrs(Op::reverse, {{AttrKey::axes, Integers{1}}})});
  check_gradients({{f32({2, 3}), f32({2, 0}), f32({2, 1})}, with_attrs(Op::concat, {{AttrKey::axis, int64_t{1}}})});
}

TEST_CASE("gradients of reductions") {
  for (Op op : {Op::reduce_sum, Op::reduce_max, Op::reduce_min}) {
    const auto over = [op](std::vector<int64_t> axes) {
      return [op, axes](GraphBuilder& b, const Xs& x) { return b.reduce(op, x[0], axes); };
    };
    check_gradients({{f32({7})}, over({0})});
    check_gradients({{f32({3, 5})}, over({1})});
    check_gradients({{f32({3, 5, 2})}, over({0, 2})});
    check_gradients({{f32({3, 1})}, over({1})});
    check_gradients({{f32({3})}, over({})});
  }
  check_gradients({{f32({0, 3})}, [](GraphBuilder& b, const Xs& x) { return b.reduce(Op::reduce_sum, x[0], {0}); }});
}

// Values of the gradient where the function has none: what docs/ and the rules promise.
TEST_CASE("gradients at ties and kinks") {
  const auto gradient = [](const Build& build, std::vector<std::vector<double>> values) {
    GradientCase test{{}, build};
    TensorMap inputs;
    for (size_t i = 0; i < values.size(); ++i) {
      test.inputs.push_back(f32({static_cast<int64_t>(values[i].size())}));
      inputs[x_name(i)] = {test.inputs.back(), values[i]};
    }
    const Module module = gradient_module(test);
    for (const Value& value : module.programs[0].values)
      if (value.name == "weights")
        inputs["weights"] = {value.type, std::vector<double>(static_cast<size_t>(numel(value.type.shape)), 6.0)};
    return run(module, inputs);
  };
  const TensorMap max = gradient(binary(Op::max), {{1, 2, 3}, {3, 2, 1}});
  CHECK(max.at("dx0").data == std::vector<double>{0, 6, 6});
  CHECK(max.at("dx1").data == std::vector<double>{6, 0, 0});
  const TensorMap min = gradient(binary(Op::min), {{1, 2, 3}, {3, 2, 1}});
  CHECK(min.at("dx0").data == std::vector<double>{6, 6, 0});
  CHECK(min.at("dx1").data == std::vector<double>{0, 0, 6});
  CHECK(gradient(unary(Op::abs), {{-2, 0, 2}}).at("dx0").data == std::vector<double>{-6, 0, 6});
  const Build largest_of = [](GraphBuilder& b, const Xs& x) { return b.reduce(Op::reduce_max, x[0], {0}); };
  CHECK(gradient(largest_of, {{4, 1, 4, 4}}).at("dx0").data == std::vector<double>{2, 0, 2, 2});
  const Build power = [](GraphBuilder& b, const Xs& x) { return b.binary(Op::pow, x[0], x[1]); };
  CHECK(gradient(power, {{0}, {2}}).at("dx0").data == std::vector<double>{0});
  CHECK(gradient(power, {{0}, {2}}).at("dx1").data == std::vector<double>{0});
}

TEST_CASE("gradients of matmul, every storage order, batched and odd") {
  struct Sizes {
    int64_t m, n, k;
  };
  for (const Sizes& size : {Sizes{3, 5, 2}, Sizes{1, 1, 1}, Sizes{4, 1, 7}, Sizes{2, 3, 0}, Sizes{0, 3, 2}})
    for (const Shape& batch : {Shape{}, Shape{3}, Shape{2, 1}})
      for (bool transpose_a : {false, true})
        for (bool transpose_b : {false, true}) {
          Shape a = batch;
          Shape b_shape = batch;
          for (int64_t extent : {transpose_a ? size.k : size.m, transpose_a ? size.m : size.k}) a.push_back(extent);
          for (int64_t extent : {transpose_b ? size.n : size.k, transpose_b ? size.k : size.n})
            b_shape.push_back(extent);
          const Build build = [=](GraphBuilder& b, const Xs& x) {
            return b.matmul(x[0], x[1], Dtype::f32, transpose_a, transpose_b);
          };
          check_gradients({{f32(a), f32(b_shape)}, build});
          // bf16 in steps of the grid: products are exact, their gradients are rounded once.
          check_gradients({{bf16(a), bf16(b_shape)}, build, -2, 2, 0.125, 1.0 / 256, 3});
        }
}

// Rows past the count are zeros by a mask, and a mask keeps their gradients from the product.
TEST_CASE("gradients of matmul with a count, every storage order") {
  const TensorMap counts{{"count", Tensor{{Dtype::i32, {3}}, {0, 9, 2}}}};
  const Shape counted{3, 4, 5};  // rows are the second dimension
  const auto masked = [](GraphBuilder& b, ValueId x, ValueId count) {
    const Shape shape = b.shape(x);
    const ValueId lives = b.binary(Op::less, b.iota(1, shape), b.broadcast(count, shape, {0}));
    return b.select(lives, x, b.constant(0, {Dtype::f32, shape}));
  };
  for (bool transpose_a : {false, true})
    for (bool transpose_b : {false, true}) {
      const int64_t k = transpose_a ? 4 : 5;
      const Build build = [=](GraphBuilder& b, const Xs& x) {
        const ValueId count = b.input("count", {Dtype::i32, {3}});
        const ValueId y = b.matmul(masked(b, x[0], count), x[1], Dtype::f32, transpose_a, transpose_b, count);
        return transpose_a ? y : masked(b, y, count);
      };
      check_gradients({{f32(counted), f32(transpose_b ? Shape{3, 2, k} : Shape{3, k, 2})}, build}, counts);
    }
}

TEST_CASE("gradients of bf16 views and casts, exact in bf16") {
  const auto check = [](std::vector<TensorType> inputs, const Build& build) {
    check_gradients({std::move(inputs), build, -2, 2, 0.125, 1.0 / 256, 3});
  };
  check({bf16({3, 4})}, [](GraphBuilder& b, const Xs& x) { return b.reshape(x[0], {2, 6}); });
  check({bf16({3, 4})}, [](GraphBuilder& b, const Xs& x) { return b.slice(x[0], 1, 1, 3); });
  check({bf16({4})}, [](GraphBuilder& b, const Xs& x) { return b.broadcast(x[0], {3, 4}, {1}); });
  check({bf16({4})}, [](GraphBuilder& b, const Xs& x) { return b.cast(x[0], Dtype::f32); });
  check({f32({4})}, [](GraphBuilder& b, const Xs& x) { return b.cast(x[0], Dtype::bf16); });
  check({bf16({5}), bf16({5})}, [](GraphBuilder& b, const Xs& x) {
    const ValueId lower = b.binary(Op::less, b.cast(x[0], Dtype::f32), b.constant(0.0625, {Dtype::f32, {5}}));
    return b.select(lower, x[0], x[1]);
  });
}

TEST_CASE("gradients of row gathers") {
  const Build gather = [](GraphBuilder& b, const Xs& x) { return b.emit1(Op::gather_rows, x); };
  const auto index = [](std::vector<double> rows) {
    const auto count = static_cast<int64_t>(rows.size());
    return Tensor{i32({count}), std::move(rows)};
  };
  SUBCASE("rows repeat and are dropped") {
    check_gradients({{f32({4, 3}), i32({6})}, gather}, {{"x1", index({0, 3, -1, 3, 3, 2})}});
    check_gradients({{bf16({4, 3}), i32({6})}, gather, -2, 2, 0.125, 1.0 / 256, 3},
                    {{"x1", index({0, 3, -1, 3, 3, 2})}});
  }
  SUBCASE("no rows") { check_gradients({{f32({4, 3}), i32({0})}, gather}, {{"x1", index({})}}); }
  SUBCASE("one to one: the gradient is a gather") {
    const GradientCase test{{f32({4, 3}), i32({5}), i32({4})}, gather};
    check_gradients(test, {{"x1", index({2, -1, 0, -1, 3})}, {"x2", index({2, -1, 0, 4})}});
    for (const Node& node : gradient_module(test).programs[0].nodes) CHECK(node.op != Op::scatter_add_rows);
  }
}

}  // namespace
}  // namespace stepc::test
