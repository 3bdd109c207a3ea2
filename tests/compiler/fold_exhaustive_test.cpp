// fold on every pointwise op with every mix of constant and variable operands, over the numbers that identities
// stumble on: both zeros, ones, infinities, NaN, the ends of i32.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "compiler/graph/fold.h"
#include "ir/graph/builder.h"
#include "ir/graph/evaluate.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"

namespace stepc::test {
namespace {

const std::vector<double>& specials(Dtype dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static const std::vector<double> reals = {
      0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-40, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
  static const std::vector<double> integers = {0, 1, -1, 3, 2147483647.0, -2147483648.0};
  static const std::vector<double> truths = {0, 1};
  switch (dtype) {
    case Dtype::f32:
    case Dtype::bf16: return reals;
    case Dtype::i32: return integers;
    case Dtype::pred: return truths;
  }
  return truths;
}

bool same_number(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// An operand is the input with all special numbers, or a constant.
struct Operand {
  Dtype dtype;
  std::optional<double> constant;
};

std::vector<Operand> choices(Dtype dtype) {
  std::vector<Operand> result = {{dtype, std::nullopt}};
  if (dtype == Dtype::bf16) return result;
  for (double value : specials(dtype)) result.push_back({dtype, value});
  return result;
}

// Evaluates the op before and after fold. Errors (integer division by zero) must stay errors.
void check(Op op, const std::vector<Operand>& operands, Dtype result) {
  Module module;
  GraphBuilder b(module, "main");
  TensorMap inputs;
  std::vector<ValueId> xs;
  for (const Operand& operand : operands) {
    const std::vector<double>& numbers = specials(operand.dtype);
    const TensorType type = {operand.dtype, {60}};  // a multiple of each list's length
    if (operand.constant) {
      xs.push_back(b.constant(*operand.constant, type));
      continue;
    }
    // The second input is rotated against the first, so that unlike numbers meet.
    const std::string name = "x" + std::to_string(xs.size());
    Tensor tensor{type, {}};
    for (size_t i = 0; i < 60; ++i)
      tensor.data.push_back(numbers[(i + xs.size() * (i / numbers.size())) % numbers.size()]);
    for (double& x : tensor.data) x = static_cast<double>(static_cast<float>(x));
    if (operand.dtype == Dtype::bf16)
      for (double& x : tensor.data) x = static_cast<double>(round_to_bf16(x));
    xs.push_back(b.input(name, type));
    inputs[name] = tensor;
  }
  b.output("y", b.emit1(op, xs, {}, {result, {60}}));
  Module folded = module;
  fold(folded.programs[0]);
  REQUIRE(verify(folded).has_value());
  TensorMap none;
  const auto before = evaluate(module.programs[0], none, inputs);
  const auto after = evaluate(folded.programs[0], none, inputs);
  CAPTURE(print_module(module));
  CAPTURE(print_module(folded));
  REQUIRE(before.has_value() == after.has_value());
  if (!before) return;
  const std::vector<double>& expected = before->at("y").data;
  const std::vector<double>& found = after->at("y").data;
  CHECK(std::equal(expected.begin(), expected.end(), found.begin(), found.end(), same_number));
}

// All mixes for these operand dtypes.
void check_all(Op op, const std::vector<Dtype>& dtypes, Dtype result, std::vector<Operand> chosen = {}) {
  if (chosen.size() == dtypes.size()) return check(op, chosen, result);
  for (const Operand& operand : choices(dtypes[chosen.size()])) {
    std::vector<Operand> longer = chosen;
    longer.push_back(operand);
    check_all(op, dtypes, result, longer);
  }
}

TEST_CASE("fold is exact for every pointwise op and special number") {
  const std::vector<Dtype> all = {Dtype::f32, Dtype::bf16, Dtype::i32, Dtype::pred};
  int combinations = 0;
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const OpInfo& info = op_info(op);
    if (info.family != OpFamily::pointwise) continue;
    for (Dtype first : all)
      for (Dtype rest : all)
        for (Dtype result : all) {
          std::vector<Dtype> dtypes(static_cast<size_t>(info.min_operands), rest);
          dtypes[0] = first;
          if (dtypes.size() == 1 && first != rest) continue;
          std::vector<TensorType> types;
          for (Dtype dtype : dtypes) types.push_back({dtype, {60}});
          if (!infer_types(op, types, {}, {{result, {60}}})) continue;
          ++combinations;
          check_all(op, dtypes, result);
        }
  }
  CHECK(combinations > 50);
}

}  // namespace
}  // namespace stepc::test
