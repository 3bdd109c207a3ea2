// stepc_gpu_bench: our kernels on a GPU beside cuBLAS, cuDNN and flash attention through PyTorch, on the same card in
// the same run. Rounds of both sides take turns, so that both meet the same clocks; medians are compared. Every case is
// first checked against samples in double precision.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tools/bench/gpu/gpu_side.h"
#include "tools/bench/line_process.h"
#include "tools/bench/times.h"

namespace stepc::bench {
namespace {

struct Options {
  std::string only;
  std::string python = "python3";
  std::string script = STEPC_SOURCE_DIR "/tools/bench/gpu/gpu_torch.py";
  std::string json;
  bool without_torch = false;
  int rounds = 8;
  double round_ms = 60;
};

struct Opponent {
  std::string request;
  Times times;
};

struct Measured {
  double error = 0;
  std::string config;
  Times ours;
  std::vector<Opponent> opponents;
  const Opponent* best() const {
    const Opponent* fastest = nullptr;
    for (const Opponent& each : opponents)
      if (!fastest || each.times.median < fastest->times.median) fastest = &each;
    return fastest;
  }
};

std::vector<double> numbers(const std::string& text) {
  std::istringstream stream(text);
  std::vector<double> values;
  for (double x = 0; stream >> x;) values.push_back(x);
  return values;
}

int runs_for(double once_ms, double round_ms) { return std::clamp(static_cast<int>(round_ms / once_ms), 1, 200); }

// Turns of both sides for one of the opponent's forms, ours added to `ours`.
Result<Times> measure_opponent(GpuSide& side, LineProcess& torch, const std::string& request, const Options& options,
                               std::vector<double>& ours) {
  STEPC_ASSIGN(const std::string ready, torch.ask(request));
  if (ready != "ready") return user_error("PyTorch, asked '{}': {}", request, ready);
  STEPC_ASSIGN(const std::string warm, torch.ask("run 3"));
  if (numbers(warm).empty()) return user_error("PyTorch, asked '{}': {}", request, warm);
  STEPC_ASSIGN(const std::vector<double> first, side.run(2));
  const int count = runs_for(first.back(), options.round_ms);
  std::vector<double> theirs;
  for (int round = 0; round < options.rounds; ++round) {
    STEPC_ASSIGN(const std::vector<double> mine, side.run(count));
    ours.insert(ours.end(), mine.begin(), mine.end());
    STEPC_ASSIGN(const std::string answer, torch.ask(fmt::format("run {}", count)));
    const std::vector<double> other = numbers(answer);
    if (other.empty()) return user_error("PyTorch, asked '{}': {}", request, answer);
    theirs.insert(theirs.end(), other.begin(), other.end());
  }
  return summarise(theirs);
}

Result<Measured> measure(const GpuCase& test, CudaDevice& device, const GpuTarget& target, const Options& options,
                         std::optional<LineProcess>& torch) {
  STEPC_ASSIGN(const std::unique_ptr<GpuSide> side, GpuSide::make(test, device, target));
  Measured measured;
  measured.config = side->config();
  STEPC_ASSIGN(measured.error, test.error(*side));
  std::vector<double> ours;
  if (torch) {
    for (const std::string& request : test.requests) {
      auto times = measure_opponent(*side, *torch, request, options, ours);
      if (times)
        measured.opponents.push_back({request, *times});
      else
        fmt::print("  {}\n", times.error().text());
    }
  }
  if (ours.empty()) {
    STEPC_ASSIGN(const std::vector<double> first, side->run(3));
    STEPC_ASSIGN(ours, side->run(options.rounds * runs_for(first.back(), options.round_ms)));
  }
  measured.ours = summarise(ours);
  return measured;
}

void print(const GpuCase& test, const Measured& measured) {
  const auto rate = [&](double ms) { return test.flops / ms * 1e-9; };
  std::string line =
      fmt::format("{:<32} {:>8.3f} ms {:>7.1f} TFLOP/s [{:.1f}, {:.1f}] error {:.1e}", test.name, measured.ours.median,
                  rate(measured.ours.median), rate(measured.ours.high), rate(measured.ours.low), measured.error);
  if (test.bytes > 0) line += fmt::format(" {:>6.0f} GB/s", test.bytes / measured.ours.median * 1e-6);
  if (const Opponent* best = measured.best())
    line += fmt::format("   torch {:>7.1f} [{:.1f}, {:.1f}]   ratio {:.3f} (wanted {:.2f})", rate(best->times.median),
                        rate(best->times.high), rate(best->times.low), best->times.median / measured.ours.median,
                        test.wanted_ratio);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const GpuCase& test, const Measured& measured) {
  const auto times = [](const Times& t) {
    return nlohmann::ordered_json{{"median_ms", t.median}, {"quartile1_ms", t.low}, {"quartile3_ms", t.high}};
  };
  nlohmann::ordered_json json{{"name", test.name},         {"flops", test.flops},     {"bytes", test.bytes},
                              {"config", measured.config}, {"error", measured.error}, {"stepc", times(measured.ours)}};
  for (const Opponent& opponent : measured.opponents) json["pytorch"][opponent.request] = times(opponent.times);
  if (const Opponent* best = measured.best()) json["ratio"] = best->times.median / measured.ours.median;
  return json;
}

// A case that fails does not hide the others, but the run's exit code tells.
Result<bool> run(const Options& options) {
  STEPC_ASSIGN(Driver driver, open_driver());
  STEPC_ASSIGN(const std::unique_ptr<CudaDevice> device, make_cuda_device(std::move(driver)));
  STEPC_ASSIGN(const GpuTarget target, gpu_target(device->info().target));
  std::optional<LineProcess> torch;
  nlohmann::ordered_json json{{"card", device->info().name}, {"date", date()}, {"rounds", options.rounds}};
  json["driver"] = cuda_version_text(device->info().driver_version);
  if (!options.without_torch) {
    STEPC_ASSIGN(LineProcess process, LineProcess::start({options.python, options.script}));
    torch.emplace(std::move(process));
    STEPC_ASSIGN(const std::string version, torch->ask("version"));
    json["pytorch"] = version;
  }
  fmt::print("{}, {}{}\n", device->info().name, date(), torch ? ", " + json["pytorch"].get<std::string>() : "");
  bool all_good = true;
  for (const GpuCase& test : gpu_cases()) {
    if (test.name.find(options.only) == std::string::npos) continue;
    const auto measured = measure(test, *device, target, options, torch);
    constexpr double kLargestError = 0.02;  // bf16 results and roundings in between
    if (!measured || measured->error > kLargestError || std::isnan(measured->error)) {
      all_good = false;
      fmt::print("{:<32} FAILED: {}\n", test.name,
                 measured ? fmt::format("error {}", measured->error) : measured.error().text());
      if (!measured) continue;
    }
    print(test, *measured);
    json["cases"].push_back(to_json(test, *measured));
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json, std::ios::app);
    file << json.dump() << "\n";
    if (!file) return system_error("cannot write {}", options.json);
  }
  return all_good;
}

}  // namespace
}  // namespace stepc::bench

int main(int argc, char** argv) {
  stepc::bench::Options options;
  CLI::App app{"Times stepc's kernels on a GPU beside PyTorch's."};
  app.add_option("--only", options.only, "cases whose name contains this");
  app.add_option("--rounds", options.rounds, "turns that each side takes at a case");
  app.add_option("--round-ms", options.round_ms, "length of a turn");
  app.add_option("--python", options.python, "the interpreter that has PyTorch with CUDA");
  app.add_option("--script", options.script, "PyTorch's side");
  app.add_option("--json", options.json, "appends the run to this file as one line of JSON");
  app.add_flag("--without-torch", options.without_torch, "our side alone");
  CLI11_PARSE(app, argc, argv);
  const auto good = stepc::bench::run(options);
  if (good) return *good ? 0 : 1;
  fmt::print(stderr, "stepc_gpu_bench: {}\n", good.error().text());
  return good.error().exit_code();
}
