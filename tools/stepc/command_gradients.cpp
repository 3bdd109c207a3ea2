// stepc gradients: the loss of one batch and its gradient by every parameter, in a file: to look at, or to set beside
// another implementation's. Training never stores all gradients; here they are outputs of a program of its own.
#include "model/parameters.h"
#include "model/programs.h"
#include "model/schedule.h"
#include "runtime/shard.h"
#include "runtime/windows.h"
#include "tools/stepc/checkpoints.h"
#include "tools/stepc/commands.h"
#include "tools/stepc/session.h"
#include "tools/stepc/source.h"

namespace stepc {
namespace {

struct GradientOptions {
  ConfigOptions config;
  DeviceOptions device;
  std::string data;
  std::string checkpoint;
  std::string out;
  std::string weights;
  int64_t position = -1;  // -1: 0, or where the checkpoint is
  bool sequential = false;
};

// What the gradients are taken at.
struct Place {
  Config config;
  std::optional<Checkpoint> checkpoint;
  int64_t step = 0;
  int64_t position = 0;
  bool sequential = false;
};

Result<Place> find_place(const GradientOptions& options) {
  Place place;
  std::optional<Config> saved;
  if (!options.checkpoint.empty()) {
    STEPC_ASSIGN(place.checkpoint, find_checkpoint(options.checkpoint));
    STEPC_ASSIGN(saved, config_of(*place.checkpoint));
    place.step = place.checkpoint->state.step;
    place.position = place.checkpoint->state.data_position;
    place.sequential = place.checkpoint->state.sequential;
  }
  STEPC_ASSIGN(place.config, options.config.resolve(saved));
  if (options.position >= 0) place.position = options.position;
  place.sequential |= options.sequential;
  return place;
}

Status set_weights(Executor& executor, const Place& place) {
  if (place.checkpoint) return load_weights(executor, *place.checkpoint);
  const ScalarInput seed(static_cast<int32_t>(place.config.train.seed));
  return executor.run("init", {{"seed", seed.view()}}).transform([](const auto&) {});
}

Result<std::map<std::string, HostTensor>> run_gradients(Executor& executor, const Place& place, const Shard& shard) {
  const Config& config = place.config;
  const auto order = place.sequential ? Windows::Order::sequential : Windows::Order::shuffled;
  STEPC_ASSIGN(Windows windows,
               Windows::create(shard, config.model.seq, order, static_cast<uint32_t>(config.train.seed)));
  const auto ids = static_cast<size_t>(config.train.batch * config.model.seq);
  std::vector<int32_t> tokens(ids), targets(ids);
  windows.fill(place.position, config.train.batch, tokens, targets);
  const Shape shape = {config.train.batch, config.model.seq};
  std::map<std::string, HostTensorView> inputs = {{"tokens", ids_view(tokens, shape)},
                                                  {"targets", ids_view(targets, shape)}};
  const ScalarInput aux(static_cast<float>(step_scalars(config.train, place.step).aux_coefficient));
  if (!is_dense(config.model)) inputs.emplace("aux_coefficient", aux.view());
  return executor.run("gradients", inputs);
}

Status write_gradients(const std::map<std::string, HostTensor>& outputs, const std::string& path) {
  std::vector<TensorBytes> tensors;
  for (const auto& [name, tensor] : outputs) tensors.push_back({name, tensor.type, tensor.bytes});
  return write_safetensors(path, tensors);
}

Status gradients(const GradientOptions& options) {
  STEPC_ASSIGN(const Place place, find_place(options));
  STEPC_ASSIGN(const Shard shard, Shard::open(options.data, place.config.model.vocab));
  STEPC_ASSIGN(Session session, Session::create(build_gradients(place.config), options.device));
  for (const std::string& what : session.start_times().lower.recomputed) fmt::print("recompute {}\n", what);
  STEPC_TRY(set_weights(session.executor(), place));
  STEPC_ASSIGN(const auto outputs, run_gradients(session.executor(), place, shard));
  STEPC_TRY(write_gradients(outputs, options.out));
  if (!options.weights.empty()) STEPC_TRY(write_safetensors(options.weights, persistent_streams(session.executor())));
  fmt::print("loss {:.6f} at window {}, gradients of {} parameters in {}\n", scalar_of(outputs, "loss"), place.position,
             parameter_table(place.config.model).size(), options.out);
  return {};
}

}  // namespace

void register_gradients(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<GradientOptions>();
  CLI::App* command = app.add_subcommand("gradients", "The loss and all gradients of one batch, as a file");
  options->config.add_to(*command);
  options->device.add_to(*command);
  options->device.add_device_to(*command);
  options->device.recompute.add_to(*command);
  command->add_option("--data", options->data, "Shard that the batch is taken from")->required();
  command->add_option("--checkpoint", options->checkpoint, "Run folder or one checkpoint (default: initial weights)");
  command
      ->add_option("--position", options->position, "Window that the batch starts at (default: the first one to come)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60));
  command->add_flag("--sequential", options->sequential, "Take windows in the shard's order instead of shuffled");
  command->add_option("--out", options->out, "safetensors file for the loss and every parameter's gradient by its name")
      ->required();
  command->add_option("--weights", options->weights, "safetensors file for the weights that they were taken at");
  command->callback([options, &outcome] { outcome.status = gradients(*options); });
}

}  // namespace stepc
