// stepc_bench: how fast our host kernels are, beside PyTorch in the same run. Rounds of both sides take turns,
// so that what else the machine does hits both; medians over all rounds are compared.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/bench/host_side.h"
#include "tools/bench/torch_side.h"

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
};

struct Times {
  double median = 0;
  double low = 0;  // quartiles
  double high = 0;
};

Times summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1))];
  };
  return {at(0.5), at(0.25), at(0.75)};
}

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

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
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

Status run(const Options& options) {
  ThreadPool pool(options.threads);
  std::optional<TorchSide> torch;
  if (!options.without_torch) {
    const std::string script = STEPC_SOURCE_DIR "/tools/bench/torch_side.py";
    STEPC_ASSIGN(TorchSide started, TorchSide::start(options.python, script, pool.threads(), options.cpu_time));
    torch.emplace(std::move(started));
  }
  nlohmann::ordered_json json{
      {"cpu", cpu_name()}, {"date", date()}, {"threads", pool.threads()}, {"clock", options.cpu_time ? "cpu" : "wall"}};
  if (torch) json["pytorch_version"] = torch->version();
  fmt::print("{}, {} threads, {}{}\n", cpu_name(), pool.threads(), date(),
             torch ? ", PyTorch " + torch->version() : "");
  for (const Case& test : all_cases()) {
    if (test.name.find(options.only) == std::string::npos) continue;
    STEPC_ASSIGN(const Measured measured, measure(test, options, pool, torch));
    print(measured);
    json["cases"].push_back(to_json(measured));
  }
  if (options.json.empty()) return {};
  std::ofstream file(options.json, std::ios::app);
  file << json.dump() << "\n";
  return file ? Status{} : system_error("cannot write {}", options.json);
}

}  // namespace
}  // namespace stepc::bench

int main(int argc, char** argv) {
  stepc::bench::Options options;
  CLI::App app{"Times stepc's host contractions beside PyTorch's."};
  app.add_option("--threads", options.threads, "threads of both sides; 0: one per processor");
  app.add_option("--seconds", options.seconds, "measured time per case and side");
  app.add_option("--only", options.only, "cases whose name contains this");
  app.add_option("--python", options.python, "the interpreter that has PyTorch");
  app.add_option("--json", options.json, "appends the run to this file as one line of JSON");
  app.add_flag("--cpu-time", options.cpu_time, "one thread, in its processor time: for a busy machine");
  app.add_flag("--without-torch", options.without_torch, "our side alone");
  CLI11_PARSE(app, argc, argv);
  if (options.cpu_time) options.threads = 1;
  const stepc::Status status = stepc::bench::run(options);
  if (status) return 0;
  fmt::print(stderr, "stepc_bench: {}\n", status.error().text());
  return status.error().exit_code();
}
