// stepc train on the emulator: graphs, waits, poison and separate buffers change no bit; what the start took is told; a
// second start compiles nothing; a step that is no number is explained.
#include <doctest/doctest.h>

#include <filesystem>

#include "ir/text/json.h"
#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::run_stepc;
using test::run_stepc_well;
using test::TempDir;

std::vector<std::string> emulator_arguments(const TempDir& folder, const std::string& run,
                                            const std::vector<std::string>& more) {
  // Heads of a size that GPUs have templates for.
  std::vector<std::string> all = {"--device", "emulator",    "--set", "heads=1",
                                  "--set",    "head_dim=16", "--set", "steps=4"};
  all.insert(all.end(), more.begin(), more.end());
  return test::train_arguments(folder, run, all);
}

TEST_CASE("gpu train: graphs, waits, poison and separate buffers change no bit") {
  const TempDir folder;
  test::make_shards(folder);
  std::vector<std::string> setting;
  SUBCASE("step") {}
  SUBCASE("accumulated and clipped, with held-out losses and checkpoints on the way") {
    setting = {
        "--set", "accumulation=3",     "--set", "clip=0.1", "--held-out", folder.file("held.tok"), "--eval-every",
        "2",     "--checkpoint-every", "1"};
  }
  const auto tensors = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), setting.begin(), setting.end());
    run_stepc_well(emulator_arguments(folder, name, more));
    return test::tensors_of(folder, name, 4);
  };
  const std::string wanted = tensors("graphs", {});
  CHECK(tensors("walked", {"--no-graph"}) == wanted);
  CHECK(tensors("poisoned", {"--poison", "--emulator-seed", "9"}) == wanted);
  CHECK(tensors("separate", {"--separate-buffers", "--poison"}) == wanted);
  CHECK(tensors("waited", {"--sync"}) == wanted);
  if (setting.empty()) return;
  // The losses on the way too: each checkpoint holds what that many updates made.
  CHECK(test::tensors_of(folder, "graphs", 2) == test::tensors_of(folder, "waited", 2));
}

TEST_CASE("gpu train: the start is told, and a second one compiles nothing") {
  const TempDir folder;
  test::make_shards(folder);
  const auto started = [&](const std::string& run) {
    const std::string out =
        run_stepc_well(emulator_arguments(folder, run, {"--no-checkpoint", "--cache", folder.file("cache")})).out;
    CHECK_MESSAGE(out.find(" kernels ready in ") != std::string::npos, out);
    CHECK_MESSAGE(out.find("first step done ") != std::string::npos, out);
    const std::string metrics = test::text_of(folder.file(run + "/metrics.jsonl"));
    const JsonValue first = parse_json(metrics.substr(0, metrics.find('\n')), "metrics").value();
    const JsonCursor start = JsonCursor(first, "metrics").member("start").value();
    CHECK(metrics.find("\"start\"", metrics.find('\n')) == std::string::npos);
    CHECK(start.member("process_seconds").value().number().value() >=
          start.member("first_step_seconds").value().number().value());
    return std::pair(start.integer("kernels").value(), start.integer("compiled").value());
  };
  const auto [kernels, compiled] = started("cold");
  CHECK(kernels > 10);
  CHECK(compiled == kernels);
  CHECK(started("warm") == std::pair<int64_t, int64_t>(kernels, 0));
}

TEST_CASE("train: additions in no fixed order are told where there are any, not where they are merely allowed") {
  const TempDir folder;
  test::make_shards(folder);
  const auto told = [&](std::vector<std::string> arguments) {
    for (const char* more : {"--set", "steps=1", "--no-checkpoint"}) arguments.emplace_back(more);
    const std::string out = run_stepc_well(arguments).out;
    const size_t at = out.find("attention_gradient=atomic ");
    return at == std::string::npos ? "" : out.substr(at, out.find('\n', at) - at);
  };
  const std::string nothing =
      "attention_gradient=atomic changes nothing here: no kernel of this run adds in any other than a fixed order";
  const std::vector<std::string> atomic = {"--set", "attention_gradient=atomic"};
  CHECK(told(test::train_arguments(folder, "host", atomic)) == nothing);
  CHECK(told(emulator_arguments(folder, "portable", atomic)) == nothing);  // Hopper's template takes no heads of 16
  CHECK(told(emulator_arguments(folder, "fixed", {})) == "");
  const std::vector<std::string> hopper = {
      "--set", "attention_gradient=atomic", "--set", "dim=64", "--set", "head_dim=64", "--set", "batch=1"};
  CHECK(told(emulator_arguments(folder, "hopper", hopper)) ==
        "attention_gradient=atomic adds in no fixed order: another run may not give the same bits");
}

TEST_CASE("gpu train: a step that is no number ends the run, named, with the weights of the step before") {
  const TempDir folder;
  test::make_shards(folder);
  const auto result = run_stepc(
      emulator_arguments(folder, "run", {"--set", "lr=1e30", "--set", "warmup=0", "--checkpoint-every", "1"}));
  CHECK(result.exit_code == 1);
  CHECK(test::count_of(result.err, "\n") == 1);
  // As many lines as steps with a loss that is a number; the checkpoint of the last of them is the newest.
  const int good = test::count_of(test::text_of(folder.file("run/metrics.jsonl")), "\n");
  CHECK(good > 0);
  CHECK_MESSAGE(result.err.starts_with(fmt::format("stepc: step {}: program @step: step ", good + 1)), result.err);
  CHECK(result.err.find(" made NaN in %") != std::string::npos);
  CHECK(std::filesystem::exists(test::checkpoint_of(folder, "run", good)));
  CHECK_FALSE(std::filesystem::exists(test::checkpoint_of(folder, "run", good + 1)));
}

}  // namespace
}  // namespace stepc
