#include "tools/stepc/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "ir/support/file.h"
#include "model/parameters.h"
#include "model/programs.h"
#include "model/schedule.h"
#include "runtime/curve_svg.h"
#include "tools/stepc/parameter_report.h"
#include "tools/stepc/profile.h"

namespace stepc {
namespace {

volatile std::sig_atomic_t g_signal = 0;
void remember_signal(int number) { g_signal = number; }

bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// What a schedule chose, not what the configuration allows it.
bool adds_in_any_order(const Bundle& bundle) {
  return std::any_of(bundle.kernels.begin(), bundle.kernels.end(), [](const BundleKernel& kernel) {
    return kernel.config.find("in no fixed order") != std::string::npos;
  });
}

JsonValue lists_json(const std::vector<std::vector<int64_t>>& lists) {
  JsonValue::Array made;
  for (const auto& list : lists) made.push_back(JsonValue::list(list));
  return made;
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
  STEPC_ASSIGN(Session session, Session::create(build_model(config, !options.routing.empty()), device));
  if (!options.json)
    for (const std::string& what : session.start_times().lower.recomputed) fmt::print("recompute {}\n", what);
  STEPC_TRY(make_folder(options.run));
  const int64_t last_step = resume ? resume->state.step : -1;
  std::optional<MetricsLog> routing_log;
  if (!options.routing.empty()) {
    STEPC_ASSIGN(routing_log, MetricsLog::open(options.routing, last_step));
  }
  std::error_code ignored;
  if (options.fresh) std::filesystem::remove_all(options.run + "/checkpoints", ignored);
  STEPC_ASSIGN(MetricsLog log, MetricsLog::open(options.run + "/metrics.jsonl", last_step));
  Trainer trainer(config, options, std::move(session), std::move(train), std::move(held_out), std::move(windows),
                  std::move(log));
  trainer.routing_log_ = std::move(routing_log);
  STEPC_TRY(trainer.start(resume));
  return trainer;
}

Status Trainer::start(const std::optional<Checkpoint>& resume) {
  const double start = seconds_now();
  STEPC_TRY(set_weights(resume));
  weights_seconds_ = seconds_now() - start;
  return resume ? load_curves() : Status();
}

Status Trainer::set_weights(const std::optional<Checkpoint>& resume) {
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
  return {};
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

// Mean over whole batches of the held-out shard, in its order.
Result<double> Trainer::held_out_loss(int64_t batches) {
  STEPC_ASSIGN(Windows windows, Windows::create(*held_out_, config_.model.seq, Windows::Order::sequential, 0));
  const int64_t batch = config_.train.batch;
  const int64_t whole = std::max<int64_t>(1, windows.count() / batch);
  batches = batches == 0 ? whole : std::min(batches, whole);
  const Shape shape = {batch, config_.model.seq};
  std::vector<int32_t> tokens(static_cast<size_t>(numel(shape))), targets(tokens.size());
  double sum = 0;
  for (int64_t i = 0; i < batches; ++i) {
    // Spread over the shard, so that a part of it is like the whole.
    windows.fill(i * whole / batches * batch, batch, tokens, targets);
    STEPC_ASSIGN(const auto outputs, session_.executor().run("eval", {{"tokens", ids_view(tokens, shape)},
                                                                      {"targets", ids_view(targets, shape)}}));
    sum += scalar_of(outputs, "loss");
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
  if (!result.counts.empty()) line.add("expert_counts", lists_json(result.counts));
  line.add("tokens", step_ * tokens_per_step());
  line.add("tokens_per_second", rate);
  line.add("seconds", elapsed);
  line.add("eta_seconds", eta);
  if (start_line_) line.add("start", *std::exchange(start_line_, std::nullopt));
  STEPC_TRY(log_.write(line));
  if (routing_log_) {
    JsonValue routed;
    routed.add("step", step_);
    routed.add("experts", lists_json(result.choices));
    STEPC_TRY(routing_log_->write(routed));
  }
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

// How long it took until the first update of this call was done.
void Trainer::tell_first_step() {
  const double step_seconds = seconds_now() - started_;
  start_line_ = session_.start_times().json();
  start_line_->add("weights_seconds", weights_seconds_);
  start_line_->add("first_step_seconds", step_seconds);
  start_line_->add("process_seconds", seconds_of_process());
  if (!options_.json)
    fmt::print("first step done {:.1f} s after the start: weights {:.2f} s, step {:.2f} s\n", seconds_of_process(),
               weights_seconds_, step_seconds);
}

// Whether something is to be done between this update and the next that wants the weights as they are.
bool Trainer::pauses() const { return is_due(options_.eval_every, step_) || is_due(options_.checkpoint_every, step_); }

Result<int> Trainer::run() {
  g_signal = 0;
  std::signal(SIGINT, remember_signal);
  std::signal(SIGTERM, remember_signal);
  if (!options_.json) fmt::print("{}; {} tokens in {}\n", session_.start_times().text(), train_.count(), options_.data);
  if (!options_.json && config_.model.attention_gradient == AttentionGradient::atomic)
    fmt::print("attention_gradient=atomic {}\n",
               adds_in_any_order(session_.executor().bundle())
                   ? "adds in no fixed order: another run may not give the same bits"
                   : "changes nothing here: no kernel of this run adds in any other than a fixed order");
  STEPC_TRY(write_parameter_table());
  first_step_ = step_;
  started_ = seconds_now();
  // While the device works on an update its outputs are looked at, and the next one is started behind it; a signal
  // that comes then ends the run after that one.
  while (goes_on() || !flight_.empty()) {
    if (flight_.empty()) STEPC_TRY(start_step());
    STEPC_ASSIGN(const StepResult result, step());
    const std::vector<RunHandle> runs = std::exchange(flight_, {});
    if (session_.executor().runs_ahead() && goes_on() && !pauses()) STEPC_TRY(start_step());
    STEPC_TRY(land(runs));
    if (step_ == first_step_ + 1) tell_first_step();
    STEPC_TRY(report(result));
    if (step_ == config_.train.steps) break;
    if (is_due(options_.eval_every, step_)) STEPC_TRY(evaluate(false));
    if (is_due(options_.checkpoint_every, step_)) STEPC_TRY(save());
  }
  const double training_seconds = seconds_now() - started_;
  if (step_ == config_.train.steps) STEPC_TRY(evaluate(true));
  STEPC_TRY(save());
  STEPC_TRY(write_curves());
  STEPC_TRY(write_profile());
  if (!options_.json) fmt::print("trained {} steps in {}\n", step_ - first_step_, duration_text(training_seconds));
  return static_cast<int>(g_signal);
}

// From the bundle that runs; the program it was made from is gone.
Status Trainer::write_parameter_table() const {
  const Bundle& bundle = session_.executor().bundle();
  const Plan* plan = bundle.find_plan(config_.train.accumulation == 1 ? "step" : "micro_step");
  const auto rows = parameter_rows(config_.model, bundle.persistents, *plan, nullptr);
  if (!options_.json) fmt::print("{} parameters, {}", parameter_count(config_.model), dtype_summary(rows));
  return write_file_atomic(options_.run + "/parameters.txt", parameter_table_text(rows), Durability::unsynced);
}

Status Trainer::write_profile() {
  const std::vector<StepTime> times = session_.executor().step_times();
  if (options_.profile) {
    const auto peaks = device_peaks(session_.arch());
    const std::vector<ProfileRow> rows = profile_rows(times, peaks);
    if (!options_.json) fmt::print("{}", profile_text(rows, peaks));
    STEPC_TRY(write_file_atomic(options_.run + "/profile.json", profile_json(rows, peaks)));
  }
  return options_.trace.empty() ? Status{} : write_file_atomic(options_.trace, trace_json(times));
}

}  // namespace stepc
