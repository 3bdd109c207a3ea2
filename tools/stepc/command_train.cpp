// stepc train: start, or go on from the newest checkpoint of the run.
#include <sstream>

#include "tools/stepc/commands.h"
#include "tools/stepc/source.h"
#include "tools/stepc/trainer.h"

namespace stepc {
namespace {

struct TrainOptions {
  ConfigOptions config;
  DeviceOptions device;
  TrainRunOptions run;
};

// The newest checkpoint of the run, unless a fresh start is asked for.
Result<std::optional<Checkpoint>> find_resume(const TrainOptions& options) {
  const auto found = list_checkpoints(options.run.run + "/checkpoints");
  if (found.empty() || options.run.fresh) return std::nullopt;
  STEPC_ASSIGN(Checkpoint newest, load_checkpoint(found.back()));
  return newest;
}

// The first line in which two configurations differ: "ffn": 192, this run asks for "ffn": 96.
std::string first_difference(const Config& saved, const Config& wanted) {
  std::istringstream saved_lines(config_json(saved)), wanted_lines(config_json(wanted));
  const auto trimmed = [](const std::string& line) {
    const size_t start = line.find_first_not_of(' ');
    return line.substr(start, line.find_last_not_of(',') + 1 - start);
  };
  for (std::string a, b; std::getline(saved_lines, a) && std::getline(wanted_lines, b);)
    if (a != b) return fmt::format("{}, this run asks for {}", trimmed(a), trimmed(b));
  return "";
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
  const std::string difference = first_difference(saved, comparable);
  if (!difference.empty())
    return user_error("{} was trained with {}; --fresh starts anew, only steps and lr may change", resume->path,
                      difference);
  return wanted;
}

Status train(const TrainOptions& options, Outcome& outcome) {
  STEPC_ASSIGN(const auto resume, find_resume(options));
  STEPC_ASSIGN(const Config config, resolve_config(options, resume));
  if (resume && resume->state.step >= config.train.steps) {
    if (!options.run.json)
      fmt::print("{} is trained: {} of {} steps\n", resume->path, resume->state.step, config.train.steps);
    return {};
  }
  if (resume && !options.run.json) fmt::print("resuming from {} (step {})\n", resume->path, resume->state.step);
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
  options->device.add_device_to(*command);
  options->device.recompute.add_to(*command);
  TrainRunOptions& run = options->run;
  command->add_option("--data", run.data, "Training shard")->required();
  command->add_option("--held-out", run.held_out, "Shard whose loss is measured apart");
  command->add_option("--run", run.run, "Folder of checkpoints, metrics.jsonl and loss.svg")->required();
  command->add_flag("--fresh", run.fresh, "Start anew: delete the run's checkpoints and metrics");
  const auto counts = CLI::Range(int64_t{0}, int64_t{1} << 60);
  command->add_option("--eval-every", run.eval_every, "Steps between held-out losses (0: only at the end)")
      ->check(counts);
  command->add_option("--eval-batches", run.eval_batches, "Batches of a held-out loss on the way (0: all)")
      ->check(counts);
  command->add_option("--checkpoint-every", run.checkpoint_every, "Steps between checkpoints (0: only at the end)")
      ->check(counts);
  command->add_flag("!--no-checkpoint", run.save, "Save nothing, not even at the end: for measurements");
  command->add_option("--keep", run.keep_checkpoints, "Checkpoints to keep (0: all)")->check(counts);
  command->add_option("--stop-after", run.stop_after, "Save and end after so many steps of this call (0: never)")
      ->check(counts);
  command->add_flag("--sequential", run.sequential, "Take windows in the shard's order instead of shuffled");
  command->add_flag("--json", run.json, "Progress as JSON lines");
  command->add_flag("--profile", run.profile,
                    "Time by kernel beside its roofline floor, at the end and in RUN/profile.json");
  command->add_flag("--poison", run.poison, "Fill all that a step does not keep with NaN before it: changes nothing");
  command->add_option(
      "--record-routing", run.routing,
      "File for the experts of every token, a JSON line a step: by layer, the experts of each token in order,"
      " of accumulated steps one part after the other");
  command->add_option("--trace", run.trace, "File for the average step as a trace, for Chrome's or Perfetto's viewer");
  command->callback([options, &outcome] { outcome.status = train(*options, outcome); });
}

}  // namespace stepc
