// stepc train: start, or go on from the newest checkpoint of the run.
#include <filesystem>

#include "tools/stepc/commands.h"
#include "tools/stepc/source.h"
#include "tools/stepc/trainer.h"

namespace stepc {
namespace {

struct TrainOptions {
  ConfigOptions config;
  DeviceOptions device;
  TrainRunOptions run;
  bool fresh = false;
};

// The newest checkpoint of the run, unless a fresh start is asked for.
Result<std::optional<Checkpoint>> find_resume(const TrainOptions& options) {
  const auto found = list_checkpoints(options.run.run + "/checkpoints");
  if (found.empty()) return std::nullopt;
  if (options.fresh) {
    std::error_code ignored;
    std::filesystem::remove_all(options.run.run + "/checkpoints", ignored);
    return std::nullopt;
  }
  STEPC_ASSIGN(Checkpoint newest, load_checkpoint(found.back()));
  return newest;
}

// A resumed run keeps its configuration, except for what does not touch the model or the order of the data.
Result<Config> resolve_config(const TrainOptions& options, const std::optional<Checkpoint>& resume) {
  if (!resume) return options.config.resolve();
  const std::string place = resume->path + "/state.json";
  STEPC_ASSIGN(const Config base, preset_config("tiny"));
  STEPC_ASSIGN(const Config saved, parse_config(resume->state.config, place, base));
  STEPC_ASSIGN(const Config wanted, options.config.resolve(saved));
  Config comparable = wanted;
  comparable.train.steps = saved.train.steps;
  comparable.train.lr = saved.train.lr;
  if (!(comparable == saved))
    return user_error(
        "{} was trained with another configuration; --fresh starts anew, only train.steps and train.lr may change",
        resume->path);
  return wanted;
}

Status train(const TrainOptions& options, Outcome& outcome) {
  STEPC_ASSIGN(const auto resume, find_resume(options));
  STEPC_ASSIGN(const Config config, resolve_config(options, resume));
  if (resume) fmt::print("resuming from {} (step {})\n", resume->path, resume->state.step);
  STEPC_ASSIGN(Trainer trainer, Trainer::create(config, options.run, options.device, resume));
  STEPC_ASSIGN(outcome.signal, trainer.run());
  return {};
}

}  // namespace

void register_train(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a model; goes on from the run's newest checkpoint");
  options->config.add_to(*command);
  options->device.add_to(*command);
  TrainRunOptions& run = options->run;
  command->add_option("--data", run.data, "Training shard")->required();
  command->add_option("--held-out", run.held_out, "Shard whose loss is measured apart");
  command->add_option("--run", run.run, "Folder of checkpoints, metrics.jsonl and loss.svg")->required();
  command->add_flag("--fresh", options->fresh, "Start anew: delete the run's checkpoints and metrics");
  const auto counts = CLI::Range(int64_t{0}, int64_t{1} << 60);
  command->add_option("--eval-every", run.eval_every, "Steps between held-out losses (0: only at the end)")
      ->check(counts);
  command->add_option("--eval-batches", run.eval_batches, "Batches of a held-out loss on the way (0: all)")
      ->check(counts);
  command->add_option("--checkpoint-every", run.checkpoint_every, "Steps between checkpoints (0: only at the end)")
      ->check(counts);
  command->add_option("--keep", run.keep_checkpoints, "Checkpoints to keep (0: all)")->check(counts);
  command->add_flag("--sequential", run.sequential, "Take windows in the shard's order instead of shuffled");
  command->add_flag("--json", run.json, "Progress as JSON lines");
  command->add_flag("--profile", run.profile, "Time by kernel at the end");
  command->callback([options, &outcome] { outcome.status = train(*options, outcome); });
}

}  // namespace stepc
