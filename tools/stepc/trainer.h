// Trains a model on a device: steps, held-out losses, checkpoints, metrics. The command line is in
// command_train.cpp; this is the loop and its parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "runtime/checkpoint.h"
#include "runtime/metrics.h"
#include "runtime/shard.h"
#include "runtime/windows.h"
#include "tools/stepc/session.h"
#include "tools/stepc/source.h"

namespace stepc {

struct TrainRunOptions {
  std::string data;              // training shard
  std::string held_out;          // shard of the held-out loss; may be empty
  std::string run;               // folder of metrics, curves and checkpoints
  int64_t eval_every = 200;      // steps; 0: only at the end
  int64_t eval_batches = 8;      // of a held-out loss on the way; the last one takes the whole shard
  int64_t checkpoint_every = 0;  // steps; 0: only at the end
  int64_t keep_checkpoints = 3;
  int64_t stop_after = 0;   // save and end after so many steps of this call; 0: at the configured number
  bool fresh = false;       // delete what an earlier run left in the folder
  bool save = true;         // checkpoints; false: for measurements of models whose state fills disks
  bool sequential = false;  // windows in the shard's order instead of shuffled
  bool json = false;        // progress as JSON lines on standard output
  bool profile = false;     // time by kernel beside its floor, at the end and in the run's profile.json
  std::string trace;        // file for the times of the average step as a trace; empty: none
  bool poison = false;      // NaN in everything that is not kept, before each step
  std::string routing;      // file for the experts of every token, a line a step; empty: none
};

class Trainer {
 public:
  // Opens the data, compiles the model, and starts from `resume` or from freshly initialised weights. Touches the
  // run's folder last, when nothing that was asked for can be wrong any more.
  static Result<Trainer> create(const Config& config, const TrainRunOptions& options, const DeviceOptions& device,
                                const std::optional<Checkpoint>& resume);

  // Runs until the configured number of steps, or ends early after `stop_after` or a signal. Saves; returns the
  // signal's number, or 0.
  Result<int> run();

 private:
  // Of an accumulated step, over all of its micro steps.
  struct StepResult {
    double loss = 0;
    std::optional<double> aux;
    std::optional<double> grad_norm;
    std::vector<double> kept;                  // share of assignments that found a slot, by layer
    std::vector<std::vector<int64_t>> counts;  // assignments to each expert before dropping, by layer
    // Experts of (micro step, token, rank), by layer; empty unless they are recorded.
    std::vector<std::vector<int64_t>> choices;
  };

  Trainer(Config config, TrainRunOptions options, Session session, Shard train, std::optional<Shard> held_out,
          Windows windows, MetricsLog log)
      : config_(std::move(config)),
        options_(std::move(options)),
        session_(std::move(session)),
        train_(std::move(train)),
        held_out_(std::move(held_out)),
        windows_(std::move(windows)),
        log_(std::move(log)) {}

  Status start(const std::optional<Checkpoint>& resume);
  Status set_weights(const std::optional<Checkpoint>& resume);
  void tell_first_step();
  Status load_curves();
  bool goes_on() const;
  bool pauses() const;
  // One update, in trainer_step.cpp. Between start_step and land a second one may be started.
  RunOptions run_options() const;
  void prepare_batch();
  Status start_part(const RunOptions& how);
  Status start_step();
  void add_part(const Executor::Outputs& outputs, StepResult& result) const;
  Result<StepResult> outcome(const RunOptions& how);
  Result<StepResult> step();
  Status land(const std::vector<RunHandle>& runs);
  Status explain_bad_step();
  Result<double> held_out_loss(int64_t batches);
  Status evaluate(bool whole);
  Status report(const StepResult& result);
  Status save();
  Status write_curves() const;
  bool accumulates() const { return config_.train.accumulation > 1; }
  int64_t tokens_per_step() const { return config_.train.batch * config_.train.accumulation * config_.model.seq; }
  Status write_profile();
  Status write_parameter_table() const;

  Config config_;
  TrainRunOptions options_;
  Session session_;
  Shard train_;
  std::optional<Shard> held_out_;
  Windows windows_;
  MetricsLog log_;
  std::optional<MetricsLog> routing_log_;

  int64_t step_ = 0;               // updates done
  int64_t position_ = 0;           // windows consumed
  int64_t part_ = 0;               // of the update that is in flight: micro steps, then `update`
  std::vector<RunHandle> flight_;  // the runs that were started for the next update; none: it is not started
  double started_ = 0;             // seconds_now() of the first step
  int64_t first_step_ = 0;
  double last_report_ = 0;
  double weights_seconds_ = 0;             // until they were made or read
  std::optional<JsonValue> start_line_;    // of the metrics: where the start's time went
  std::vector<int32_t> tokens_, targets_;  // of the batch at prepared_
  int64_t prepared_ = -1;
  std::vector<std::pair<double, double>> train_curve_, held_out_curve_;  // (tokens, loss)
};

}  // namespace stepc
