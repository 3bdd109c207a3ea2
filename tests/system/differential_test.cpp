// Whole programs, compiled and run by the executor from poisoned memory, beside the reference evaluator.
//
// The two differ by accumulation order and by the declared errors of transcendental functions. What such a
// difference grows to further down is the graph's own doing: the evaluator's f32 and f64 results show it, and
// an output is compared as closely as those two agree. Where a comparison or a rounding falls to either side
// they do not, so how many outputs are compared closely is checked as well.
#include <algorithm>
#include <cmath>

#include "tests/support/oracle.h"
#include "tests/support/random_graph.h"
#include "tests/system/model_steps.h"

namespace stepc {
namespace {

using test::Machine;

struct Corpus {
  int compared = 0;
  int loose = 0;  // where f32 and f64 already differ
};

double largest(const Tensor& tensor) {
  double most = 0;
  for (double x : tensor.data)
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  return most;
}

// The largest difference of elements; infinite where just one of two is not a number, or not finite.
double distance(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (size_t i = 0; i < a.data.size(); ++i) {
    if (a.data[i] == b.data[i] || (std::isnan(a.data[i]) && std::isnan(b.data[i]))) continue;
    const double difference = std::abs(a.data[i] - b.data[i]);
    most = std::isfinite(difference) ? std::max(most, difference) : INFINITY;
  }
  return most;
}

void compare(const std::string& what, const Tensor& found, const Tensor& f32, const Tensor& f64, Corpus& corpus) {
  REQUIRE(found.type == f32.type);
  const bool exact = f32.type.dtype == Dtype::i32 || f32.type.dtype == Dtype::pred;
  const double scale = exact ? 0 : largest(f32);
  const double unit = f32.type.dtype == Dtype::bf16 ? 1.0 / 128 : 1e-5;
  const double spread = distance(f32, f64);
  ++corpus.compared;
  if (spread > unit * scale) {
    ++corpus.loose;
    return;
  }
  const double error = distance(found, f32);
  CHECK_MESSAGE(error <= 4 * unit * scale, what << ": differs by " << error << " at a scale of " << scale);
}

void compare_graph(uint64_t seed, int nodes, const HostTarget& target, Corpus& corpus) {
  CAPTURE(seed);
  const Module module = test::random_graph(seed, nodes);
  const Program& program = module.programs[0];
  const TensorMap inputs = test::random_inputs(program, seed);
  TensorMap f32 = test::random_persistents(module, seed), f64 = f32;
  Machine machine(module, 2, target);
  for (const auto& [name, tensor] : f32) machine.write(name, tensor);
  const TensorMap outputs32 = evaluate(program, f32, inputs, Precision::f32).value();
  const TensorMap outputs64 = evaluate(program, f64, inputs, Precision::f64).value();
  const TensorMap found = machine.run("main", inputs);
  REQUIRE(found.size() == outputs32.size());
  for (const auto& [name, tensor] : found)
    compare("output " + name, tensor, outputs32.at(name), outputs64.at(name), corpus);
  for (const auto& [name, tensor] : f32) compare("@" + name, machine.read(name), tensor, f64.at(name), corpus);
}

TEST_CASE("random graphs: compiled code computes what the evaluator does") {
  Corpus corpus;
  for (uint64_t seed = 1; seed <= 40; ++seed)  // every other one as if the machine had no AVX-512
    compare_graph(seed, 20, seed % 2 == 0 ? detect_host_target() : baseline_host_target(), corpus);
  CHECK(corpus.compared > 200);
  CHECK_MESSAGE(corpus.loose * 10 <= corpus.compared, corpus.loose << " of " << corpus.compared);
}

TEST_CASE("a small model's steps: compiled code computes what the evaluator does") {
  Config config = test::small_config();
  HostTarget target = detect_host_target();
  SUBCASE("routed") {}
  SUBCASE("routed, without AVX-512") { target = baseline_host_target(); }
  SUBCASE("dense, clipped") {
    config.model.experts = 1;
    config.model.top = 1;
    config.train.clip = 0.5;
  }
  SUBCASE("accumulated") { config.train.accumulation = 2; }
  Machine machine(build_module(config, stepc::differentiate), 2, target);
  test::check_model_steps(config, machine);
}

}  // namespace
}  // namespace stepc
