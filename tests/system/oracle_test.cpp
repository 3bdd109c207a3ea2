// Preset tiny, compiled, beside the same model written by hand in PyTorch (tools/oracle): routing choices first,
// then losses, every gradient and three AdamW updates. Two modules run side by side: `step` as it trains, whose
// gradients never leave their kernels, and one that also puts out gradients and routing.
//
// Both sides round to bf16 at the same places but sum in other orders, so some elements fall to the other side of
// a rounding boundary, and what they move adds up over the layers: the oracle's own gradients differ by 0.2 to
// 0.8 % between f32 and f64 arithmetic. tests/model/oracle_test.cpp, on a small model, is sharp enough to see a
// rounding point that is missing; differential_test.cpp holds compiled code to the evaluator there.
#include "tests/support/oracle.h"

#include <algorithm>

#include "model/parameters.h"
#include "tests/model/model_run.h"
#include "tests/support/skip.h"
#include "tests/system/machine.h"

namespace stepc {
namespace {

using test::check_close;
using test::Machine;
constexpr int64_t kSteps = 3;
constexpr double kParameter = 1e-2;
// From equal weights at step 0; Adam's first steps then magnify differences where gradients are near 0.
constexpr double gradient_tolerance(int64_t step) { return step == 0 ? 1.5e-2 : 3e-2; }

// The model whose step also puts out every gradient and what the routers chose.
Module telling_module(const Config& config) {
  const std::vector<ParameterInfo> table = parameter_table(config.model);
  const auto tell = [&](GraphBuilder& g, ValueId loss, const std::vector<ValueId>& wrt) {
    const std::vector<Node> nodes = g.program().nodes;
    int layer = 0;
    for (const Node& node : nodes) {
      if (node.op != Op::route) continue;
      g.output(fmt::format("expert.{}", layer), node.results[0]);
      g.output(fmt::format("slot.{}", layer++), node.results[1]);
    }
    const std::vector<ValueId> gradients = stepc::differentiate(g, loss, wrt);
    for (size_t i = 0; i < gradients.size(); ++i) g.output("grad." + table[i].name, gradients[i]);
    return gradients;
  };
  Module module = build_module(config, tell);
  std::erase_if(module.programs, [](const Program& program) { return program.name != "step"; });
  return module;
}

Module plain_module(const Config& config) {
  Module module = build_module(config, stepc::differentiate);
  std::erase_if(module.programs,
                [](const Program& program) { return program.name != "step" && program.name != "init"; });
  return module;
}

TensorMap step_inputs(const Config& config, const TensorMap& given, int64_t step) {
  TensorMap inputs;
  const Shape shape = {config.train.batch, config.model.seq};
  for (const char* name : {"tokens", "targets"}) {
    const auto from = given.at(name).data.begin() + step * numel(shape);
    inputs[name] = {{Dtype::i32, shape}, std::vector<double>(from, from + numel(shape))};
  }
  const StepScalars scalars = step_scalars(config.train, step);
  inputs["lr"] = test::scalar(scalars.lr);
  inputs["inv_bias1"] = test::scalar(scalars.inv_bias1);
  inputs["inv_bias2"] = test::scalar(scalars.inv_bias2);
  inputs["aux_coefficient"] = test::scalar(scalars.aux_coefficient);
  return inputs;
}

// A token whose second and third expert are as good as equally likely may be sent to either: one in a
// hundred from equal weights, a few later, and only such. The oracle was told our choices, so that such a token moves
// nothing else.
void check_routing(const TensorMap& outputs, const TensorMap& oracle, const Config& config, int64_t step) {
  for (int64_t layer = 0; layer < config.model.layers; ++layer) {
    CAPTURE(step);
    CAPTURE(layer);
    for (const char* key : {"slot", "count"})
      REQUIRE(outputs.at(fmt::format("{}.{}", key, layer)).data ==
              oracle.at(fmt::format("{}.{}.{}", step, key, layer)).data);
    const std::vector<double>& given_away = oracle.at(fmt::format("{}.given_away.{}", step, layer)).data;
    const auto otherwise = std::count_if(given_away.begin(), given_away.end(), [](double p) { return p > 0; });
    CHECK(otherwise * (step == 0 ? 100 : 20) < static_cast<int64_t>(given_away.size()));
    CHECK(*std::max_element(given_away.begin(), given_away.end()) < 1e-2);
  }
}

TensorMap state_of(const Machine& machine) {
  TensorMap state;
  for (const PersistentPlacement& tensor : machine.bundle().persistents.tensors)
    state[tensor.name] = machine.read(tensor.name);
  return state;
}

// Outputs and the state after a step, of the step as it trains and of the one that tells.
struct Step {
  TensorMap outputs, told;
  TensorMap state, told_state;
};

void check_state(const TensorMap& state, const TensorMap& oracle, const Config& config, int64_t step) {
  const auto answer = [&](const std::string& key) { return oracle.at(fmt::format("{}.{}", step, key)); };
  for (const ParameterInfo& parameter : parameter_table(config.model)) {
    const std::string& name = parameter.name;
    CAPTURE(step);
    check_close(name, state.at(name), answer("param." + name), kParameter);
    check_close("m of " + name, state.at(first_moment_name(name)), answer("m." + name), gradient_tolerance(step));
    check_close("v of " + name, state.at(second_moment_name(name)), answer("v." + name), 2 * gradient_tolerance(step));
  }
}

void check_step(const Step& at, const TensorMap& oracle, const Config& config, int64_t step) {
  check_routing(at.told, oracle, config, step);
  CAPTURE(step);
  const auto answer = [&](const std::string& key) { return oracle.at(fmt::format("{}.{}", step, key)); };
  for (const TensorMap* side : {&at.outputs, &at.told}) {
    check_close("loss", side->at("loss"), answer("loss"), 1e-4);
    check_close("aux", side->at("aux"), answer("aux"), 1e-3);
  }
  for (const ParameterInfo& parameter : parameter_table(config.model))
    check_close("gradient of " + parameter.name, at.told.at("grad." + parameter.name), answer("grad." + parameter.name),
                gradient_tolerance(step));
  check_state(at.state, oracle, config, step);
  check_state(at.told_state, oracle, config, step);
}

TEST_CASE("PyTorch computes the losses, gradients and updates of the compiled tiny model") {
  const std::string python = test::python_with_torch();
  if (python.empty()) return test::skip("system-oracle", "needs python3-torch");
  Config config = preset_config("tiny").value();
  config.train.warmup = 0;  // the rate of the first steps would be too small to show an error
  Machine plain(plain_module(config));
  Machine telling(telling_module(config));
  plain.run("init", {{"seed", test::scalar(5, Dtype::i32)}});
  TensorMap given;
  for (const ParameterInfo& parameter : parameter_table(config.model))
    given[parameter.name] = plain.read(parameter.name);
  for (const PersistentPlacement& tensor : plain.bundle().persistents.tensors)
    telling.write(tensor.name, plain.read(tensor.name));
  std::mt19937 random(11);
  for (const char* name : {"tokens", "targets"}) {
    given[name] = test::random_ids(random, config, config.train.batch * kSteps);
    given[name].type.shape = {kSteps, config.train.batch, config.model.seq};
  }
  std::vector<Step> steps;
  for (int64_t step = 0; step < kSteps; ++step) {
    const TensorMap inputs = step_inputs(config, given, step);
    steps.push_back({plain.run("step", inputs), telling.run("step", inputs), state_of(plain), state_of(telling)});
    for (int64_t layer = 0; layer < config.model.layers; ++layer)
      given[fmt::format("{}.expert.{}", step, layer)] = steps.back().told.at(fmt::format("expert.{}", layer));
  }
  const TensorMap oracle = test::ask_oracle(python, config_json(config), given);
  for (int64_t step = 0; step < kSteps; ++step) check_step(steps[static_cast<size_t>(step)], oracle, config, step);
}

}  // namespace
}  // namespace stepc
