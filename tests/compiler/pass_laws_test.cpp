// Laws of the passes on random graphs and on their gradients: what the evaluator gives stays the same to the
// bit, the graph still verifies, and a second run changes nothing.
#include <bit>
#include <cmath>

#include "compiler/graph/autodiff.h"
#include "compiler/graph/cse.h"
#include "compiler/graph/dce.h"
#include "compiler/graph/fold.h"
#include "compiler/graph/split_column_sum.h"
#include "compiler/pipeline.h"
#include "tests/compiler/pass_test.h"
#include "tests/support/random_graph.h"

namespace stepc::test {
namespace {

bool same_number(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

void check_same(const TensorMap& before, const TensorMap& after) {
  REQUIRE(before.size() == after.size());
  for (const auto& [name, tensor] : before) {
    CAPTURE(name);
    REQUIRE(after.contains(name));
    const Tensor& other = after.at(name);
    REQUIRE(tensor.type == other.type);
    CHECK(std::equal(tensor.data.begin(), tensor.data.end(), other.data.begin(), other.data.end(), same_number));
  }
}

struct Outcome {
  TensorMap outputs;
  TensorMap persistents;
};

Outcome outcome(const Module& module, uint64_t seed) {
  Outcome result{{}, random_persistents(module, seed)};
  auto outputs =
      evaluate(module.programs[0], result.persistents, random_inputs(module.programs[0], seed), Precision::f32);
  REQUIRE_MESSAGE(outputs.has_value(), (outputs ? "" : outputs.error().text()));
  result.outputs = *outputs;
  return result;
}

void check_verifies(const Module& module) {
  const Status status = verify(module);
  REQUIRE_MESSAGE(status.has_value(), (status ? "" : status.error().text()) << "\n" << print_module(module));
}

void simplify(Program& program) {
  fold(program);
  cse(program);
  dce(program);
}

// The inputs are drawn in the order of the input nodes, which no pass changes.
void check_preserves(void (*pass)(Program&), const Module& before, uint64_t seed) {
  Module after = before;
  pass(after.programs[0]);
  check_verifies(after);
  const Outcome expected = outcome(before, seed);
  const Outcome found = outcome(after, seed);
  check_same(expected.outputs, found.outputs);
  check_same(expected.persistents, found.persistents);
  if (pass == simplify) return;  // cse can make arms of a select equal, which fold would then take
  const std::string once = print_module(after);
  pass(after.programs[0]);
  CHECK(print_module(after) == once);
}

// No gradient rule takes attention's log-sum-exp (autodiff_rules_structured.cpp), and random graphs do read it.
bool reads_log_sum_exp(const Program& program) {
  for (const Node& node : program.nodes)
    for (ValueId id : node.operands) {
      const Node& from = program.producer(id);
      if (from.op == Op::attention && node.op != Op::attention_grad && id == from.results[1]) return true;
    }
  return false;
}

// Appends the gradients of a sum of everything real that the graph gives, with respect to all that it takes.
Module with_gradients(uint64_t seed, int nodes) {
  Module module = random_graph(seed, nodes);
  while (reads_log_sum_exp(module.programs[0])) module = random_graph(seed += 100000, nodes);
  GraphBuilder b(module, "main");
  const Program before = b.program();
  ValueId loss = b.constant(0, {Dtype::f32, {}});
  std::vector<ValueId> wrt;
  for (const Node& node : before.nodes) {
    if (node.op == Op::output && b.type(node.operands[0]).dtype != Dtype::pred) {
      const ValueId x = b.cast(node.operands[0], Dtype::f32);
      std::vector<int64_t> axes(b.shape(x).size());
      for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
      loss = b.add(loss, b.reduce(Op::reduce_sum, x, axes));
    }
    const bool is_leaf = node.op == Op::input || node.op == Op::param || node.op == Op::state;
    if (is_leaf && (b.type(node.results[0]).dtype == Dtype::f32 || b.type(node.results[0]).dtype == Dtype::bf16))
      wrt.push_back(node.results[0]);
  }
  const std::vector<ValueId> gradients = differentiate(b, loss, wrt);
  for (size_t i = 0; i < wrt.size(); ++i) {
    const bool is_param = b.program().producer(wrt[i]).op == Op::param;
    CHECK(b.shape(gradients[i]) == b.shape(wrt[i]));
    CHECK(b.type(gradients[i]).dtype == (is_param ? Dtype::f32 : b.type(wrt[i]).dtype));
    b.output("gradient." + std::to_string(i), gradients[i]);
  }
  check_verifies(module);
  return module;
}

TEST_CASE("fold, cse and dce preserve random graphs to the bit") {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    const Module module = random_graph(1000 + seed, 5 + static_cast<int>(seed));
    for (auto pass : {fold, cse, dce, simplify}) check_preserves(pass, module, seed);
  }
}

TEST_CASE("fold, cse and dce preserve gradients of random graphs to the bit") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const Module module = with_gradients(2000 + seed, 5 + static_cast<int>(seed) / 2);
    for (auto pass : {fold, cse, dce, simplify}) check_preserves(pass, module, seed);
  }
}

TEST_CASE("passes do not make graphs larger") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Module module = with_gradients(3000 + seed, 30);
    const size_t before = module.programs[0].nodes.size();
    simplify(module.programs[0]);
    CHECK(module.programs[0].nodes.size() <= before);
  }
}

TEST_CASE("split_column_sum stays within the rounding of its partial sums") {
  for (const Shape& shape : {Shape{640, 3}, Shape{65, 7}, Shape{10, 12, 3}, Shape{4099, 2}, Shape{8192}}) {
    Module module = {"sums", {}, {}};
    GraphBuilder b(module, "main");
    const ValueId x = b.input("x", {Dtype::f32, shape});
    b.output("y",
             b.reduce(Op::reduce_sum, x, shape.size() == 3 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}));
    Module split = module;
    split_column_sum(split.programs[0]);
    check_verifies(split);
    const Outcome expected = outcome(module, 1);
    const Outcome found = outcome(split, 1);
    // |x| is at most 2, so a partial sum of n is rounded by at most 2^-24 * 2n.
    const double bound = std::ldexp(2.0 * static_cast<double>(numel(shape)), -23);
    for (size_t i = 0; i < expected.outputs.at("y").data.size(); ++i)
      CHECK(std::abs(expected.outputs.at("y").data[i] - found.outputs.at("y").data[i]) <= bound);
  }
}

TEST_CASE("the pipeline takes any graph, with any one pass left out") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Module module = with_gradients(4000 + seed, 25);
    for (const Pass& left_out : passes()) {
      Module after = module;
      const Status status = run_passes(after, {{std::string(left_out.name)}, "", {}});
      CHECK(status.has_value());
    }
  }
}

}  // namespace
}  // namespace stepc::test
