#include "tools/stepc/trainer.h"

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "ir/support/file.h"
#include "model/programs.h"
#include "model/schedule.h"
#include "runtime/curve_svg.h"
#include "tools/stepc/profile.h"

namespace stepc {
namespace {

volatile std::sig_atomic_t g_signal = 0;
void remember_signal(int number) { g_signal = number; }

double scalar(const std::map<std::string, HostTensor>& outputs, const std::string& name) {
  return elements<float>(outputs.at(name)).at(0);
}

HostTensorView ids_view(const std::vector<int32_t>& ids, Shape shape) {
  return {{Dtype::i32, std::move(shape)}, {reinterpret_cast<const char*>(ids.data()), ids.size() * 4}};
}

// A resumed run goes on in the data that it was trained on.
Status check_data(const Checkpoint& resume, const Shard& train, const TrainRunOptions& options) {
  const auto& shards = resume.state.shards;
  const std::string hash = train.hash();
  if (shards.size() != 1 || shards[0].sha256 != hash)
    return user_error("{} was trained on another shard than {} (SHA-256 {}, expected {})", resume.path, options.data,
                      hash, shards.empty() ? "none" : shards[0].sha256);
  const auto order = [](bool sequential) { return sequential ? "--sequential" : "shuffled windows"; };
  if (resume.state.sequential != options.sequential)
    return user_error("{} was trained with {}, this run asks for {}", resume.path, order(resume.state.sequential),
                      order(options.sequential));
  return {};
}

}  // namespace

Result<Trainer> Trainer::create(const Config& config, const TrainRunOptions& options, const DeviceOptions& device,
                                const std::optional<Checkpoint>& resume) {
  STEPC_ASSIGN(Shard train, Shard::open(options.data, config.model.vocab));
  std::optional<Shard> held_out;
  if (!options.held_out.empty()) {
    STEPC_ASSIGN(held_out, Shard::open(options.held_out, config.model.vocab));
  }
  if (resume) STEPC_TRY(check_data(*resume, train, options));
  const auto order = options.sequential ? Windows::Order::sequential : Windows::Order::shuffled;
  STEPC_ASSIGN(Windows windows,
               Windows::create(train, config.model.seq, order, static_cast<uint32_t>(config.train.seed)));
  STEPC_ASSIGN(Session session, Session::create(build_model(config), device));
  std::error_code ignored;
  if (options.fresh) std::filesystem::remove_all(options.run + "/checkpoints", ignored);
  STEPC_TRY(make_folder(options.run));
  STEPC_ASSIGN(MetricsLog log, MetricsLog::open(options.run + "/metrics.jsonl", resume ? resume->state.step : -1));
  Trainer trainer(config, options, std::move(session), std::move(train), std::move(held_out), std::move(windows),
                  std::move(log));
  STEPC_TRY(trainer.start(resume));
  return trainer;
}

Status Trainer::start(const std::optional<Checkpoint>& resume) {
  const auto ids = static_cast<size_t>(config_.train.batch * config_.model.seq);
  tokens_.resize(ids);
  targets_.resize(ids);
  Executor& executor = session_.executor();
  if (!resume) {
    const ScalarInput seed(static_cast<int32_t>(config_.train.seed));
    STEPC_ASSIGN(const auto nothing, executor.run("init", {{"seed", seed.view()}}));
    (void)nothing;
    return {};
  }
  for (const PersistentPlacement& tensor : executor.bundle().persistents.tensors) {
    STEPC_ASSIGN(const auto bytes, resume->tensors.tensor(tensor.name, tensor.type));
    STEPC_TRY(executor.write_persistent(tensor.name, {tensor.type, bytes}));
  }
  step_ = resume->state.step;
  position_ = resume->state.data_position;
  return load_curves();
}

// The losses of the steps before, for the chart.
Status Trainer::load_curves() {
  const std::string path = options_.run + "/metrics.jsonl";
  STEPC_ASSIGN(const std::string text, read_file(path));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    STEPC_ASSIGN(const JsonValue value, parse_json(line, path));
    const JsonCursor cursor(value, path);
    STEPC_ASSIGN(const int64_t step, cursor.integer("step"));
    const auto tokens = static_cast<double>(step * tokens_per_step());
    for (const auto& [key, curve] : {std::pair{"loss", &train_curve_}, {"held_out_loss", &held_out_curve_}}) {
      const auto loss = cursor.member(key);
      if (loss && loss->value().as<double>()) curve->emplace_back(tokens, *loss->value().as<double>());
    }
  }
  return {};
}

std::map<std::string, HostTensorView> Trainer::batch_inputs() {
  windows_.fill(position_, config_.train.batch, tokens_, targets_);
  const Shape shape = {config_.train.batch, config_.model.seq};
  return {{"tokens", ids_view(tokens_, shape)}, {"targets", ids_view(targets_, shape)}};
}

// One update: `step`, or micro steps and `update`. The loss is the mean of the micro steps', so that one that is
// no number shows; the other outputs are those of the last.
Result<std::map<std::string, HostTensor>> Trainer::run_batch(const RunOptions& run_options) {
  const StepScalars now = step_scalars(config_.train, step_);
  const ScalarInput lr(static_cast<float>(now.lr)), bias1(static_cast<float>(now.inv_bias1)),
      bias2(static_cast<float>(now.inv_bias2)), aux(static_cast<float>(now.aux_coefficient));
  const std::map<std::string, HostTensorView> update = {
      {"lr", lr.view()}, {"inv_bias1", bias1.view()}, {"inv_bias2", bias2.view()}};
  const bool micro = config_.train.accumulation > 1;
  std::map<std::string, HostTensor> outputs;
  double loss_sum = 0;
  for (int64_t turn = 0; turn < config_.train.accumulation; ++turn) {
    auto inputs = batch_inputs();
    position_ += config_.train.batch;
    if (!is_dense(config_.model)) inputs.emplace("aux_coefficient", aux.view());
    if (!micro) inputs.insert(update.begin(), update.end());
    STEPC_ASSIGN(outputs, session_.executor().run(micro ? "micro_step" : "step", inputs, run_options));
    loss_sum += scalar(outputs, "loss");
  }
  if (micro) {
    const auto mean = static_cast<float>(loss_sum / static_cast<double>(config_.train.accumulation));
    std::memcpy(outputs.at("loss").bytes.data(), &mean, sizeof mean);
    STEPC_ASSIGN(auto more, session_.executor().run("update", update, run_options));
    outputs.merge(more);
  }
  return outputs;
}

Result<Trainer::StepResult> Trainer::step() {
  STEPC_ASSIGN(const auto outputs, run_batch({.profile = options_.profile || !options_.trace.empty()}));
  StepResult result;
  result.loss = scalar(outputs, "loss");
  if (outputs.contains("aux")) result.aux = scalar(outputs, "aux");
  if (outputs.contains("grad_norm")) result.grad_norm = scalar(outputs, "grad_norm");
  const int64_t capacity = expert_capacity(config_.model, config_.train.batch * config_.model.seq);
  for (int64_t layer = 0; outputs.contains(fmt::format("count.{}", layer)); ++layer) {
    const auto counts = elements<int32_t>(outputs.at(fmt::format("count.{}", layer)));
    result.kept.push_back(kept_share({counts.begin(), counts.end()}, capacity));
  }
  if (!std::isfinite(result.loss) || (result.grad_norm && !std::isfinite(*result.grad_norm)))
    STEPC_TRY(explain_bad_step());
  ++step_;
  return result;
}

// The bad step changed no weight; run it again with every kernel's results looked at.
Status Trainer::explain_bad_step() {
  position_ -= config_.train.batch * config_.train.accumulation;
  auto outputs = run_batch({.check = true});
  if (!outputs) {
    outputs.error().message = fmt::format("step {}: {}", step_ + 1, outputs.error().message);
    return tl::unexpected(std::move(outputs).error());
  }
  return system_error("step {}: the loss is {}, and no kernel wrote a NaN; weights are those of step {}", step_ + 1,
                      scalar(*outputs, "loss"), step_);
}

// Mean over whole batches of the held-out shard, in its order.
Result<double> Trainer::held_out_loss(int64_t batches) {
  STEPC_ASSIGN(Windows windows, Windows::create(*held_out_, config_.model.seq, Windows::Order::sequential, 0));
  const int64_t batch = config_.train.batch;
  const int64_t whole = std::max<int64_t>(1, windows.count() / batch);
  batches = batches == 0 ? whole : std::min(batches, whole);
  const Shape shape = {batch, config_.model.seq};
  double sum = 0;
  for (int64_t i = 0; i < batches; ++i) {
    // Spread over the shard, so that a part of it is like the whole.
    windows.fill(i * whole / batches * batch, batch, tokens_, targets_);
    STEPC_ASSIGN(const auto outputs, session_.executor().run("eval", {{"tokens", ids_view(tokens_, shape)},
                                                                      {"targets", ids_view(targets_, shape)}}));
    sum += scalar(outputs, "loss");
  }
  return sum / static_cast<double>(batches);
}

Status Trainer::evaluate(bool whole) {
  if (!held_out_) return {};
  STEPC_ASSIGN(const double loss, held_out_loss(whole ? 0 : options_.eval_batches));
  held_out_curve_.emplace_back(static_cast<double>(step_ * tokens_per_step()), loss);
  JsonValue line;
  line.add("step", step_);
  line.add("held_out_loss", loss);
  line.add("held_out_whole", whole);
  STEPC_TRY(log_.write(line));
  if (!options_.json) fmt::print("step {:>6}  held-out loss {:.4f}{}\n", step_, loss, whole ? " (whole shard)" : "");
  std::fflush(stdout);
  return {};
}

Status Trainer::report(const StepResult& result) {
  const double elapsed = seconds_now() - started_;
  const double rate = static_cast<double>((step_ - first_step_) * tokens_per_step()) / elapsed;
  const double eta = static_cast<double>((config_.train.steps - step_) * tokens_per_step()) / rate;
  train_curve_.emplace_back(static_cast<double>(step_ * tokens_per_step()), result.loss);
  JsonValue line;
  line.add("step", step_);
  line.add("loss", result.loss);
  if (result.aux) line.add("aux_loss", *result.aux);
  if (result.grad_norm) line.add("grad_norm", *result.grad_norm);
  line.add("lr", step_scalars(config_.train, step_ - 1).lr);
  if (!result.kept.empty()) line.add("kept_share", JsonValue::list(result.kept));
  line.add("tokens", step_ * tokens_per_step());
  line.add("tokens_per_second", rate);
  line.add("seconds", elapsed);
  line.add("eta_seconds", eta);
  STEPC_TRY(log_.write(line));
  const bool due = seconds_now() - last_report_ >= (isatty(STDOUT_FILENO) ? 1.0 : 10.0);
  if (!due && step_ != config_.train.steps && step_ != first_step_ + 1) return {};
  last_report_ = seconds_now();
  if (options_.json)
    fmt::print("{}\n", json_text(line, INT32_MAX));
  else
    fmt::print("step {:>6}/{}  loss {:.4f}  {:.0f} tokens/s  {} left\n", step_, config_.train.steps, result.loss, rate,
               duration_text(eta));
  std::fflush(stdout);
  return {};
}

Status Trainer::save() {
  if (!options_.save) return {};
  CheckpointState state{step_, position_, config_json(config_), {{options_.data, train_.hash()}}, options_.sequential};
  STEPC_ASSIGN(const std::string path,
               save_checkpoint(options_.run + "/checkpoints", state, persistent_streams(session_.executor()),
                               options_.keep_checkpoints));
  if (!options_.json) fmt::print("saved {}\n", path);
  return {};
}

Status Trainer::write_curves() const {
  CurveChart chart{config_.preset + ": loss", "tokens", "nats per token", {}};
  chart.series.push_back({"training batch", "#9ecae1", false, train_curve_});
  std::vector<std::pair<double, double>> smooth;
  double mean = 0, weight = 0;
  for (const auto& [tokens, loss] : train_curve_) {
    mean = 0.98 * mean + 0.02 * loss;
    weight = 0.98 * weight + 0.02;
    smooth.emplace_back(tokens, mean / weight);
  }
  chart.series.push_back({"training, averaged", "#2171b5", false, smooth});
  if (!held_out_curve_.empty()) chart.series.push_back({"held out", "#d94801", true, held_out_curve_});
  return write_file_atomic(options_.run + "/loss.svg", curve_svg(chart));
}

bool Trainer::goes_on() const {
  const bool stopped = options_.stop_after > 0 && step_ - first_step_ >= options_.stop_after;
  return step_ < config_.train.steps && !stopped && g_signal == 0;
}

Result<int> Trainer::run() {
  g_signal = 0;
  std::signal(SIGINT, remember_signal);
  std::signal(SIGTERM, remember_signal);
  if (!options_.json)
    fmt::print("{} kernels ready in {:.1f} s; {} tokens in {}\n", session_.executor().bundle().kernels.size(),
               session_.compile_seconds(), train_.count(), options_.data);
  first_step_ = step_;
  started_ = seconds_now();
  while (goes_on()) {
    STEPC_ASSIGN(const StepResult result, step());
    STEPC_TRY(report(result));
    const bool last = step_ == config_.train.steps;
    if (!last && options_.eval_every > 0 && step_ % options_.eval_every == 0) STEPC_TRY(evaluate(false));
    if (!last && options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0) STEPC_TRY(save());
  }
  const double training_seconds = seconds_now() - started_;
  if (step_ == config_.train.steps) STEPC_TRY(evaluate(true));
  STEPC_TRY(save());
  STEPC_TRY(write_curves());
  STEPC_TRY(write_profile());
  if (!options_.json) fmt::print("trained {} steps in {}\n", step_ - first_step_, duration_text(training_seconds));
  return static_cast<int>(g_signal);
}

Status Trainer::write_profile() {
  const std::vector<StepTime> times = session_.executor().step_times();
  if (options_.profile) fmt::print("{}", profile_text(times));
  return options_.trace.empty() ? Status{} : write_file_atomic(options_.trace, trace_json(times));
}

}  // namespace stepc
