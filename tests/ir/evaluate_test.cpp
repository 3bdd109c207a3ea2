// The evaluator, op by op, against values worked out by hand.
#include "ir/graph/evaluate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ir/graph/parse.h"
#include "ir/graph/print.h"

namespace stepc {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");
using Numbers = std::vector<double>;

Tensor f32(Shape shape, Numbers data) { return {{Dtype::f32, std::move(shape)}, std::move(data)}; }
Tensor i32(Shape shape, Numbers data) { return {{Dtype::i32, std::move(shape)}, std::move(data)}; }
Tensor bf16(Shape shape, Numbers data) { return {{Dtype::bf16, std::move(shape)}, std::move(data)}; }
Tensor pred(Shape shape, Numbers data) { return {{Dtype::pred, std::move(shape)}, std::move(data)}; }

// Evaluates one operation on %a, %b, ..; `types` are its results' types. The results, or the error's text.
Result<std::vector<Numbers>> evaluate_op(const std::vector<std::string>& types, std::string_view operation,
                                         const std::vector<Tensor>& operands, Precision precision) {
  std::string text = "module \"m\"\nprogram @p {\n";
  TensorMap inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    text += fmt::format("%{0}: {1} = input {{name=\"{0}\"}}\n", name, type_text(operands[i].type));
    inputs[name] = operands[i];
  }
  for (size_t i = 0; i < types.size(); ++i) text += fmt::format("{}%r{}: {}", i == 0 ? "" : ", ", i, types[i]);
  text += fmt::format(" = {}\n", operation);
  for (size_t i = 0; i < types.size(); ++i) text += fmt::format("output(%r{0}) {{name=\"{0}\"}}\n", i);
  STEPC_ASSIGN(const Module module, parse_module(text + "}\n", "t"));
  TensorMap persistents;
  STEPC_ASSIGN(const TensorMap outputs, evaluate(module.programs[0], persistents, inputs, precision));
  std::vector<Numbers> results;
  for (size_t i = 0; i < types.size(); ++i) results.push_back(outputs.at(std::to_string(i)).data);
  return results;
}

Numbers eval(const std::string& type, std::string_view operation, const std::vector<Tensor>& operands,
             Precision precision = Precision::f32) {
  const auto results = evaluate_op({type}, operation, operands, precision);
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  return (*results)[0];
}

std::string eval_error(const std::string& type, std::string_view operation, const std::vector<Tensor>& operands) {
  const auto results = evaluate_op({type}, operation, operands, Precision::f32);
  return results ? "no error" : results.error().text();
}

// Equal, NaN to NaN and sign of zero included.
bool same(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool equal = std::isnan(a[i]) ? std::isnan(b[i]) : a[i] == b[i] && std::signbit(a[i]) == std::signbit(b[i]);
    if (!equal) return false;
  }
  return true;
}

double rounded(double x) { return static_cast<double>(static_cast<float>(x)); }

TEST_CASE("leaves") {
  CHECK(eval("f32[2]", "constant {value=0.1}", {}) == Numbers{rounded(0.1), rounded(0.1)});
  CHECK(eval("f32[]", "constant {value=0.1}", {}, Precision::f64) == Numbers{0.1});
  CHECK(eval("i32[0]", "constant {value=3}", {}).empty());
  CHECK(eval("i32[2, 3]", "iota {axis=0}", {}) == Numbers{0, 0, 0, 1, 1, 1});
  CHECK(eval("i32[2, 3]", "iota {axis=1}", {}) == Numbers{0, 1, 2, 0, 1, 2});
  const Numbers bits = eval("i32[6]", "random_bits(%a, %b, %c)", {i32({}, {1}), i32({}, {2}), i32({}, {3})});
  for (size_t i = 0; i < 6; ++i) CHECK(static_cast<uint32_t>(static_cast<int32_t>(bits[i])) == philox_word(1, 2, 3, i));
}

TEST_CASE("pointwise on f32") {
  const std::vector<Tensor> x = {f32({4}, {0.25, -2, 0, kInf})};
  CHECK(same(eval("f32[4]", "neg(%a)", x), {-0.25, 2, -0.0, -kInf}));
  CHECK(same(eval("f32[4]", "abs(%a)", x), {0.25, 2, 0, kInf}));
  CHECK(same(eval("f32[4]", "exp(%a)", x), {rounded(std::exp(0.25)), rounded(std::exp(-2)), 1, kInf}));
  CHECK(same(eval("f32[4]", "log(%a)", x), {rounded(std::log(0.25)), kNan, -kInf, kInf}));
  CHECK(same(eval("f32[4]", "sqrt(%a)", x), {0.5, kNan, 0, kInf}));
  CHECK(same(eval("f32[4]", "rsqrt(%a)", x), {2, kNan, kInf, 0}));
  CHECK(same(eval("f32[4]", "sin(%a)", x), {rounded(std::sin(0.25)), rounded(std::sin(-2)), 0, kNan}));
  CHECK(same(eval("f32[4]", "cos(%a)", x), {rounded(std::cos(0.25)), rounded(std::cos(-2)), 1, kNan}));
  CHECK(same(eval("f32[4]", "tanh(%a)", x), {rounded(std::tanh(0.25)), rounded(std::tanh(-2)), 0, 1}));
  CHECK(same(eval("f32[4]", "logistic(%a)", x),
             {rounded(1 / (1 + std::exp(-0.25))), rounded(1 / (1 + std::exp(2.0))), 0.5, 1}));
  CHECK(same(eval("f32[3]", "floor(%a)", {f32({3}, {1.75, -1.25, -0.0})}), {1, -2, -0.0}));
  CHECK(eval("pred[4]", "is_finite(%a)", {f32({4}, {1, kInf, -kInf, kNan})}) == Numbers{1, 0, 0, 0});
  CHECK(eval("f32[1]", "stop_gradient(%a)", {f32({1}, {3})}) == Numbers{3});
  CHECK(eval("f32[1]", "exp(%a)", {f32({1}, {0.25})}, Precision::f64) == Numbers{std::exp(0.25)});
}

TEST_CASE("pointwise with two and three operands") {
  const std::vector<Tensor> x = {f32({4}, {6, -1, 2, kNan}), f32({4}, {1.5, -1, 3, 1})};
  CHECK(same(eval("f32[4]", "add(%a, %b)", x), {7.5, -2, 5, kNan}));
  CHECK(same(eval("f32[4]", "sub(%a, %b)", x), {4.5, 0, -1, kNan}));
  CHECK(same(eval("f32[4]", "mul(%a, %b)", x), {9, 1, 6, kNan}));
  CHECK(same(eval("f32[4]", "div(%a, %b)", x), {4, 1, rounded(2.0 / 3), kNan}));
  CHECK(same(eval("f32[4]", "max(%a, %b)", x), {6, -1, 3, kNan}));
  CHECK(same(eval("f32[4]", "max(%b, %a)", x), {6, -1, 3, kNan}));
  CHECK(same(eval("f32[4]", "min(%a, %b)", x), {1.5, -1, 2, kNan}));
  CHECK(same(eval("f32[4]", "min(%b, %a)", x), {1.5, -1, 2, kNan}));
  CHECK(eval("pred[4]", "equal(%a, %b)", x) == Numbers{0, 1, 0, 0});
  CHECK(eval("pred[4]", "less(%a, %b)", x) == Numbers{0, 0, 1, 0});
  CHECK(eval("pred[4]", "less_equal(%a, %b)", x) == Numbers{0, 1, 1, 0});
  CHECK(same(eval("f32[4]", "pow(%a, %b)", {f32({4}, {4, 2, 0, 1}), f32({4}, {0.5, -1, 2, kInf})}), {2, 0.5, 0, 1}));
  CHECK(same(eval("f32[4]", "select(%c, %a, %b)", {x[0], x[1], pred({4}, {1, 0, 1, 0})}), {6, -1, 2, 1}));
  CHECK(eval("pred[4]", "logical_and(%a, %b)", {pred({4}, {0, 0, 1, 1}), pred({4}, {0, 1, 0, 1})}) ==
        Numbers{0, 0, 0, 1});
  CHECK(eval("pred[4]", "logical_or(%a, %b)", {pred({4}, {0, 0, 1, 1}), pred({4}, {0, 1, 0, 1})}) ==
        Numbers{0, 1, 1, 1});
  CHECK(eval("pred[2]", "logical_not(%a)", {pred({2}, {0, 1})}) == Numbers{1, 0});
}

TEST_CASE("f32 results are rounded, fma once") {
  const double one_ulp = std::ldexp(1, -23);
  CHECK(eval("f32[1]", "add(%a, %b)", {f32({1}, {1}), f32({1}, {one_ulp / 2})}) == Numbers{1});
  CHECK(eval("f32[1]", "add(%a, %b)", {f32({1}, {1}), f32({1}, {one_ulp / 2})}, Precision::f64) ==
        Numbers{1 + one_ulp / 2});
  // (1 + u)^2 = 1 + 2u + u^2: the product alone loses u^2, fma keeps it.
  const Tensor a = f32({1}, {1 + one_ulp});
  const Tensor minus = f32({1}, {-(1 + 2 * one_ulp)});
  CHECK(eval("f32[1]", "fma(%a, %a, %b)", {a, minus}) == Numbers{one_ulp * one_ulp});
  // Half an ulp plus a little that a double drops: rounding through double would give the even 1.
  const double tiny = std::ldexp(1, -80);
  CHECK(eval("f32[1]", "fma(%a, %b, %c)", {f32({1}, {one_ulp / 2}), f32({1}, {1}), f32({1}, {1})}) == Numbers{1});
  const double x = 1 + std::ldexp(1, -12);  // x * x = 1 + 2^-11 + 2^-24, a tie of f32
  CHECK(eval("f32[1]", "fma(%a, %a, %b)", {f32({1}, {x}), f32({1}, {tiny})}) ==
        Numbers{1 + std::ldexp(1, -11) + one_ulp});
  CHECK(eval("f32[1]", "mul(%a, %b)", {f32({1}, {3e38}), f32({1}, {2})}) == Numbers{kInf});
}

TEST_CASE("i32 wraps, divides toward zero and refuses zero") {
  constexpr double kMin = -2147483648.0;
  constexpr double kMax = 2147483647.0;
  const std::vector<Tensor> x = {i32({4}, {kMax, kMin, -7, 7}), i32({4}, {1, -1, 2, -2})};
  CHECK(eval("i32[4]", "add(%a, %b)", x) == Numbers{kMin, kMax, -5, 5});
  CHECK(eval("i32[4]", "sub(%a, %b)", x) == Numbers{kMax - 1, kMin + 1, -9, 9});
  CHECK(eval("i32[4]", "mul(%a, %b)", x) == Numbers{kMax, kMin, -14, -14});
  CHECK(eval("i32[2]", "mul(%a, %a)", {i32({2}, {65536, 65537})}) == Numbers{0, 131073});
  CHECK(eval("i32[4]", "div(%a, %b)", x) == Numbers{kMax, kMin, -3, -3});
  CHECK(eval("i32[4]", "rem(%a, %b)", x) == Numbers{0, 0, -1, 1});
  CHECK(eval("i32[4]", "neg(%a)", x) == Numbers{-kMax, kMin, 7, -7});
  CHECK(eval("i32[4]", "abs(%a)", x) == Numbers{kMax, kMin, 7, 7});
  CHECK(eval("i32[4]", "max(%a, %b)", x) == Numbers{kMax, -1, 2, 7});
  CHECK(eval("pred[4]", "less(%a, %b)", x) == Numbers{0, 1, 1, 0});
  CHECK(eval_error("i32[2]", "div(%a, %b)", {i32({2}, {1, 1}), i32({2}, {1, 0})}) ==
        "t:5:15: program @p, %r0: div: element 1 of the divisor is 0");
  CHECK(eval_error("i32[1]", "rem(%a, %a)", {i32({1}, {0})}) ==
        "t:4:15: program @p, %r0: rem: element 0 of the divisor is 0");
}

TEST_CASE("casts") {
  const double tie = 1 + std::ldexp(1, -8);  // half way between 1 and the next bf16
  CHECK(eval("bf16[3]", "cast(%a)", {f32({3}, {tie, tie + std::ldexp(1, -20), -3})}) ==
        Numbers{1, 1 + std::ldexp(1, -7), -3});
  CHECK(eval("bf16[1]", "cast(%a)", {f32({1}, {tie + std::ldexp(1, -50)})}, Precision::f64) ==
        Numbers{1 + std::ldexp(1, -7)});
  CHECK(eval("f32[1]", "cast(%a)", {bf16({1}, {1.5})}) == Numbers{1.5});
  CHECK(eval("i32[6]", "cast(%a)", {f32({6}, {1.9, -1.9, 3e9, -3e9, kNan, kInf})}) ==
        Numbers{1, -1, 2147483647, -2147483648.0, 0, 2147483647});
  CHECK(eval("f32[2]", "cast(%a)", {i32({2}, {16777217, -5})}) == Numbers{16777216, -5});
  CHECK(eval("f32[2]", "cast(%a)", {i32({2}, {16777217, -5})}, Precision::f64) == Numbers{16777217, -5});
  CHECK(eval("i32[2]", "cast(%a)", {pred({2}, {1, 0})}) == Numbers{1, 0});
  CHECK(eval("f32[3]", "unit_from_bits(%a)", {i32({3}, {-1, 255, 256})}) ==
        Numbers{1 - std::ldexp(1, -24), 0, std::ldexp(1, -24)});
}

TEST_CASE("views") {
  const Tensor x = i32({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(eval("i32[3, 2]", "reshape(%a)", {x}) == Numbers{1, 2, 3, 4, 5, 6});
  CHECK(eval("i32[3, 2]", "transpose(%a) {permutation=[1, 0]}", {x}) == Numbers{1, 4, 2, 5, 3, 6});
  CHECK(eval("i32[2, 1, 3]", "transpose(%a) {permutation=[2, 0, 1]}", {i32({1, 3, 2}, {1, 2, 3, 4, 5, 6})}) ==
        Numbers{1, 3, 5, 2, 4, 6});
  CHECK(eval("i32[2, 2, 3]", "broadcast(%a) {axes=[0, 2]}", {x}) == Numbers{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(eval("i32[2, 2]", "broadcast(%a) {axes=[]}", {i32({}, {7})}) == Numbers{7, 7, 7, 7});
  CHECK(eval("i32[1, 2]", "slice(%a) {start=[1, 0], limit=[2, 2]}", {x}) == Numbers{4, 5});
  CHECK(eval("i32[2, 0]", "slice(%a) {start=[0, 3], limit=[2, 3]}", {x}).empty());
  CHECK(eval("i32[3, 5]", "pad(%a) {low=[1, 0], high=[0, 2]}", {x}) ==
        Numbers{0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0, 0});
  CHECK(eval("i32[2, 3]", "reverse(%a) {axes=[0, 1]}", {x}) == Numbers{6, 5, 4, 3, 2, 1});
  CHECK(eval("i32[2, 3]", "reverse(%a) {axes=[1]}", {x}) == Numbers{3, 2, 1, 6, 5, 4});
  CHECK(eval("i32[2, 4]", "concat(%a, %b) {axis=1}", {x, i32({2, 1}, {8, 9})}) == Numbers{1, 2, 3, 8, 4, 5, 6, 9});
  CHECK(eval("i32[3, 3]", "concat(%b, %a, %c) {axis=0}", {x, i32({1, 3}, {7, 8, 9}), i32({0, 3}, {})}) ==
        Numbers{7, 8, 9, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("reductions") {
  const Tensor x = f32({2, 3}, {1, 2, 3, -4, 5, -6});
  CHECK(eval("f32[2]", "reduce_sum(%a) {axes=[1]}", {x}) == Numbers{6, -5});
  CHECK(eval("f32[3]", "reduce_sum(%a) {axes=[0]}", {x}) == Numbers{-3, 7, -3});
  CHECK(eval("f32[]", "reduce_sum(%a) {axes=[0, 1]}", {x}) == Numbers{1});
  CHECK(eval("f32[2, 3]", "reduce_sum(%a) {axes=[]}", {x}) == x.data);
  CHECK(eval("f32[2]", "reduce_max(%a) {axes=[1]}", {x}) == Numbers{3, 5});
  CHECK(eval("f32[3]", "reduce_min(%a) {axes=[0]}", {x}) == Numbers{-4, 2, -6});
  CHECK(eval("f32[2]", "reduce_sum(%a) {axes=[0, 2]}", {f32({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}) == Numbers{14, 22});
  CHECK(same(eval("f32[2]", "reduce_max(%a) {axes=[1]}", {f32({2, 2}, {1, kNan, kNan, 1})}), {kNan, kNan}));
  CHECK(eval("f32[2]", "reduce_sum(%a) {axes=[1]}", {f32({2, 0}, {})}) == Numbers{0, 0});
  CHECK(eval("f32[2]", "reduce_max(%a) {axes=[1]}", {f32({2, 0}, {})}) == Numbers{-kInf, -kInf});
  CHECK(eval("f32[2]", "reduce_min(%a) {axes=[1]}", {f32({2, 0}, {})}) == Numbers{kInf, kInf});
  // Summed in double and rounded once: f32 sums would lose the ones.
  CHECK(eval("f32[]", "reduce_sum(%a) {axes=[0]}", {f32({4}, {16777216, 1, 1, -16777216})}) == Numbers{2});
}

TEST_CASE("matmul in every orientation") {
  const Numbers product = {58, 64, 139, 154};
  const Tensor a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor a_t = f32({3, 2}, {1, 4, 2, 5, 3, 6});
  const Tensor b = f32({3, 2}, {7, 8, 9, 10, 11, 12});
  const Tensor b_t = f32({2, 3}, {7, 9, 11, 8, 10, 12});
  CHECK(eval("f32[2, 2]", "matmul(%a, %b) {transpose_a=false, transpose_b=false}", {a, b}) == product);
  CHECK(eval("f32[2, 2]", "matmul(%a, %b) {transpose_a=true, transpose_b=false}", {a_t, b}) == product);
  CHECK(eval("f32[2, 2]", "matmul(%a, %b) {transpose_a=false, transpose_b=true}", {a, b_t}) == product);
  CHECK(eval("f32[2, 2]", "matmul(%a, %b) {transpose_a=true, transpose_b=true}", {a_t, b_t}) == product);
  const Tensor pair = f32({2, 1, 2}, {1, 2, 3, 4});
  CHECK(eval("f32[2, 1, 1]", "matmul(%a, %b) {transpose_a=false, transpose_b=true}", {pair, pair}) == Numbers{5, 25});
  CHECK(eval("f32[2, 2]", "matmul(%a, %b) {transpose_a=false, transpose_b=false}",
             {f32({2, 0}, {}), f32({0, 2}, {})}) == Numbers{0, 0, 0, 0});
  CHECK(eval("f32[0, 2]", "matmul(%a, %b) {transpose_a=false, transpose_b=false}", {f32({0, 3}, {}), b}).empty());
  // bf16 result: rounded once from the exact sum 1 + 2^-8 + 2^-16.
  const double small = std::ldexp(1, -8);
  CHECK(eval("bf16[1, 1]", "matmul(%a, %b) {transpose_a=false, transpose_b=false}",
             {bf16({1, 3}, {1, small, small}), bf16({3, 1}, {1, 1, small})}) == Numbers{1 + 2 * small});
}

TEST_CASE("matmul with a count: what it promises to be zeros is not multiplied, and has to be") {
  const Tensor a = f32({2, 2, 2}, {1, 2, 0, 0, 3, 4, 5, 6});
  const Tensor b = f32({2, 2, 1}, {7, kInf, 9, 10});
  const Tensor count = i32({2}, {1, 3});
  CHECK(eval("f32[2, 2, 1]", "matmul(%a, %b, %c) {transpose_a=false, transpose_b=false}", {a, b, count}) ==
        Numbers{kInf, 0, 67, 105});
  CHECK(eval("f32[2, 2, 1]", "matmul(%a, %b, %c) {transpose_a=true, transpose_b=false}", {a, b, count}) ==
        Numbers{7, 14, 77, 96});
  CHECK(eval("f32[1, 1]", "matmul(%a, %b, %c) {transpose_a=false, transpose_b=false}",
             {f32({1, 1}, {0}), f32({1, 1}, {kNan}), i32({}, {0})}) == Numbers{0});
  CHECK(
      eval_error("f32[2, 2, 1]", "matmul(%a, %b, %c) {transpose_a=false, transpose_b=false}", {a, b, i32({2}, {1, 1})})
          .find("expected zeros from row 1 on in batch 1, as the count promises, found 5 in row 1") !=
      std::string::npos);
  CHECK(
      eval_error("f32[2, 2, 1]", "matmul(%a, %b, %c) {transpose_a=false, transpose_b=false}", {a, b, i32({2}, {-1, 2})})
          .find("expected a count of at least 0 in batch 0, found -1") != std::string::npos);
}

TEST_CASE("gather and scatter of rows") {
  const Tensor x = bf16({3, 2}, {1, 2, 3, 4, 5, 6});
  CHECK(eval("bf16[4, 2]", "gather_rows(%a, %b)", {x, i32({4}, {2, -1, 0, 2})}) == Numbers{5, 6, 0, 0, 1, 2, 5, 6});
  CHECK(eval("bf16[2, 2]", "gather_rows(%a, %b, %c)", {x, i32({2}, {1, -1}), i32({3}, {-1, 0, -1})}) ==
        Numbers{3, 4, 0, 0});
  CHECK(eval("f32[3, 2]", "scatter_add_rows(%a, %b)", {x, i32({3}, {1, -1, 1})}) == Numbers{0, 0, 6, 8, 0, 0});
  CHECK(eval_error("bf16[1, 2]", "gather_rows(%a, %b)", {x, i32({1}, {3})}) ==
        "t:5:19: program @p, %r0: gather_rows: index 3 at position 0 is outside [-1, 3)");
  CHECK(eval_error("f32[1, 2]", "scatter_add_rows(%a, %b)", {x, i32({3}, {0, 0, -2})}) ==
        "t:5:18: program @p, %r0: scatter_add_rows: index -2 at position 2 is outside [-1, 1)");
}

TEST_CASE("route: ties to the lower index, places in order of token and rank, dropping beyond capacity") {
  const Tensor probs = f32({3, 3}, {0.2, 0.4, 0.4, 0.1, 0.8, 0.1, 0.3, 0.5, 0.2});
  const auto results = evaluate_op({"i32[3, 2]", "i32[6]", "i32[6]", "i32[3]"}, "route(%a) {top=2, capacity=2}",
                                   {probs}, Precision::f32);
  REQUIRE(results.has_value());
  CHECK((*results)[0] == Numbers{1, 2, 1, 0, 1, 0});
  CHECK((*results)[1] == Numbers{2, 4, 3, 0, -1, 1});
  CHECK((*results)[2] == Numbers{3, 5, 0, 2, 1, -1});
  CHECK((*results)[3] == Numbers{2, 3, 1});
}

TEST_CASE("attention of two tokens, by hand") {
  // One head of one dimension: q = (1, 2), k = (1, 3), v = (10, 20).
  const Tensor qkv = bf16({1, 2, 3, 1, 1}, {1, 1, 10, 2, 3, 20});
  const auto causal = evaluate_op({"bf16[1, 2, 1, 1]", "f32[1, 1, 2]"}, "attention(%a) {causal=true, scale=0.5}", {qkv},
                                  Precision::f32);
  REQUIRE(causal.has_value());
  // Token 0 sees itself alone; token 1 has scores 0.5 * (2, 6) = (1, 3).
  const double lse = std::log(std::exp(1) + std::exp(3));
  const double p0 = round_to_bf16(std::exp(1 - lse));
  const double p1 = round_to_bf16(std::exp(3 - lse));
  CHECK((*causal)[0] == Numbers{10, round_to_bf16(10 * p0 + 20 * p1)});
  CHECK((*causal)[1] == Numbers{0.5, rounded(lse)});
  const auto full = evaluate_op({"bf16[1, 2, 1, 1]", "f32[1, 1, 2]"}, "attention(%a) {causal=false, scale=0.5}", {qkv},
                                Precision::f32);
  REQUIRE(full.has_value());
  CHECK((*full)[1][0] == doctest::Approx(std::log(std::exp(0.5) + std::exp(1.5))));
}

TEST_CASE("attention_grad of two tokens, by hand") {
  const Tensor qkv = bf16({1, 2, 3, 1, 1}, {1, 1, 10, 2, 3, 20});
  const Tensor out = bf16({1, 2, 1, 1}, {10, 18.75});
  const Tensor dout = bf16({1, 2, 1, 1}, {1, 2});
  const double lse1 = std::log(std::exp(1) + std::exp(3));
  const Tensor lse = f32({1, 1, 2}, {0.5, lse1});
  const Numbers grad = eval("bf16[1, 2, 3, 1, 1]", "attention_grad(%a, %b, %c, %d) {causal=true, scale=0.5}",
                            {qkv, out, lse, dout}, Precision::f64);
  const double p10 = std::exp(1 - lse1);
  const double p11 = std::exp(3 - lse1);
  // dP = dout * v; D = dout * out = (10, 37.5); dS = P * (dP - D).
  const double ds10 = round_to_bf16(p10 * (20 - 37.5));
  const double ds11 = round_to_bf16(p11 * (40 - 37.5));
  CHECK(grad[0] == 0);                              // dq0: its only dS is 1 * (10 - 10)
  CHECK(grad[1] == round_to_bf16(0.5 * 2 * ds10));  // dk0
  CHECK(grad[2] == round_to_bf16(1 + 2 * static_cast<double>(round_to_bf16(p10))));  // dv0
  CHECK(grad[3] == round_to_bf16(0.5 * (1 * ds10 + 3 * ds11)));                      // dq1
  CHECK(grad[4] == round_to_bf16(0.5 * 2 * ds11));                                   // dk1
  CHECK(grad[5] == round_to_bf16(2 * static_cast<double>(round_to_bf16(p11))));      // dv1
}

// Per head, batch and token attention must look where the layout says: heads computed together equal heads
// computed alone.
TEST_CASE("heads and batches of attention are independent") {
  const int64_t batch = 2, tokens = 3, heads = 2, dim = 4;
  Tensor qkv = bf16({batch, tokens, 3, heads, dim}, {});
  for (int64_t i = 0; i < numel(qkv.type.shape); ++i)
    qkv.data.push_back(round_to_bf16(std::sin(static_cast<double>(i * i % 97))));
  const auto all = evaluate_op({"bf16[2, 3, 2, 4]", "f32[2, 2, 3]"}, "attention(%a) {causal=true, scale=0.5}", {qkv},
                               Precision::f32);
  REQUIRE(all.has_value());
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      Tensor one = bf16({1, tokens, 3, 1, dim}, {});
      for (int64_t row = 0; row < tokens * 3; ++row)
        for (int64_t j = 0; j < dim; ++j)
          one.data.push_back(qkv.data[static_cast<size_t>(((b * tokens * 3 + row) * heads + h) * dim + j)]);
      const auto alone = evaluate_op({"bf16[1, 3, 1, 4]", "f32[1, 1, 3]"}, "attention(%a) {causal=true, scale=0.5}",
                                     {one}, Precision::f32);
      REQUIRE(alone.has_value());
      for (int64_t t = 0; t < tokens; ++t) {
        CHECK((*alone)[1][static_cast<size_t>(t)] == (*all)[1][static_cast<size_t>((b * heads + h) * tokens + t)]);
        for (int64_t j = 0; j < dim; ++j)
          CHECK((*alone)[0][static_cast<size_t>(t * dim + j)] ==
                (*all)[0][static_cast<size_t>(((b * tokens + t) * heads + h) * dim + j)]);
      }
    }
}

constexpr std::string_view kSwap = R"(module "m"
param @a: f32[2]
state @b: f32[2] optimizer
program @swap {
  %a: f32[2] = param {name=@a}
  assign(%a) {name=@b}
  %b: f32[2] = state {name=@b}
  assign(%b) {name=@a}
  %x: f32[2] = input {name="x"}
  %sum: f32[2] = add(%b, %x)
  output(%sum) {name="sum"}
}
)";

TEST_CASE("assigned states change when the program ends: every reader sees the old value") {
  const Result<Module> module = parse_module(kSwap, "t");
  REQUIRE(module.has_value());
  TensorMap persistents = {{"a", f32({2}, {1, 2})}, {"b", f32({2}, {3, 4})}};
  TensorMap trace;
  const auto outputs = evaluate(module->programs[0], persistents, {{"x", f32({2}, {10, 10})}}, Precision::f32, &trace);
  REQUIRE(outputs.has_value());
  CHECK(outputs->at("sum").data == Numbers{13, 14});
  CHECK(persistents.at("a").data == Numbers{3, 4});
  CHECK(persistents.at("b").data == Numbers{1, 2});
  CHECK(trace.at("b").data == Numbers{3, 4});
  CHECK(trace.size() == 4);
}

TEST_CASE("what is missing or of another type is named, and nothing is assigned then") {
  const Result<Module> module = parse_module(kSwap, "t");
  REQUIRE(module.has_value());
  const auto error = [&](TensorMap persistents, const TensorMap& inputs) {
    const TensorMap before = persistents;
    const auto outputs = evaluate(module->programs[0], persistents, inputs);
    for (const auto& [name, tensor] : before) CHECK(persistents.at(name).data == tensor.data);
    return outputs ? "no error" : outputs.error().text();
  };
  const TensorMap both = {{"a", f32({2}, {1, 2})}, {"b", f32({2}, {3, 4})}};
  CHECK(error(both, {}) == "t:9:16: program @swap, %x: input: no tensor was given for x");
  CHECK(error({{"a", f32({2}, {1, 2})}}, {}) == "t:7:16: program @swap, %b: state: no tensor was given for b");
  CHECK(error(both, {{"x", f32({3}, {1, 2, 3})}}) ==
        "t:9:16: program @swap, %x: input: expected f32[2] for x, found f32[3]");
  CHECK(error(both, {{"x", f32({2}, {1})}}) == "t:9:16: program @swap, %x: input: expected 2 elements for x, found 1");
  CHECK(eval_error("i32[1]", "neg(%a)", {i32({1}, {0.5})}) ==
        "t:3:14: program @p, %a: input: expected elements of i32 for a, found 0.5");
  CHECK(eval_error("pred[1]", "logical_not(%a)", {pred({1}, {2})}) ==
        "t:3:15: program @p, %a: input: expected elements of pred for a, found 2");
  CHECK(eval_error("f32[1073741824]", "constant {value=0}", {}) ==
        "t:3:24: program @p, %r0: constant: f32[1073741824] is too large for the evaluator");
}

TEST_CASE("tensors from outside are rounded to what their dtype holds") {
  CHECK(eval("f32[1]", "neg(%a)", {f32({1}, {0.1})}) == Numbers{-rounded(0.1)});
  CHECK(eval("f32[1]", "neg(%a)", {f32({1}, {0.1})}, Precision::f64) == Numbers{-0.1});
  CHECK(eval("f32[1]", "cast(%a)", {bf16({1}, {0.1})}, Precision::f64) == Numbers{round_to_bf16(0.1)});
}

}  // namespace
}  // namespace stepc
