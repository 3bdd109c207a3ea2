#include "tools/bench/training.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "ir/graph/evaluate.h"
#include "ir/support/file.h"
#include "ir/text/json.h"
#include "model/schedule.h"
#include "tools/bench/line_process.h"
#include "tools/stepc/session.h"
#include "tools/stepc/source.h"

namespace stepc::bench {
namespace {

constexpr int kStepsPerRound = 3;  // of which a side's median counts
constexpr double kWantedRatio = 1.5;

// Our side: the executor, as `stepc train` drives it.
class Training {
 public:
  static Result<Training> create(const Config& config, const DeviceOptions& device, bool cpu_time) {
    Module module = build_model(config);
    std::erase_if(module.programs, [](const Program& p) { return p.name != "init" && p.name != "step"; });
    STEPC_ASSIGN(Session session, Session::create(std::move(module), device));
    const ScalarInput seed(static_cast<int32_t>(config.train.seed));
    STEPC_ASSIGN(const auto nothing, session.executor().run("init", {{"seed", seed.view()}}));
    (void)nothing;
    return Training(config, std::move(session), cpu_time);
  }

  // Tokens per second.
  Result<double> round() {
    std::vector<double> seconds;
    for (int i = 0; i < kStepsPerRound; ++i) {
      const double start = now();
      STEPC_TRY(step());
      seconds.push_back(now() - start);
    }
    return static_cast<double>(tokens_.size()) / summarise(seconds).median;
  }

 private:
  Training(const Config& config, Session session, bool cpu_time)
      : config_(config), session_(std::move(session)), cpu_time_(cpu_time) {
    const auto count = static_cast<size_t>(config.train.batch * config.model.seq);
    for (size_t i = 0; i <= count; ++i) {
      const auto id = static_cast<int32_t>(philox_word(1, 0, 0, i) % static_cast<uint32_t>(config.model.vocab));
      if (i < count) tokens_.push_back(id);
      if (i > 0) targets_.push_back(id);
    }
  }

  double now() const {
    timespec time = {};
    clock_gettime(cpu_time_ ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  Status step() {
    const StepScalars scalars = step_scalars(config_.train, step_++);
    const ScalarInput lr(static_cast<float>(scalars.lr)), bias1(static_cast<float>(scalars.inv_bias1)),
        bias2(static_cast<float>(scalars.inv_bias2)), aux(static_cast<float>(scalars.aux_coefficient));
    const auto ids = [&](const std::vector<int32_t>& values) {
      return HostTensorView{{Dtype::i32, {config_.train.batch, config_.model.seq}},
                            {reinterpret_cast<const char*>(values.data()), values.size() * 4}};
    };
    STEPC_ASSIGN(const auto outputs, session_.executor().run("step", {{"tokens", ids(tokens_)},
                                                                      {"targets", ids(targets_)},
                                                                      {"lr", lr.view()},
                                                                      {"inv_bias1", bias1.view()},
                                                                      {"inv_bias2", bias2.view()},
                                                                      {"aux_coefficient", aux.view()}}));
    (void)outputs;
    return {};
  }

  Config config_;
  Session session_;
  bool cpu_time_;
  std::vector<int32_t> tokens_, targets_;
  int64_t step_ = 0;
};

// The opponent: ready once it has taken its first steps.
struct Opponent {
  LineProcess process;
  std::vector<std::string> forms;
  std::string version;
};

Result<Opponent> start_opponent(const Config& config, const TrainingOptions& options, int threads) {
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("stepc-bench-{}.json", getpid())).string();
  STEPC_TRY(write_file_atomic(file, config_json(config), Durability::unsynced));
  STEPC_ASSIGN(LineProcess process,
               LineProcess::start({options.python, STEPC_SOURCE_DIR "/tools/oracle/tiny_torch.py", "bench", "--config",
                                   file, "--threads", std::to_string(threads), "--steps-per-round",
                                   std::to_string(kStepsPerRound), "--clock", options.cpu_time ? "cpu" : "wall"}));
  const auto line = process.read_line();
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  if (!line) return system_error("{} does not answer: is python3-torch installed?", options.python);
  STEPC_ASSIGN(const JsonValue ready, parse_json(*line, "the opponent's first line"));
  const JsonCursor cursor(ready, "the opponent's first line");
  Opponent opponent{std::move(process), {}, {}};
  STEPC_ASSIGN(opponent.version, cursor.string("torch"));
  STEPC_ASSIGN(const JsonCursor forms, cursor.member("ready"));
  STEPC_ASSIGN(const auto items, forms.items());
  for (const JsonCursor& item : items) {
    STEPC_ASSIGN(std::string form, item.string());
    opponent.forms.push_back(std::move(form));
  }
  return opponent;
}

Result<double> opponent_round(Opponent& opponent, const std::string& form) {
  STEPC_ASSIGN(const std::string line, opponent.process.ask("round " + form));
  STEPC_ASSIGN(const JsonValue answer, parse_json(line, "the opponent's answer"));
  STEPC_ASSIGN(const JsonCursor rate, JsonCursor(answer, "the opponent's answer").member(form));
  const double* value = rate.value().as<double>();
  if (!value) return system_error("the opponent answers {}", line);
  return *value;
}

}  // namespace

Result<TrainingResult> measure_training(const TrainingOptions& options) {
  STEPC_ASSIGN(const Config config, preset_config("tiny"));
  DeviceOptions device;
  device.threads = options.threads;
  STEPC_ASSIGN(Training training, Training::create(config, device, options.cpu_time));
  std::optional<Opponent> opponent;
  if (!options.python.empty()) {
    STEPC_ASSIGN(Opponent started, start_opponent(config, options, device.thread_count()));
    opponent.emplace(std::move(started));
  }
  STEPC_TRY(training.round());
  std::vector<double> ours;
  std::map<std::string, std::vector<double>> theirs;
  for (int round = 0; round < options.rounds; ++round) {
    STEPC_ASSIGN(const double rate, training.round());
    ours.push_back(rate);
    if (!opponent) continue;
    for (const std::string& form : opponent->forms) {
      STEPC_ASSIGN(const double other, opponent_round(*opponent, form));
      theirs[form].push_back(other);
    }
  }
  TrainingResult result{config.preset, device.thread_count(), summarise(ours), {}, opponent ? opponent->version : ""};
  for (auto& [form, rates] : theirs) result.torch[form] = summarise(std::move(rates));
  return result;
}

double training_ratio(const TrainingResult& result) {
  double best = 0;
  for (const auto& [form, rate] : result.torch) best = std::max(best, rate.median);
  return result.ours.median / best;
}

std::string training_text(const TrainingResult& result) {
  const auto line = [](const std::string& side, const Times& t) {
    return fmt::format("  {:<14} {:>8.0f} tokens/s [{:.0f}, {:.0f}]\n", side, t.median, t.low, t.high);
  };
  std::string text = fmt::format("training step of preset {}\n", result.preset) + line("stepc", result.ours);
  for (const auto& [form, rate] : result.torch) text += line("PyTorch " + form, rate);
  if (!result.torch.empty())
    text += fmt::format("  ratio {:.2f} to the faster form (wanted {:.2f}), PyTorch {} eager\n", training_ratio(result),
                        kWantedRatio, result.torch_version);
  return text;
}

}  // namespace stepc::bench
