// The module and its training programs.
#include <algorithm>

#include "ir/support/check.h"
#include "model/forward.h"
#include "model/layers.h"
#include "model/parameters.h"
#include "model/programs.h"

namespace stepc {
namespace {

constexpr std::string_view kLossSum = "loss_sum";

void declare_persistents(Module& module, const Config& config, bool trains) {
  const std::vector<ParameterInfo> table = parameter_table(config.model);
  for (const ParameterInfo& parameter : table)
    module.persistents.push_back({parameter.name, parameter.type, true, Arena::weights});
  if (!trains) return;
  for (const ParameterInfo& parameter : table) {
    const TensorType wide{Dtype::f32, parameter.type.shape};
    module.persistents.push_back({first_moment_name(parameter.name), wide, false, Arena::optimizer});
    module.persistents.push_back({second_moment_name(parameter.name), wide, false, Arena::optimizer});
  }
  if (config.train.accumulation == 1) return;
  for (const ParameterInfo& parameter : table)
    module.persistents.push_back(
        {gradient_name(parameter.name), {Dtype::f32, parameter.type.shape}, false, Arena::gradients});
  module.persistents.push_back({std::string(kLossSum), {Dtype::f32, {}}, false, Arena::gradients});
}

std::vector<ValueId> parameters(GraphBuilder& g, const ModelConfig& model) {
  std::vector<ValueId> values;
  for (const ParameterInfo& parameter : parameter_table(model)) values.push_back(g.persistent(parameter.name));
  return values;
}

ValueId sum(GraphBuilder& g, const std::vector<ValueId>& values) {
  ValueId total = values[0];
  for (size_t i = 1; i < values.size(); ++i) total = g.add(total, values[i]);
  return total;
}

struct BatchGradients {
  ValueId total;  // the loss that was differentiated, before division by the accumulation
  std::vector<ValueId> gradients;
};

// Forward and backward of one batch, its metrics as outputs.
BatchGradients batch_gradients(GraphBuilder& g, const Config& config, const Differentiate& differentiate,
                               bool tells_choices) {
  const ModelConfig& model = config.model;
  const TensorType ids{Dtype::i32, {config.train.batch, model.seq}};
  const ValueId tokens = g.input("tokens", ids);
  const ValueId targets = g.input("targets", ids);
  const Forward result = forward(g, model, tokens, expert_capacity(model, numel(ids.shape)));
  const ValueId loss = token_loss(g, model, result, targets);
  g.output("loss", loss);
  for (size_t layer = 0; layer < result.counts.size(); ++layer)
    g.output(fmt::format("count.{}", layer), result.counts[layer]);
  for (size_t layer = 0; tells_choices && layer < result.choices.size(); ++layer)
    g.output(fmt::format("choices.{}", layer), result.choices[layer]);
  ValueId total = loss;
  if (!is_dense(model)) {
    const ValueId aux = sum(g, result.balances);
    g.output("aux", aux);
    total = g.add(loss, g.mul(aux, g.input("aux_coefficient", {Dtype::f32, {}})));
  }
  const auto parts = static_cast<double>(config.train.accumulation);
  const ValueId differentiated = config.train.accumulation == 1 ? total : g.mul(total, 1.0 / parts);
  return {total, differentiate(g, differentiated, parameters(g, model))};
}

// min(1, clip / norm) times each gradient; the norm is a metric.
ValueId clip_gradients(GraphBuilder& g, double clip, std::vector<ValueId>& gradients) {
  g.set_name_hint("clip");
  std::vector<ValueId> squares;
  for (ValueId gradient : gradients) squares.push_back(sum_of_squares(g, gradient));
  const ValueId norm = g.unary(Op::sqrt, sum(g, squares));
  g.output("grad_norm", norm);
  const TensorType scalar{Dtype::f32, {}};
  const ValueId scale = g.binary(Op::min, g.constant(1, scalar), g.div(g.constant(clip, scalar), norm));
  for (ValueId& gradient : gradients) gradient = g.mul(gradient, scale);
  return norm;
}

// AdamW over all parameters, a no-op where the loss or the norm is not finite.
void update_parameters(GraphBuilder& g, const Config& config, ValueId loss, std::vector<ValueId> gradients) {
  g.set_phase(Phase::optimizer);
  g.set_name_hint("finite");
  ValueId apply = g.unary(Op::is_finite, loss);
  if (config.train.clip > 0) {
    const ValueId norm = clip_gradients(g, config.train.clip, gradients);
    apply = g.binary(Op::logical_and, apply, g.unary(Op::is_finite, norm));
  }
  const TensorType scalar{Dtype::f32, {}};
  const AdamWScalars scalars{g.input("lr", scalar), g.input("inv_bias1", scalar), g.input("inv_bias2", scalar), apply};
  const std::vector<ParameterInfo> table = parameter_table(config.model);
  STEPC_CHECK(gradients.size() == table.size(), "{} gradients of {} parameters", gradients.size(), table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const std::string& name = table[i].name;
    g.set_name_hint(name + ".new");
    const AdamWState old{g.persistent(name), g.persistent(first_moment_name(name)),
                         g.persistent(second_moment_name(name))};
    const AdamWState updated = adamw(g, config.train, old, gradients[i], table[i].decay, scalars);
    g.assign(name, updated.parameter);
    g.assign(first_moment_name(name), updated.moment1);
    g.assign(second_moment_name(name), updated.moment2);
  }
}

void build_step(Module& module, const Config& config, const Differentiate& differentiate, bool tells_choices) {
  GraphBuilder g(module, "step");
  BatchGradients batch = batch_gradients(g, config, differentiate, tells_choices);
  update_parameters(g, config, batch.total, std::move(batch.gradients));
}

void build_micro_step(Module& module, const Config& config, const Differentiate& differentiate, bool tells_choices) {
  GraphBuilder g(module, "micro_step");
  const BatchGradients batch = batch_gradients(g, config, differentiate, tells_choices);
  g.set_phase(Phase::backward);
  g.set_name_hint("sum");
  g.assign(kLossSum, g.add(g.persistent(kLossSum), batch.total));
  const std::vector<ParameterInfo> table = parameter_table(config.model);
  for (size_t i = 0; i < table.size(); ++i) {
    const std::string name = gradient_name(table[i].name);
    g.set_name_hint(name);
    g.assign(name, g.add(g.persistent(name), batch.gradients[i]));
  }
}

void build_update(Module& module, const Config& config) {
  GraphBuilder g(module, "update");
  g.set_phase(Phase::optimizer);
  std::vector<ValueId> gradients;
  for (const ParameterInfo& parameter : parameter_table(config.model))
    gradients.push_back(g.persistent(gradient_name(parameter.name)));
  update_parameters(g, config, g.persistent(kLossSum), gradients);
  g.set_name_hint("zero");
  for (const Persistent& persistent : module.persistents)
    if (persistent.arena == Arena::gradients) g.assign(persistent.name, g.constant(0, persistent.type));
}

}  // namespace

Module build_module(const Config& config, const Differentiate& differentiate, bool tells_choices) {
  const Status valid = validate(config);
  STEPC_CHECK(valid.has_value(), "{}", valid.error().text());
  Module module;
  module.name = config.preset;
  declare_persistents(module, config, differentiate != nullptr);
  build_init(module, config);
  if (differentiate && config.train.accumulation == 1) build_step(module, config, differentiate, tells_choices);
  if (differentiate && config.train.accumulation > 1) {
    build_micro_step(module, config, differentiate, tells_choices);
    build_update(module, config);
  }
  build_eval(module, config);
  build_sample(module, config);
  return module;
}

Module build_gradient_module(const Config& config, const Differentiate& differentiate) {
  Config whole = config;
  whole.train.accumulation = 1;  // the gradients are those of one batch
  Module module;
  module.name = config.preset;
  declare_persistents(module, whole, false);
  build_init(module, whole);
  GraphBuilder g(module, "gradients");
  const BatchGradients batch = batch_gradients(g, whole, differentiate, true);
  const std::vector<ParameterInfo> table = parameter_table(whole.model);
  for (size_t i = 0; i < table.size(); ++i) g.output(table[i].name, batch.gradients[i]);
  return module;
}

double kept_share(const std::vector<int64_t>& counts, int64_t capacity) {
  int64_t kept = 0;
  int64_t all = 0;
  for (int64_t count : counts) {
    kept += std::min(count, capacity);
    all += count;
  }
  return all == 0 ? 1.0 : static_cast<double>(kept) / static_cast<double>(all);
}

}  // namespace stepc
