// Fusion on the model's own programs: the same bits of every result, and kernels as few and as lean as they
// should be.
#include <bit>
#include <cmath>

#include "compiler/graph/autodiff.h"
#include "compiler/graph/fuse_check.h"
#include "compiler/pipeline.h"
#include "compiler/plan/assign.h"
#include "ir/graph/fused.h"
#include "tests/model/model_run.h"
#include "tests/support/random_graph.h"

namespace stepc::test {
namespace {

void check_same_bits(const TensorMap& a, const TensorMap& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    const std::vector<double>& other = b.at(name).data;
    REQUIRE(tensor.data.size() == other.size());
    for (size_t i = 0; i < other.size(); ++i) {
      const bool same = std::bit_cast<uint64_t>(tensor.data[i]) == std::bit_cast<uint64_t>(other[i]);
      REQUIRE_MESSAGE((same || (std::isnan(tensor.data[i]) && std::isnan(other[i]))), name << "[" << i << "]");
    }
  }
}

// Token ids and positions must be in range, which random integers are not.
TensorMap valid_inputs(const Program& program) {
  TensorMap inputs = random_inputs(program, 5);
  for (auto& [name, tensor] : inputs)
    if (tensor.type.dtype == Dtype::i32)
      for (double& x : tensor.data) x = std::abs(x) < 7 ? std::abs(x) : 0;
  return inputs;
}

TEST_CASE("fusion keeps every result of the model's programs to the bit") {
  for (int64_t accumulation : {1, 2}) {
    Config config = small_config();
    config.train.accumulation = accumulation;
    config.train.clip = accumulation == 2 ? 1.0 : 0.0;
    ModelRun run(config, differentiate);
    Module after = run.module();
    REQUIRE(run_passes(after, {{"split_column_sum", "concat_pads"}, "", {}}).has_value());
    for (size_t i = 0; i < after.programs.size(); ++i) {
      CAPTURE(after.programs[i].name);
      const Status checked = check_groups(after.programs[i]);
      REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
      const TensorMap inputs = valid_inputs(after.programs[i]);
      TensorMap before_tensors = run.tensors();
      TensorMap after_tensors = before_tensors;
      const auto expected = evaluate(run.module().programs[i], before_tensors, inputs);
      const auto found = evaluate(after.programs[i], after_tensors, inputs);
      REQUIRE(expected.has_value());
      REQUIRE(found.has_value());
      check_same_bits(*expected, *found);
      check_same_bits(before_tensors, after_tensors);
    }
  }
}

Module fused_preset(std::string_view preset) {
  Module module = build_module(preset_config(preset).value(), differentiate);
  REQUIRE(run_passes(module).has_value());
  for (const Program& program : module.programs) {
    const Status checked = check_groups(program);
    REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  }
  return module;
}

int count_kernels(const Program& program, Template schedule) {
  int count = 0;
  for (const Group& group : program.groups) count += group.schedule == schedule;
  return count;
}

TEST_CASE("the step of tiny: few kernels, no wide f32 activations, updates in place") {
  const Module module = fused_preset("tiny");
  const Program& step = *module.find_program("step");
  const ModelConfig model = preset_config("tiny")->model;
  CHECK(step.groups.size() <= static_cast<size_t>(38 * model.layers + 10));
  // Products of a layer: qkv, out, router, gate_up and down, each with two gradients; then the head's.
  CHECK(count_kernels(step, Template::matmul) == 15 * model.layers + 3);
  // Norms and their gradients, the gradient of the combination; the loss.
  CHECK(count_kernels(step, Template::row) <= 5 * model.layers + 4);
  int64_t bytes = 0;
  for (const Group& group : step.groups) {
    bytes += group_bytes(step, group);
    for (ValueId result : group_results(step, group)) {
      const Phase phase = step.producer(result).phase;
      const bool activation = phase != Phase::optimizer && step.type(result).dtype == Dtype::f32;
      const int64_t tokens = preset_config("tiny")->train.batch * model.seq;
      if (activation) CHECK_MESSAGE(numel(step.type(result).shape) < tokens * model.dim, step.value(result).name);
    }
  }
  CHECK(bytes < 310'000'000);
  const std::vector<bool> in_place = in_place_assigns(step, unit_order(step).value());
  for (size_t n = 0; n < step.nodes.size(); ++n)
    if (step.nodes[n].op == Op::assign) CHECK_MESSAGE(in_place[n], step.nodes[n].attrs.text(AttrKey::name));
}

}  // namespace
}  // namespace stepc::test
