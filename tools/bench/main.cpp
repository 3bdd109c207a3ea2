// stepc_bench: how fast our host kernels are, beside PyTorch in the same run. Rounds of both sides take turns,
// so that what else the machine does hits both; medians over all rounds are compared.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/bench/host_side.h"
#include "tools/bench/times.h"
#include "tools/bench/torch_side.h"
#include "tools/bench/training.h"

namespace stepc::bench {
namespace {

struct Options {
  int threads = 0;
  double seconds = 1;
  std::string only;
  bool without_torch = false;
  bool cpu_time = false;
  std::string python = "/usr/bin/python3";
  std::string json;
  bool training = false;
  int rounds = 40;
};

struct Measured {
  Case test;
  std::string config;
  Times ours;
  std::optional<Times> torch;
};

double sum(const std::vector<double>& values) {
  double total = 0;
  for (double value : values) total += value;
  return total;
}

// Rounds of a few milliseconds a side until `seconds` have been measured.
Result<Measured> measure(const Case& test, const Options& options, ThreadPool& pool, std::optional<TorchSide>& torch) {
  constexpr double kRound = 0.02;
  STEPC_ASSIGN(HostSide host, HostSide::make(test, pool, options.cpu_time));
  if (torch) STEPC_TRY(torch->prepare(test));
  const double once = sum(host.run(4)) / 4;
  if (torch) STEPC_TRY(torch->run(4));
  const int count = std::clamp(static_cast<int>(kRound / once), 1, 200);
  std::vector<double> ours, theirs;
  while (sum(ours) < options.seconds) {
    const std::vector<double> round = host.run(count);
    ours.insert(ours.end(), round.begin(), round.end());
    if (!torch) continue;
    STEPC_ASSIGN(const std::vector<double> other, torch->run(count));
    theirs.insert(theirs.end(), other.begin(), other.end());
  }
  Measured measured{test, host.config(), summarise(ours), std::nullopt};
  if (torch) measured.torch = summarise(theirs);
  return measured;
}

void print(const Measured& measured) {
  const auto rate = [&](double seconds) { return measured.test.flops() / seconds * 1e-9; };
  const Times& ours = measured.ours;
  std::string line = fmt::format("{:<32} {:>8.1f} GFLOP/s [{:.1f}, {:.1f}]", measured.test.name, rate(ours.median),
                                 rate(ours.high), rate(ours.low));
  if (measured.torch) {
    const Times& torch = *measured.torch;
    line += fmt::format("   PyTorch {:>8.1f} [{:.1f}, {:.1f}]   ratio {:.2f}", rate(torch.median), rate(torch.high),
                        rate(torch.low), torch.median / ours.median);
    if (measured.test.wanted_ratio > 0) line += fmt::format(" (wanted {:.2f})", measured.test.wanted_ratio);
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const Measured& measured) {
  const auto times = [](const Times& t) {
    return nlohmann::ordered_json{{"median_s", t.median}, {"quartile1_s", t.low}, {"quartile3_s", t.high}};
  };
  nlohmann::ordered_json json{{"name", measured.test.name},
                              {"flops", measured.test.flops()},
                              {"config", measured.config},
                              {"stepc", times(measured.ours)}};
  if (measured.torch) {
    json["pytorch"] = times(*measured.torch);
    json["ratio"] = measured.torch->median / measured.ours.median;
  }
  return json;
}

Status append_line(const nlohmann::ordered_json& json, const std::string& path) {
  if (path.empty()) return {};
  std::ofstream file(path, std::ios::app);
  file << json.dump() << "\n";
  return file ? Status{} : system_error("cannot write {}", path);
}

nlohmann::ordered_json heading(const Options& options, int threads) {
  return {{"cpu", cpu_name()}, {"date", date()}, {"threads", threads}, {"clock", options.cpu_time ? "cpu" : "wall"}};
}

Status run_products(const Options& options) {
  ThreadPool pool(options.threads);
  std::optional<TorchSide> torch;
  if (!options.without_torch) {
    const std::string script = STEPC_SOURCE_DIR "/tools/bench/torch_side.py";
    STEPC_ASSIGN(TorchSide started, TorchSide::start(options.python, script, pool.threads(), options.cpu_time));
    torch.emplace(std::move(started));
  }
  nlohmann::ordered_json json = heading(options, pool.threads());
  if (torch) json["pytorch_version"] = torch->version();
  fmt::print("{}, {} threads, {}{}\n", cpu_name(), pool.threads(), date(),
             torch ? ", PyTorch " + torch->version() : "");
  for (const Case& test : all_cases()) {
    if (test.name.find(options.only) == std::string::npos) continue;
    STEPC_ASSIGN(const Measured measured, measure(test, options, pool, torch));
    print(measured);
    json["cases"].push_back(to_json(measured));
  }
  return append_line(json, options.json);
}

Status run_training(const Options& options) {
  TrainingOptions training{options.threads, options.rounds, options.cpu_time,
                           options.without_torch ? "" : options.python};
  STEPC_ASSIGN(const TrainingResult result, measure_training(training));
  fmt::print("{}, {} threads, {}\n{}", cpu_name(), result.threads, date(), training_text(result));
  nlohmann::ordered_json json = heading(options, result.threads);
  const auto times = [](const Times& t) {
    return nlohmann::ordered_json{{"median", t.median}, {"quartile1", t.low}, {"quartile3", t.high}};
  };
  if (!result.torch.empty()) json["pytorch_version"] = result.torch_version;
  json["training_step"] = result.preset;
  json["rounds"] = options.rounds;
  json["tokens_per_second"]["stepc"] = times(result.ours);
  for (const auto& [form, rate] : result.torch) json["tokens_per_second"]["pytorch " + form] = times(rate);
  if (!result.torch.empty()) json["ratio"] = training_ratio(result);
  return append_line(json, options.json);
}

}  // namespace
}  // namespace stepc::bench

int main(int argc, char** argv) {
  stepc::bench::Options options;
  CLI::App app{"Times stepc's host contractions, or a whole training step, beside PyTorch's."};
  app.add_option("--threads", options.threads, "threads of both sides; 0: one per processor");
  app.add_option("--seconds", options.seconds, "measured time per case and side");
  app.add_option("--only", options.only, "cases whose name contains this");
  app.add_option("--python", options.python, "the interpreter that has PyTorch");
  app.add_option("--json", options.json, "appends the run to this file as one line of JSON");
  app.add_flag("--cpu-time", options.cpu_time, "one thread, in its processor time: for a busy machine");
  app.add_flag("--training", options.training, "a training step of preset tiny instead of contractions");
  app.add_option("--rounds", options.rounds, "turns that each side takes at training");
  app.add_flag("--without-torch", options.without_torch, "our side alone");
  CLI11_PARSE(app, argc, argv);
  if (options.cpu_time) options.threads = 1;
  const stepc::Status status =
      options.training ? stepc::bench::run_training(options) : stepc::bench::run_products(options);
  if (status) return 0;
  fmt::print(stderr, "stepc_bench: {}\n", status.error().text());
  return status.error().exit_code();
}
