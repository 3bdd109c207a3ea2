// Whole programs, compiled and run by the executor from poisoned memory, beside the reference evaluator.
//
// The two differ by accumulation order and by the declared errors of transcendental functions. What such a
// difference grows to further down is the graph's own doing: the evaluator's f32 and f64 results show it, and
// an output is compared as closely as those two agree. Where a comparison or a rounding falls to either side
// they do not, so how many outputs are compared closely is checked as well.
#include <algorithm>
#include <cmath>

#include "tests/model/model_run.h"
#include "tests/support/oracle.h"
#include "tests/support/random_graph.h"
#include "tests/system/machine.h"

namespace stepc {
namespace {

using test::Machine;
using test::relative_error;

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

// Every persistent tensor after each of three steps, as vectors: single elements near 0 take Adam's steps in
// either direction.
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
  test::ModelRun reference(config, stepc::differentiate);
  Machine machine(build_module(config, stepc::differentiate), 2, target);
  machine.run("init", {{"seed", test::scalar(static_cast<double>(config.train.seed), Dtype::i32)}});
  for (const auto& [name, tensor] : reference.tensors()) {
    CAPTURE(name);
    REQUIRE(machine.read(name).data == tensor.data);  // bit for bit: no sums in it
  }
  std::mt19937 random(3);
  const auto both = [&](std::string_view program, const TensorMap& given, int64_t step) {
    const TensorMap inputs = reference.with_scalars(program, given, step);
    const TensorMap wanted = reference.run(program, inputs);
    const TensorMap found = machine.run(program, inputs);
    REQUIRE(found.size() == wanted.size());
    for (const auto& [name, tensor] : found) {
      CAPTURE(name);
      CHECK(relative_error(tensor.data, wanted.at(name).data) <= 1e-3);
    }
  };
  for (int64_t step = 0; step < 3; ++step) {
    for (int64_t turn = 0; turn < config.train.accumulation; ++turn) {
      const TensorMap ids = {{"tokens", test::random_ids(random, config, config.train.batch)},
                             {"targets", test::random_ids(random, config, config.train.batch)}};
      both(config.train.accumulation == 1 ? "step" : "micro_step", ids, step);
    }
    if (config.train.accumulation > 1) both("update", {}, step);
    for (const auto& [name, tensor] : reference.tensors()) {
      CAPTURE(name);
      CAPTURE(step);
      CHECK(relative_error(machine.read(name).data, tensor.data) <= (step == 0 ? 2e-3 : 2e-2));
    }
  }
  const TensorMap ids = {{"tokens", test::random_ids(random, config, config.train.batch)},
                         {"targets", test::random_ids(random, config, config.train.batch)}};
  both("eval", ids, 3);
}

}  // namespace
}  // namespace stepc
