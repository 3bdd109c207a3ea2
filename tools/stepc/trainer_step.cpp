// One update of the weights: the program `step`, or micro steps and `update`. It is started, and its outputs looked at
// while the device is still at the rest of it; then the next may be started behind it. What the host decides by the
// outputs (is the loss a number?) is decided before, so that a bad step is followed by none.
#include <cmath>

#include "model/programs.h"
#include "model/schedule.h"
#include "tools/stepc/trainer.h"

namespace stepc {
namespace {

// Of a step that changes no weight, since a part of its loss or the gradients' norm is no number.
bool is_bad(double loss, const std::optional<double>& aux, const std::optional<double>& grad_norm) {
  return !std::isfinite(loss) || !std::isfinite(aux.value_or(0)) || !std::isfinite(grad_norm.value_or(0));
}

// Outputs "<name>.<layer>" of all layers.
std::vector<std::vector<int64_t>> by_layer(const Executor::Outputs& outputs, const std::string& name) {
  std::vector<std::vector<int64_t>> layers;
  for (auto found = outputs.find(name + ".0"); found != outputs.end();
       found = outputs.find(fmt::format("{}.{}", name, layers.size()))) {
    const auto values = elements<int32_t>(found->second);
    layers.emplace_back(values.begin(), values.end());
  }
  return layers;
}

}  // namespace

RunOptions Trainer::run_options() const {
  return {.profile = options_.profile || !options_.trace.empty(), .poison = options_.poison};
}

// The next windows, put together while the device is busy.
void Trainer::prepare_batch() {
  if (prepared_ == position_) return;
  const auto ids = static_cast<size_t>(config_.train.batch * config_.model.seq);
  tokens_.resize(ids);
  targets_.resize(ids);
  windows_.fill(position_, config_.train.batch, tokens_, targets_);
  prepared_ = position_;
}

// Starts part `part_` of the update after `step_` others.
Status Trainer::start_part(const RunOptions& how) {
  const StepScalars now = step_scalars(config_.train, step_);
  const ScalarInput lr(static_cast<float>(now.lr)), bias1(static_cast<float>(now.inv_bias1)),
      bias2(static_cast<float>(now.inv_bias2)), aux(static_cast<float>(now.aux_coefficient));
  const bool reads_batch = part_ < config_.train.accumulation;
  Executor::Inputs inputs;
  if (!accumulates() || !reads_batch)
    inputs = {{"lr", lr.view()}, {"inv_bias1", bias1.view()}, {"inv_bias2", bias2.view()}};
  if (reads_batch) {
    prepare_batch();
    const Shape shape = {config_.train.batch, config_.model.seq};
    inputs.insert({{"tokens", ids_view(tokens_, shape)}, {"targets", ids_view(targets_, shape)}});
    if (!is_dense(config_.model)) inputs.emplace("aux_coefficient", aux.view());
    position_ += config_.train.batch;
  }
  const char* const program = !accumulates() ? "step" : reads_batch ? "micro_step" : "update";
  STEPC_ASSIGN(const RunHandle run, session_.executor().start(program, inputs, how));
  flight_.push_back(run);
  ++part_;
  return {};
}

Status Trainer::start_step() {
  part_ = 0;
  STEPC_TRY(start_part(run_options()));
  prepare_batch();
  return {};
}

// Adds what a step, or one part of an accumulated one, has put out: losses are means over the parts, so that one that
// is no number shows; loads are sums, choices follow one another.
void Trainer::add_part(const Executor::Outputs& outputs, StepResult& result) const {
  const auto parts = static_cast<double>(config_.train.accumulation);
  result.loss += scalar_of(outputs, "loss") / parts;
  if (outputs.contains("aux")) result.aux = result.aux.value_or(0) + scalar_of(outputs, "aux") / parts;
  const int64_t capacity = expert_capacity(config_.model, config_.train.batch * config_.model.seq);
  const auto counts = by_layer(outputs, "count"), choices = by_layer(outputs, "choices");
  result.counts.resize(counts.size());
  result.kept.resize(counts.size());
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    std::vector<int64_t>& sums = result.counts[layer];
    sums.resize(counts[layer].size());
    for (size_t e = 0; e < sums.size(); ++e) sums[e] += counts[layer][e];
    result.kept[layer] += kept_share(counts[layer], capacity) / parts;
  }
  result.choices.resize(choices.size());
  for (size_t layer = 0; layer < choices.size(); ++layer)
    result.choices[layer].insert(result.choices[layer].end(), choices[layer].begin(), choices[layer].end());
}

// What the update that was started puts out; the rest of its parts is started on the way.
Result<Trainer::StepResult> Trainer::outcome(const RunOptions& how) {
  Executor& executor = session_.executor();
  StepResult result;
  STEPC_ASSIGN(Executor::Outputs outputs, executor.outputs(flight_.back()));
  add_part(outputs, result);
  while (accumulates() && part_ <= config_.train.accumulation) {
    const bool reads_batch = part_ < config_.train.accumulation;
    STEPC_TRY(start_part(how));
    STEPC_ASSIGN(outputs, executor.outputs(flight_.back()));
    if (reads_batch) add_part(outputs, result);
  }
  if (outputs.contains("grad_norm")) result.grad_norm = scalar_of(outputs, "grad_norm");
  return result;
}

Result<Trainer::StepResult> Trainer::step() {
  STEPC_ASSIGN(StepResult result, outcome(run_options()));
  if (is_bad(result.loss, result.aux, result.grad_norm)) STEPC_TRY(explain_bad_step());
  ++step_;
  return result;
}

// Until the device is done with these runs.
Status Trainer::land(const std::vector<RunHandle>& runs) {
  for (const RunHandle& run : runs) STEPC_TRY(session_.executor().finish(run));
  return {};
}

// The bad step changed no weight; run it again with every kernel's results looked at.
Status Trainer::explain_bad_step() {
  position_ -= config_.train.batch * config_.train.accumulation;
  part_ = 0;
  flight_.clear();
  const RunOptions check = {.check = true};
  Status status = start_part(check);
  Result<StepResult> result = status ? outcome(check) : tl::unexpected(std::move(status).error());
  if (!result) {
    result.error().message = fmt::format("step {}: {}", step_ + 1, result.error().message);
    return tl::unexpected(std::move(result).error());
  }
  std::string values = fmt::format("loss {}", result->loss);
  if (result->aux) values += fmt::format(", aux {}", *result->aux);
  if (result->grad_norm) values += fmt::format(", grad_norm {}", *result->grad_norm);
  return system_error("step {}: not all of {} are finite, and no kernel wrote a NaN; weights are those of step {}",
                      step_ + 1, values, step_);
}

}  // namespace stepc
