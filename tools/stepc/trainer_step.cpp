// One update of the weights: the program `step`, or micro steps and `update`. It is started, and its outputs looked at
// while the device is still at the rest of it; then the next may be started behind it. What the host decides by the
// outputs (is the loss a number?) is decided before, so that a bad step is followed by none.
#include <cmath>
#include <cstring>

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

// The outputs of the update that was started, with the rest of its parts. The loss is the mean of the micro steps', so
// that one that is no number shows; the other outputs are those of the last.
Result<Executor::Outputs> Trainer::step_outputs(const RunOptions& how) {
  Executor& executor = session_.executor();
  STEPC_ASSIGN(Executor::Outputs outputs, executor.outputs(flight_.back()));
  if (!accumulates()) return outputs;
  double loss_sum = scalar_of(outputs, "loss");
  while (part_ < config_.train.accumulation) {
    STEPC_TRY(start_part(how));
    STEPC_ASSIGN(outputs, executor.outputs(flight_.back()));
    loss_sum += scalar_of(outputs, "loss");
  }
  const auto mean = static_cast<float>(loss_sum / static_cast<double>(config_.train.accumulation));
  std::memcpy(outputs.at("loss").bytes.data(), &mean, sizeof mean);
  STEPC_TRY(start_part(how));
  STEPC_ASSIGN(Executor::Outputs more, executor.outputs(flight_.back()));
  outputs.merge(more);
  return outputs;
}

Result<Trainer::StepResult> Trainer::step() {
  STEPC_ASSIGN(const auto outputs, step_outputs(run_options()));
  StepResult result;
  result.loss = scalar_of(outputs, "loss");
  if (outputs.contains("aux")) result.aux = scalar_of(outputs, "aux");
  if (outputs.contains("grad_norm")) result.grad_norm = scalar_of(outputs, "grad_norm");
  const int64_t capacity = expert_capacity(config_.model, config_.train.batch * config_.model.seq);
  result.counts = by_layer(outputs, "count");
  result.choices = by_layer(outputs, "choices");
  for (const auto& counts : result.counts) result.kept.push_back(kept_share(counts, capacity));
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
  Result<Executor::Outputs> outputs = status ? step_outputs(check) : tl::unexpected(std::move(status).error());
  if (!outputs) {
    outputs.error().message = fmt::format("step {}: {}", step_ + 1, outputs.error().message);
    return tl::unexpected(std::move(outputs).error());
  }
  std::string values;
  for (const char* name : {"loss", "aux", "grad_norm"})
    if (outputs->contains(name))
      values += fmt::format("{}{} {}", values.empty() ? "" : ", ", name, scalar_of(*outputs, name));
  return system_error("step {}: not all of {} are finite, and no kernel wrote a NaN; weights are those of step {}",
                      step_ + 1, values, step_);
}

}  // namespace stepc
