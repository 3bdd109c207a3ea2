// stepc sample: continue a prompt with a trained byte-level model.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/graph/evaluate.h"
#include "tools/stepc/checkpoints.h"
#include "tools/stepc/commands.h"
#include "tools/stepc/session.h"
#include "tools/stepc/source.h"

namespace stepc {
namespace {

constexpr uint32_t kSampleStream = 0x73616d70;  // "samp"

struct SampleOptions {
  std::string checkpoint;  // of a run, or one checkpoint folder
  std::string prompt = "\n";
  int64_t bytes = 200;
  double temperature = 0.8;
  int64_t top = 40;
  int64_t seed = 1;
  DeviceOptions device;
};

// Draws from softmax(logits / temperature) over the `top` largest. Temperature 0 takes the largest.
Result<int32_t> draw(const std::vector<float>& logits, const SampleOptions& options, int64_t turn) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      return system_error("the logit of token {} is {}; the checkpoint is damaged", i, logits[i]);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (options.temperature == 0) return order[0];
  if (options.top > 0 && options.top < static_cast<int64_t>(order.size()))
    order.resize(static_cast<size_t>(options.top));
  std::vector<double> weights;
  const double largest = logits[static_cast<size_t>(order[0])];
  for (int32_t id : order)
    weights.push_back(std::exp((logits[static_cast<size_t>(id)] - largest) / options.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left =
      total * philox_word(static_cast<uint32_t>(options.seed), kSampleStream, 0, static_cast<uint64_t>(turn)) * 0x1p-32;
  for (size_t i = 0; i + 1 < order.size(); ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order.back();
}

// The logits after the last token of `context`, which is cut to the model's window.
Result<std::vector<float>> next_logits(Executor& executor, const std::vector<int32_t>& context, int64_t window) {
  std::vector<int32_t> tokens(static_cast<size_t>(window), 0);
  const auto used = std::min(context.size(), static_cast<size_t>(window));
  std::copy(context.end() - static_cast<int64_t>(used), context.end(), tokens.begin());
  const auto position = static_cast<int32_t>(used - 1);
  STEPC_ASSIGN(
      const auto outputs,
      executor.run(
          "sample",
          {{"tokens", {{Dtype::i32, {1, window}}, {reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4}}},
           {"position", {{Dtype::i32, {1}}, {reinterpret_cast<const char*>(&position), 4}}}}));
  return elements<float>(outputs.at("logits"));
}

Status sample(const SampleOptions& options) {
  STEPC_ASSIGN(const Checkpoint checkpoint, find_checkpoint(options.checkpoint));
  STEPC_ASSIGN(const Config config, config_of(checkpoint));
  if (config.model.vocab > 256)
    return user_error("{}: sampling text needs a byte vocabulary, this model has {} tokens", checkpoint.path,
                      config.model.vocab);
  if (options.prompt.empty()) return user_error("--prompt is empty: at least one byte is needed");
  Module module = build_model(config);
  std::erase_if(module.programs, [](const Program& program) { return program.name != "sample"; });
  STEPC_ASSIGN(Session session, Session::create(std::move(module), options.device));
  STEPC_TRY(load_weights(session.executor(), checkpoint));
  std::vector<int32_t> context;
  for (char c : options.prompt) context.push_back(static_cast<unsigned char>(c));
  for (size_t i = 0; i < context.size(); ++i)
    if (context[i] >= config.model.vocab)
      return user_error("--prompt: byte {} is {}, but the vocabulary has {} entries", i, context[i],
                        config.model.vocab);
  fmt::print("{}", options.prompt);
  for (int64_t turn = 0; turn < options.bytes; ++turn) {
    STEPC_ASSIGN(const auto logits, next_logits(session.executor(), context, config.model.seq));
    STEPC_ASSIGN(const int32_t id, draw(logits, options, turn));
    context.push_back(id);
    std::fputc(id, stdout);
    std::fflush(stdout);
  }
  fmt::print("\n");
  return {};
}

}  // namespace

void register_sample(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<SampleOptions>();
  CLI::App* command = app.add_subcommand("sample", "Continue a prompt with a trained model");
  command->add_option("--checkpoint", options->checkpoint, "Run folder, or one checkpoint")->required();
  command->add_option("--prompt", options->prompt, "Text to continue");
  command->add_option("--bytes", options->bytes, "Bytes to add")->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->add_option("--temperature", options->temperature, "0: always the likeliest byte")
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top", options->top, "Draw among so many likeliest bytes (0: all)")
      ->check(CLI::Range(0, 1 << 30));
  command->add_option("--seed", options->seed, "Of the draws");
  options->device.add_to(*command);
  options->device.add_device_to(*command);
  command->callback([options, &outcome] { outcome.status = sample(*options); });
}

}  // namespace stepc
