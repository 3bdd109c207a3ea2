// Gradients against central differences. A case is a function of some tensors; its loss is the sum of its
// result times fixed weights, so that every element of the result counts differently.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "compiler/graph/autodiff.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"
#include "tests/support/random_tensor.h"

namespace stepc::test {

using Build = std::function<ValueId(GraphBuilder&, const std::vector<ValueId>&)>;

struct GradientCase {
  std::vector<TensorType> inputs;
  Build build;
  double low = -2;
  double high = 2;
  // Exact for products; elsewhere the error of a central difference grows with its square.
  double step = 1e-4;
  double tolerance = 1e-6;
  int grid_bits = 12;  // of the inputs
};

inline std::string x_name(size_t i) { return "x" + std::to_string(i); }

// One program: inputs, loss, gradients.
inline Module gradient_module(const GradientCase& test) {
  Module module;
  module.name = "gradient";
  GraphBuilder b(module, "main");
  std::vector<ValueId> xs;
  for (size_t i = 0; i < test.inputs.size(); ++i) xs.push_back(b.input(x_name(i), test.inputs[i]));
  const ValueId y = b.cast(test.build(b, xs), Dtype::f32);
  const ValueId weights = b.input("weights", {Dtype::f32, Shape(b.shape(y))});
  std::vector<int64_t> axes;
  for (size_t i = 0; i < b.shape(y).size(); ++i) axes.push_back(static_cast<int64_t>(i));
  const ValueId loss = b.reduce(Op::reduce_sum, b.mul(y, weights), axes);
  std::vector<ValueId> wrt;
  for (ValueId x : xs)
    if (b.type(x).dtype == Dtype::f32 || b.type(x).dtype == Dtype::bf16) wrt.push_back(x);
  const std::vector<ValueId> gradients = differentiate(b, loss, wrt);
  b.output("loss", loss);
  for (size_t i = 0; i < wrt.size(); ++i) b.output("d" + b.program().value(wrt[i]).name, gradients[i]);
  const Status status = verify(module);
  REQUIRE_MESSAGE(status.has_value(), (status ? "" : status.error().text()) << "\n" << print_module(module));
  return module;
}

inline TensorMap run(const Module& module, const TensorMap& inputs, Precision precision = Precision::f64) {
  TensorMap persistents;
  auto outputs = evaluate(module.programs[0], persistents, inputs, precision);
  REQUIRE_MESSAGE(outputs.has_value(), (outputs ? "" : outputs.error().text()));
  return *outputs;
}

inline double largest(const std::vector<double>& values) {
  double result = 0;
  for (double x : values) result = std::max(result, std::abs(x));
  return result;
}

// d loss / d element by a central difference.
inline double difference(const Module& module, TensorMap& inputs, const std::string& name, size_t at, double step) {
  double& x = inputs.at(name).data[at];
  const double old = x;
  x = old + step;
  const double above = run(module, inputs).at("loss").data[0];
  x = old - step;
  const double below = run(module, inputs).at("loss").data[0];
  x = old;
  return (above - below) / (2 * step);
}

inline void check_gradients(const GradientCase& test, const TensorMap& fixed_inputs = {}, uint32_t seed = 1) {
  const Module module = gradient_module(test);
  CAPTURE(print_module(module));
  std::mt19937 random(seed);
  TensorMap inputs = fixed_inputs;
  for (size_t i = 0; i < test.inputs.size(); ++i)
    if (!inputs.contains(x_name(i)))
      inputs[x_name(i)] = random_tensor(random, test.inputs[i], test.low, test.high, test.grid_bits);
  for (const Node& node : module.programs[0].nodes)
    if (node.op == Op::input && node.attrs.text(AttrKey::name) == "weights")
      inputs["weights"] = random_tensor(random, module.programs[0].type(node.results[0]), -1, 1, 4);
  const TensorMap outputs = run(module, inputs);
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const auto found = outputs.find("d" + x_name(i));
    if (found == outputs.end()) continue;
    const Tensor& gradient = found->second;
    CHECK(gradient.type == test.inputs[i]);
    const double scale = std::max(largest(gradient.data), 1e-3);
    for (size_t at = 0; at < gradient.data.size(); ++at) {
      const double expected = difference(module, inputs, x_name(i), at, test.step);
      CAPTURE(x_name(i));
      CAPTURE(at);
      CHECK_MESSAGE(std::abs(gradient.data[at] - expected) <= test.tolerance * scale,
                    gradient.data[at] << " against " << expected);
    }
  }
}

}  // namespace stepc::test
