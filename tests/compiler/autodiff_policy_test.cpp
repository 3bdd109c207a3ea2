// Gradients of whole compositions, and what differentiate promises of dtypes, phases and missing paths.
#include <algorithm>

#include "compiler/graph/autodiff.h"
#include "compiler/graph/dce.h"
#include "tests/compiler/gradient_check.h"
#include "tests/support/golden.h"

namespace stepc::test {
namespace {

using Xs = std::vector<ValueId>;

TensorType f32(Shape shape) { return {Dtype::f32, std::move(shape)}; }
TensorType bf16(Shape shape) { return {Dtype::bf16, std::move(shape)}; }

ValueId rmsnorm(GraphBuilder& b, ValueId x, ValueId weight) {
  const Shape shape = b.shape(x);
  const ValueId mean = b.mul(b.reduce(Op::reduce_sum, b.mul(x, x), {1}), 1.0 / static_cast<double>(shape[1]));
  const ValueId scale = b.unary(Op::rsqrt, b.add(mean, 1e-5));
  const ValueId normalised = b.mul(x, b.broadcast(scale, shape, {0}));
  return b.mul(normalised, b.broadcast(weight, shape, {1}));
}

// Per row: log of the sum of exponentials, less the logit of the target.
ValueId cross_entropy(GraphBuilder& b, ValueId logits, ValueId targets) {
  const Shape shape = b.shape(logits);
  const ValueId largest = b.emit1(Op::stop_gradient, {b.reduce(Op::reduce_max, logits, {1})});
  const ValueId shifted = b.sub(logits, b.broadcast(largest, shape, {0}));
  const ValueId log_sum = b.unary(Op::log, b.reduce(Op::reduce_sum, b.unary(Op::exp, shifted), {1}));
  const ValueId is_target = b.binary(Op::equal, b.iota(1, shape), b.broadcast(targets, shape, {0}));
  const ValueId picked = b.select(is_target, shifted, b.constant(0, f32(shape)));
  return b.sub(log_sum, b.reduce(Op::reduce_sum, picked, {1}));
}

// The attention op's mathematics in f32: qkv [B, T, 3, H, d] -> [B, T, H, d].
ValueId primitive_attention(GraphBuilder& b, ValueId qkv, bool causal, double scale) {
  const Shape shape = b.shape(qkv);
  const int64_t batch = shape[0], tokens = shape[1], heads = shape[3], dim = shape[4];
  const auto part = [&](int64_t which) {
    const ValueId one = b.reshape(b.slice(qkv, 2, which, which + 1), {batch, tokens, heads, dim});
    return b.transpose(one, {0, 2, 1, 3});
  };
  const ValueId scores = b.mul(b.matmul(part(0), part(1), Dtype::f32, false, true), scale);
  const Shape square = b.shape(scores);
  const ValueId hidden = b.binary(Op::less, b.iota(2, square), b.iota(3, square));
  const ValueId masked = causal ? b.select(hidden, b.constant(-1e30, f32(square)), scores) : scores;
  const ValueId largest = b.emit1(Op::stop_gradient, {b.reduce(Op::reduce_max, masked, {3})});
  const ValueId weights = b.unary(Op::exp, b.sub(masked, b.broadcast(largest, square, {0, 1, 2})));
  const ValueId sums = b.reduce(Op::reduce_sum, weights, {3});
  const ValueId p = b.div(weights, b.broadcast(sums, square, {0, 1, 2}));
  return b.transpose(b.matmul(p, part(2), Dtype::f32), {0, 2, 1, 3});
}

TEST_CASE("gradients of rmsnorm") {
  const Build build = [](GraphBuilder& b, const Xs& x) { return rmsnorm(b, x[0], x[1]); };
  for (const Shape& shape : {Shape{3, 7}, Shape{1, 1}, Shape{5, 2}, Shape{0, 3}})
    check_gradients({{f32(shape), f32({shape[1]})}, build, 0.25, 2});
}

TEST_CASE("gradients of cross entropy") {
  const Build build = [](GraphBuilder& b, const Xs& x) { return cross_entropy(b, x[0], x[1]); };
  const Tensor targets{{Dtype::i32, {3}}, {4, 0, 2}};
  check_gradients({{f32({3, 5}), targets.type}, build}, {{"x1", targets}});
  const Tensor only{{Dtype::i32, {2}}, {0, 0}};
  check_gradients({{f32({2, 1}), only.type}, build}, {{"x1", only}});
}

TEST_CASE("gradients of attention agree with attention made of primitives") {
  struct Sizes {
    int64_t batch, tokens, heads, dim;
  };
  for (const Sizes& size : {Sizes{2, 5, 3, 8}, Sizes{1, 1, 1, 4}, Sizes{1, 13, 2, 2}})
    for (bool causal : {false, true}) {
      const Shape shape = {size.batch, size.tokens, 3, size.heads, size.dim};
      const double scale = 0.5;
      const Build op = [&](GraphBuilder& b, const Xs& x) {
        const ValueId out = b.emit(Op::attention, {x[0]}, {{AttrKey::causal, causal}, {AttrKey::scale, scale}})[0];
        return b.cast(out, Dtype::f32);
      };
      const Build primitives = [&](GraphBuilder& b, const Xs& x) {
        return primitive_attention(b, x[0], causal, scale);
      };
      std::mt19937 random(7);
      TensorMap inputs = {
          {"x0", random_tensor(random, bf16(shape), -2, 2, 5)},
          {"weights", random_tensor(random, f32({size.batch, size.tokens, size.heads, size.dim}), -1, 1, 4)}};
      const TensorMap found = run(gradient_module({{bf16(shape)}, op}), inputs);
      inputs.at("x0").type = f32(shape);
      const TensorMap expected = run(gradient_module({{f32(shape)}, primitives}), inputs);
      const std::vector<double>& gradient = expected.at("dx0").data;
      // P, dS, out and dqkv are each rounded to bf16: 2^-8 of the largest addend of sums of up to 13.
      for (size_t i = 0; i < gradient.size(); ++i)
        CHECK(std::abs(found.at("dx0").data[i] - gradient[i]) <= 0.015 * largest(gradient));
    }
}

// x[2, total] cut along axis 1 at these places, the parts squared and added up to a scalar each.
Build sum_of_cuts(const std::vector<std::pair<int64_t, int64_t>>& cuts) {
  return [cuts](GraphBuilder& b, const Xs& x) {
    ValueId sum = b.constant(0, f32({2}));
    for (const auto& [start, limit] : cuts) {
      const ValueId part = b.slice(x[0], 1, start, limit);
      sum = b.mul(b.add(sum, b.reduce(Op::reduce_sum, b.mul(part, part), {1})), 0.5);
    }
    return sum;
  };
}

int count_reachable(const Build& build, const TensorType& type, Op op) {
  Module module = gradient_module({{type}, build});
  dce(module.programs[0]);
  int count = 0;
  for (const Node& node : module.programs[0].nodes) count += node.op == op;
  return count;
}

TEST_CASE("slices that cover a value give their gradients side by side") {
  const TensorType type = f32({2, 7});
  for (const Build& build :
       {sum_of_cuts({{0, 3}, {3, 7}}), sum_of_cuts({{5, 7}, {0, 2}, {2, 5}}), sum_of_cuts({{0, 1}, {1, 1}, {1, 7}})}) {
    check_gradients({{type}, build});
    CHECK(count_reachable(build, type, Op::concat) == 1);
    CHECK(count_reachable(build, type, Op::pad) == 0);
  }
}

TEST_CASE("slices that overlap, leave gaps or are not alone are padded and added") {
  const TensorType type = f32({2, 7});
  for (const Build& build :
       {sum_of_cuts({{0, 3}, {4, 7}}), sum_of_cuts({{0, 4}, {3, 7}}), sum_of_cuts({{0, 3}, {3, 6}}),
        sum_of_cuts({{0, 7}, {0, 3}, {3, 7}}), sum_of_cuts({{0, 3}, {0, 3}, {3, 7}})}) {
    check_gradients({{type}, build});
    CHECK(count_reachable(build, type, Op::concat) == 0);
  }
  const Build quarters = [](GraphBuilder& b, const Xs& x) {
    ValueId sum = b.constant(0, f32({1, 1}));
    for (int64_t row : {0, 1})
      for (int64_t column : {0, 1}) {
        const ValueId part = b.slice(b.slice(x[0], 0, row, row + 1), 1, column, column + 1);
        sum = b.add(b.mul(sum, 0.5), b.mul(part, part));
      }
    return sum;
  };
  check_gradients({{f32({2, 2})}, quarters});
}

Module with_params(const std::vector<std::pair<std::string, TensorType>>& params) {
  Module module;
  module.name = "policy";
  for (const auto& [name, type] : params) module.persistents.push_back({name, type, true, Arena::weights});
  return module;
}

ValueId sum_of_all(GraphBuilder& b, ValueId x) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < b.shape(x).size(); ++i) axes.push_back(static_cast<int64_t>(i));
  return b.reduce(Op::reduce_sum, b.cast(x, Dtype::f32), axes);
}

TEST_CASE("parameters get f32 gradients straight from their products") {
  Module module = with_params({{"up", bf16({2, 3, 8})}, {"norm", f32({6})}});
  GraphBuilder b(module, "micro_step");
  const ValueId x = b.input("x", bf16({4, 6}));
  const ValueId up = b.persistent("up");
  const ValueId norm = b.persistent("norm");
  b.set_name_hint("normed");
  const ValueId normed = b.cast(rmsnorm(b, b.cast(x, Dtype::f32), norm), Dtype::bf16);
  b.set_name_hint("hidden");
  const ValueId hidden = b.matmul(normed, b.reshape(up, {6, 8}), Dtype::bf16);
  b.set_name_hint("loss");
  const ValueId loss = sum_of_all(b, b.unary(Op::tanh, b.cast(hidden, Dtype::f32)));
  const std::vector<ValueId> gradients = differentiate(b, loss, {x, up, norm});
  b.output("loss", loss);
  b.output("dx", gradients[0]);
  b.output("dup", gradients[1]);
  b.output("dnorm", gradients[2]);
  REQUIRE(verify(module).has_value());
  CHECK(b.type(gradients[0]) == bf16({4, 6}));
  CHECK(b.type(gradients[1]) == f32({2, 3, 8}));
  CHECK(b.type(gradients[2]) == f32({6}));
  check_golden("autodiff/norm_matmul.gir", print_module(module));
}

TEST_CASE("contributions to a bf16 value are added in f32 and rounded once") {
  Module module;
  GraphBuilder b(module, "main");
  const ValueId x = b.input("x", bf16({1}));
  const ValueId wide = b.cast(x, Dtype::f32);
  const ValueId wide_again = b.cast(x, Dtype::f32);
  // Gradients 1 and 2^-8: their sum rounds to 1 in bf16, and so does 1 + 2^-8 + 2^-8 if added one by one.
  const ValueId small = b.add(b.mul(wide_again, 0x1p-8), b.mul(b.cast(x, Dtype::f32), 0x1p-8));
  const ValueId loss = sum_of_all(b, b.add(wide, small));
  const ValueId gradient = differentiate(b, loss, {x})[0];
  b.output("dx", gradient);
  TensorMap none;
  const auto outputs = evaluate(module.programs[0], none, {{"x", {bf16({1}), {3}}}});
  REQUIRE(outputs.has_value());
  CHECK(outputs->at("dx").type == bf16({1}));
  CHECK(outputs->at("dx").data[0] == 1 + 0x1p-7);
}

TEST_CASE("no path gives zeros, and stop_gradient, routing and integers let nothing through") {
  Module module = with_params({{"w", bf16({2})}});
  GraphBuilder b(module, "main");
  const ValueId x = b.input("x", f32({2, 3}));
  const ValueId unused = b.input("unused", bf16({3}));
  const ValueId w = b.persistent("w");
  const ValueId stopped = b.emit1(Op::stop_gradient, {x});
  const Attrs attrs = {{AttrKey::top, int64_t{2}}, {AttrKey::capacity, int64_t{2}}};
  const ValueId count = b.emit(Op::route, {x}, attrs)[3];
  const ValueId steps = b.cast(b.cast(x, Dtype::i32), Dtype::f32);
  const ValueId loss = b.add(sum_of_all(b, b.mul(stopped, steps)), sum_of_all(b, count));
  const std::vector<ValueId> gradients = differentiate(b, loss, {x, unused, w});
  CHECK(b.type(gradients[0]) == f32({2, 3}));
  CHECK(b.type(gradients[1]) == bf16({3}));
  CHECK(b.type(gradients[2]) == f32({2}));
  for (size_t i = 0; i < 3; ++i) b.output("d" + std::to_string(i), gradients[i]);
  REQUIRE(verify(module).has_value());
  TensorMap persistents = {{"w", {bf16({2}), {1, 2}}}};
  const TensorMap inputs = {{"x", {f32({2, 3}), {1, 2, 3, 4, 5, 6}}}, {"unused", {bf16({3}), {1, 1, 1}}}};
  const auto outputs = evaluate(module.programs[0], persistents, inputs);
  REQUIRE(outputs.has_value());
  for (size_t i = 0; i < 3; ++i) CHECK(largest(outputs->at("d" + std::to_string(i)).data) == 0);
}

TEST_CASE("differentiate appends backward nodes only, and restores the builder") {
  Module module;
  GraphBuilder b(module, "main");
  b.set_name_hint("mine");
  const ValueId x = b.input("x", f32({3}));
  const ValueId between = b.mul(x, x);
  const ValueId loss = sum_of_all(b, b.unary(Op::exp, between));
  b.unary(Op::sin, x);  // not on the way to the loss
  b.set_phase(Phase::optimizer);
  const size_t before = b.program().nodes.size();
  const std::vector<ValueId> gradients = differentiate(b, loss, {between, x, between});
  CHECK(b.phase() == Phase::optimizer);
  CHECK(b.name_hint() == "mine");
  CHECK(gradients[0] == gradients[2]);
  for (size_t i = before; i < b.program().nodes.size(); ++i) {
    CHECK(b.program().nodes[i].phase == Phase::backward);
    CHECK(b.program().nodes[i].op != Op::cos);
  }
  // The gradient of an intermediate value is the one that flows on to what it is made of.
  b.output("between", gradients[0]);
  b.output("dx", gradients[1]);
  TensorMap none;
  const auto outputs = evaluate(module.programs[0], none, {{"x", {f32({3}), {0, 1, -2}}}}, Precision::f64);
  REQUIRE(outputs.has_value());
  const std::vector<double> squares = {0, 1, 4};
  const std::vector<double> xs = {0, 1, -2};
  for (size_t i = 0; i < 3; ++i) {
    CHECK(outputs->at("between").data[i] == doctest::Approx(std::exp(squares[i])));
    CHECK(outputs->at("dx").data[i] == doctest::Approx(2 * xs[i] * std::exp(squares[i])));
  }
}

}  // namespace
}  // namespace stepc::test
