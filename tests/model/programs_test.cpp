// The model's programs, run by the reference evaluator.
#include "model/programs.h"

#include <cmath>

#include "compiler/pipeline.h"
#include "ir/graph/verify.h"
#include "model/parameters.h"
#include "tests/model/model_run.h"

namespace stepc {
namespace {

using test::ModelRun;
using test::small_config;

TEST_CASE("every program of every preset verifies") {
  for (std::string_view name : preset_names())
    for (int64_t accumulation : {1, 2}) {
      CAPTURE(name);
      Config config = *preset_config(name);
      config.train.accumulation = accumulation;
      config.train.clip = accumulation == 2 ? 1.0 : 0.0;
      const Module module = build_module(config, differentiate);
      const Status status = verify(module);
      CHECK_MESSAGE(status.has_value(), status.error().text());
      CHECK((module.find_program("step") != nullptr) == (accumulation == 1));
      CHECK((module.find_program("update") != nullptr) == (accumulation == 2));
      CHECK(module.find_program("sample") != nullptr);
    }
  CHECK(build_module(small_config(), nullptr).programs.size() == 3);
}

TEST_CASE("initial values: range, padding, zeros and ones") {
  ModelRun run(small_config(), differentiate);
  for (const ParameterInfo& parameter : parameter_table(small_config().model)) {
    CAPTURE(parameter.name);
    const Tensor& tensor = run.tensors().at(parameter.name);
    if (parameter.fan_in == 0) {
      for (double x : tensor.data) CHECK(x == 1.0);
      continue;
    }
    const double bound = 1 / std::sqrt(static_cast<double>(parameter.fan_in));
    double sum = 0, squares = 0;
    for (double x : tensor.data) {
      CHECK(std::abs(x) <= bound * 1.01);
      sum += x / bound;
      squares += x * x / (bound * bound);
    }
    const double count = parameter.term == ParameterTerm::head ? 12 * 61 : static_cast<double>(tensor.data.size());
    CHECK(std::abs(sum / count) < 3 / std::sqrt(3 * count));
    CHECK(squares / count == doctest::Approx(1.0 / 3).epsilon(3 / std::sqrt(count)));
    for (double x : run.tensors().at(first_moment_name(parameter.name)).data) CHECK(x == 0.0);
  }
  const Tensor& head = run.tensors().at("head");
  for (size_t i = 0; i < head.data.size(); ++i)
    if (i % 64 >= 61) CHECK(head.data[i] == 0.0);
}

TEST_CASE("the loss at the start is ln V + 1/6") {
  Config config = small_config();
  config.model.dim = 48;
  config.model.head_dim = 24;
  config.train.batch = 40;
  ModelRun run(config, nullptr);
  std::mt19937 random(1);
  const Tensor tokens = test::random_ids(random, config, 40), targets = test::random_ids(random, config, 40);
  const double loss = run.run("eval", {{"tokens", tokens}, {"targets", targets}}).at("loss").data[0];
  CHECK(loss == doctest::Approx(std::log(61.0) + 1.0 / 6).epsilon(0.03));
}

TEST_CASE("a step lowers the loss of its own batch, dense or routed") {
  for (int64_t experts : {1, 4}) {
    Config config = small_config();
    config.model.experts = experts;
    config.model.top = std::min<int64_t>(2, experts);
    config.train.lr = 1e-2;
    ModelRun run(config, differentiate);
    std::mt19937 random(2);
    const TensorMap ids{{"tokens", test::random_ids(random, config, 3)},
                        {"targets", test::random_ids(random, config, 3)}};
    std::vector<double> losses;
    for (int64_t step = 0; step < 4; ++step)
      losses.push_back(run.run("step", run.with_scalars("step", ids, step)).at("loss").data[0]);
    CAPTURE(experts);
    CHECK(losses[3] < losses[0] - 0.2);
  }
}

TEST_CASE("sampled logits are those of evaluation and blind to later tokens") {
  Config config = small_config();
  config.model.capacity_factor = 2.0;  // nothing dropped in eval either
  config.train.batch = 1;
  ModelRun run(config, nullptr);
  std::mt19937 random(3);
  const Tensor tokens = test::random_ids(random, config, 1), targets = test::random_ids(random, config, 1);
  double sum = 0;
  for (int64_t position = 0; position < config.model.seq; ++position) {
    Tensor seen = tokens;
    for (int64_t later = position + 1; later < config.model.seq; ++later) seen.data[static_cast<size_t>(later)] = 5;
    const Tensor at{{Dtype::i32, {1}}, {static_cast<double>(position)}};
    const Tensor logits = run.run("sample", {{"tokens", seen}, {"position", at}}).at("logits");
    REQUIRE(logits.type.shape == Shape{61});
    double total = 0;
    for (double logit : logits.data) total += std::exp(logit);
    sum += std::log(total) - logits.data[static_cast<size_t>(targets.data[static_cast<size_t>(position)])];
  }
  const double loss = run.run("eval", {{"tokens", tokens}, {"targets", targets}}).at("loss").data[0];
  CHECK(sum / static_cast<double>(config.model.seq) == doctest::Approx(loss).epsilon(1e-6));
}

TEST_CASE("two half batches of the same tokens update like one step, to the bit") {
  Config config = small_config();
  config.train.clip = 0.5;
  ModelRun whole(config, differentiate);
  config.train.accumulation = 2;
  ModelRun parts(config, differentiate);
  std::mt19937 random(4);
  const TensorMap ids{{"tokens", test::random_ids(random, config, 3)},
                      {"targets", test::random_ids(random, config, 3)}};
  for (int64_t step = 0; step < 2; ++step) {
    whole.run("step", whole.with_scalars("step", ids, step));
    for (int part = 0; part < 2; ++part) parts.run("micro_step", parts.with_scalars("micro_step", ids, step));
    const double norm = parts.run("update", parts.with_scalars("update", {}, step)).at("grad_norm").data[0];
    CHECK(norm > 0.5);  // the clip is exercised
  }
  for (const auto& [name, tensor] : whole.tensors()) {
    CAPTURE(name);
    CHECK(tensor.data == parts.tensors().at(name).data);
  }
  for (double x : parts.tensors().at("blocks.0.qkv.grad").data) CHECK(x == 0.0);
}

TEST_CASE("a loss that is not finite changes nothing") {
  ModelRun run(small_config(), differentiate);
  run.tensors().at("final_norm").data[3] = std::nan("");
  const TensorMap before = run.tensors();
  std::mt19937 random(5);
  const TensorMap ids{{"tokens", test::random_ids(random, small_config(), 3)},
                      {"targets", test::random_ids(random, small_config(), 3)}};
  CHECK(std::isnan(run.run("step", run.with_scalars("step", ids, 0)).at("loss").data[0]));
  for (const auto& [name, tensor] : before) {
    CAPTURE(name);
    const std::vector<double>& after = run.tensors().at(name).data;
    for (size_t i = 0; i < after.size(); ++i)
      CHECK((after[i] == tensor.data[i] || (std::isnan(after[i]) && std::isnan(tensor.data[i]))));
  }
}

double largest_difference(const TensorMap& a, const TensorMap& b) {
  double largest = 0;
  for (const auto& [name, tensor] : a)
    for (size_t i = 0; i < tensor.data.size(); ++i)
      largest = std::max(largest, std::abs(tensor.data[i] - b.at(name).data[i]));
  return largest;
}

TEST_CASE("the passes keep what the model's programs compute") {
  Config config = small_config();
  config.train.clip = 0.5;
  Module optimized = build_module(config, differentiate);
  const Status passed = run_passes(optimized);
  REQUIRE_MESSAGE(passed.has_value(), passed.error().text());
  ModelRun plain(config, differentiate), passes(config, optimized);
  CHECK(largest_difference(plain.tensors(), passes.tensors()) == 0);
  std::mt19937 random(6);
  const TensorMap ids{{"tokens", test::random_ids(random, config, 3)},
                      {"targets", test::random_ids(random, config, 3)}};
  const TensorMap one = plain.run("step", plain.with_scalars("step", ids, 0));
  const TensorMap other = passes.run("step", passes.with_scalars("step", ids, 0));
  CHECK(largest_difference(one, other) < 1e-6);
  CHECK(largest_difference(plain.tensors(), passes.tensors()) < 1e-6);
}

TEST_CASE("equal loads: choices go round the experts, and the router still learns") {
  Config config = small_config();
  config.model.routing = RoutingMode::equal;  // 21 tokens, 42 assignments, 4 experts
  ModelRun run(config, differentiate);
  std::mt19937 random(3);
  const TensorMap ids{{"tokens", test::random_ids(random, config, 3)},
                      {"targets", test::random_ids(random, config, 3)}};
  const std::vector<double> router = run.tensors().at("blocks.0.router").data;
  const TensorMap outputs = run.run("step", run.with_scalars("step", ids, 0));
  for (const char* layer : {"count.0", "count.1"}) CHECK(outputs.at(layer).data == std::vector<double>{11, 11, 10, 10});
  CHECK(run.tensors().at("blocks.0.router").data != router);
}

TEST_CASE("the filled slots of experts or all of them: the same training, to the bit") {
  Config config = small_config();
  ModelRun counted(config, differentiate);
  config.model.expert_rows = ExpertRows::all;
  ModelRun all(config, differentiate);
  std::mt19937 random(3);
  const TensorMap ids{{"tokens", test::random_ids(random, config, 3)},
                      {"targets", test::random_ids(random, config, 3)}};
  for (int64_t step = 0; step < 3; ++step) {
    const TensorMap outputs = counted.run("step", counted.with_scalars("step", ids, step));
    for (double count : outputs.at("count.0").data) CHECK(count != expert_capacity(config.model, 21));
    all.run("step", all.with_scalars("step", ids, step));
  }
  CHECK(largest_difference(counted.tensors(), all.tensors()) == 0);
}

TEST_CASE("the form of attention's gradient reaches the op") {
  for (const bool atomic : {false, true}) {
    Config config = small_config();
    REQUIRE(
        override_config(config, atomic ? "attention_gradient=atomic" : "attention_gradient=deterministic").has_value());
    const Module module = build_module(config, differentiate);
    int64_t found = 0;
    for (const Node& node : module.find_program("step")->nodes)
      if (node.op == Op::attention_grad) found += node.attrs.flag(AttrKey::atomic) == atomic;
    CHECK(found == config.model.layers);
  }
}

TEST_CASE("kept share") {
  CHECK(kept_share({3, 5, 0, 4}, 4) == doctest::Approx(11.0 / 12));
  CHECK(kept_share({0, 0}, 4) == 1.0);
}

}  // namespace
}  // namespace stepc
