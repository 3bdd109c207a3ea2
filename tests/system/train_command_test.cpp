// stepc train: the same bits every time, at any thread count, and across every kind of interruption.
#include <doctest/doctest.h>

#include <csignal>

#include "ir/text/json.h"
#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::checkpoint_of;
using test::run_stepc;
using test::run_stepc_well;
using test::TempDir;
using test::tensors_of;
using test::train_arguments;

struct Metrics {
  std::vector<int64_t> steps;
  std::vector<double> losses;
  std::vector<std::pair<int64_t, double>> held_out;
};

Metrics metrics_of(const TempDir& folder, const std::string& run) {
  Metrics metrics;
  std::istringstream lines(test::text_of(folder.file(run + "/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const JsonValue value = parse_json(line, "metrics").value();
    const JsonCursor cursor(value, "metrics");
    const int64_t step = cursor.integer("step").value();
    if (const auto loss = cursor.member("loss")) {
      metrics.steps.push_back(step);
      metrics.losses.push_back(*loss->value().as<double>());
    } else {
      metrics.held_out.emplace_back(step, *cursor.member("held_out_loss").value().value().as<double>());
    }
  }
  return metrics;
}

std::vector<int64_t> steps_to(int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step) steps.push_back(step);
  return steps;
}

TEST_CASE("train: two runs, any thread count, and 10 + resume + 10 end in the same bits") {
  const TempDir folder;
  test::make_shards(folder);
  run_stepc_well(train_arguments(folder, "once", {"--threads", "1", "--held-out", folder.file("held.tok")}));
  const std::string wanted = tensors_of(folder, "once", 20);
  for (const char* threads : {"1", "2", "3"}) {
    const std::string run = std::string("threads-") + threads;
    run_stepc_well(train_arguments(folder, run, {"--threads", threads}));
    CHECK_MESSAGE(tensors_of(folder, run, 20) == wanted, run);
  }
  const Metrics once = metrics_of(folder, "once");
  CHECK(once.steps == steps_to(20));
  REQUIRE(once.held_out.size() == 1);
  CHECK(once.held_out[0].first == 20);

  const auto halves = [&](const std::vector<std::string>& more) {
    return run_stepc_well(train_arguments(folder, "halves", more));
  };
  CHECK(halves({"--stop-after", "10", "--threads", "2"}).out.find("trained 10 steps") != std::string::npos);
  CHECK(halves({"--stop-after", "3", "--threads", "1"}).out.find("(step 10)") != std::string::npos);
  CHECK(halves({}).out.find("trained 7 steps") != std::string::npos);
  CHECK(tensors_of(folder, "halves", 20) == wanted);
  const Metrics metrics = metrics_of(folder, "halves");
  CHECK(metrics.steps == once.steps);
  CHECK(metrics.losses == once.losses);
  // The chart has the steps from before.
  CHECK(test::text_of(folder.file("halves/loss.svg")) == test::text_of(folder.file("threads-1/loss.svg")));

  CHECK(halves({}).out == checkpoint_of(folder, "halves", 20) + " is trained: 20 of 20 steps\n");
  CHECK(tensors_of(folder, "halves", 20) == wanted);
}

TEST_CASE("train: a signal saves, exits with 143, and the run goes on to the same bits") {
  const TempDir folder;
  test::make_shards(folder);
  const std::vector<std::string> long_run = {"--set", "steps=1000000", "--set", "schedule=constant", "--threads", "1"};
  test::Command command(train_arguments(folder, "run", long_run));
  REQUIRE(command.wait_for("step      1/1000000"));
  command.signal(SIGTERM);
  const auto ended = command.finish();
  CHECK(ended.exit_code == 143);
  CHECK(ended.err.empty());
  const auto steps = static_cast<int>(metrics_of(folder, "run").steps.back());
  CHECK(std::filesystem::exists(checkpoint_of(folder, "run", steps) + "/DONE"));
  const auto resumed = run_stepc_well(
      train_arguments(folder, "run", {"--set", "steps=1000000", "--set", "schedule=constant", "--stop-after", "5"}));
  CHECK(resumed.out.find(fmt::format("(step {})", steps)) != std::string::npos);
  run_stepc_well(train_arguments(
      folder, "whole",
      {"--set", "steps=1000000", "--set", "schedule=constant", "--stop-after", std::to_string(steps + 5)}));
  CHECK(tensors_of(folder, "run", steps + 5) == tensors_of(folder, "whole", steps + 5));
}

TEST_CASE("train: the loss falls, routed, dense, clipped and accumulated") {
  const TempDir folder;
  test::make_shards(folder);
  std::vector<std::string> more = {"--set", "steps=60", "--held-out", folder.file("held.tok"), "--eval-every", "20"};
  double start = 4.9;  // ln 128 and a little
  const auto add = [&](const char* setting) { more.insert(more.end(), {"--set", setting}); };
  SUBCASE("routed") {}
  SUBCASE("dense, clipped") {
    for (const char* setting : {"experts=1", "top=1", "clip=0.5"}) add(setting);
  }
  SUBCASE("accumulated") { add("accumulation=2"); }
  run_stepc_well(train_arguments(folder, "run", more));
  const Metrics metrics = metrics_of(folder, "run");
  CHECK(metrics.steps == steps_to(60));
  CHECK(metrics.losses[0] == doctest::Approx(start).epsilon(0.1));
  CHECK(metrics.losses.back() < 2.6);
  REQUIRE(metrics.held_out.size() == 3);
  CHECK(metrics.held_out[2].first == 60);
  CHECK(metrics.held_out[2].second < metrics.held_out[0].second);
  CHECK(metrics.held_out[2].second < 2.6);
}

TEST_CASE(
    "train: a trace of the average step has every kernel after the one before; without checkpoints none is left") {
  const TempDir folder;
  test::make_shards(folder);
  const std::string trace = folder.file("trace.json");
  run_stepc_well(train_arguments(folder, "run", {"--set", "steps=3", "--trace", trace, "--no-checkpoint"}));
  CHECK_FALSE(std::filesystem::exists(folder.file("run/checkpoints")));
  const JsonValue value = parse_json(test::text_of(trace), "trace").value();
  double end = 0;
  int kernels = 0, names = 0;
  const std::vector<JsonCursor> events = JsonCursor(value, "trace").member("traceEvents").value().items().value();
  for (const JsonCursor& event : events) {
    names += event.string("ph").value() == "M";
    if (event.string("ph").value() != "X") continue;
    ++kernels;
    CHECK(event.member("ts").value().number().value() == doctest::Approx(end));
    end += event.member("dur").value().number().value();
  }
  CHECK(names == 1);
  CHECK(kernels > 20);
  CHECK(end > 0);
}

TEST_CASE("train: accumulation 2 is resumed to the same bits; checkpoints beyond --keep go") {
  const TempDir folder;
  test::make_shards(folder);
  const std::vector<std::string> twice = {"--set", "accumulation=2", "--set", "steps=6"};
  run_stepc_well(train_arguments(folder, "once", twice));
  std::vector<std::string> half = twice;
  half.insert(half.end(), {"--stop-after", "3", "--checkpoint-every", "1", "--keep", "2"});
  run_stepc_well(train_arguments(folder, "halves", half));
  CHECK_FALSE(std::filesystem::exists(checkpoint_of(folder, "halves", 1)));
  CHECK(std::filesystem::exists(checkpoint_of(folder, "halves", 2)));
  run_stepc_well(train_arguments(folder, "halves", half));
  CHECK(tensors_of(folder, "halves", 6) == tensors_of(folder, "once", 6));
}

TEST_CASE("train: what does not go on from the checkpoint is refused and leaves the run as it was") {
  const TempDir folder;
  test::make_shards(folder);
  run_stepc_well(train_arguments(folder, "run", {"--stop-after", "2"}));
  const auto files = test::files_below(folder.file("run"));
  const std::string metrics = test::text_of(folder.file("run/metrics.jsonl"));
  const std::string place = checkpoint_of(folder, "run", 2);
  const auto refused = [&](const std::vector<std::string>& more) {
    const auto result = run_stepc(train_arguments(folder, "run", more));
    CHECK(result.exit_code == 2);
    CHECK(result.out.find("saved") == std::string::npos);
    CHECK(test::files_below(folder.file("run")) == files);
    CHECK(test::text_of(folder.file("run/metrics.jsonl")) == metrics);
    return result.err;
  };
  CHECK(refused({"--set", "ffn=48"}) == "stepc: " + place +
                                            " was trained with \"ffn\": 24, this run asks for \"ffn\": 48; --fresh "
                                            "starts anew, only steps and lr may change\n");
  CHECK(refused({"--set", "seed=3"}).find("\"seed\": 1, this run asks for \"seed\": 3;") != std::string::npos);
  CHECK(refused({"--sequential"}) ==
        "stepc: " + place + " was trained with shuffled windows, this run asks for --sequential\n");
  const auto other = [&] {
    std::string error = refused({"--data", folder.file("held.tok")});
    const size_t hash = error.find("SHA-256 ");
    return error.substr(0, hash + 8) + error.substr(hash + 8 + 64, 11);
  };
  CHECK(other() ==
        "stepc: " + place + " was trained on another shard than " + folder.file("held.tok") + " (SHA-256 , expected ");
  // Not even --fresh deletes anything before the new run can start.
  CHECK(refused({"--fresh", "--set", "dim=15"}) == "stepc: dim: expected heads x head_dim = 2 x 8 = 16, found 15\n");
  CHECK(refused({"--data", folder.file("held.tok"), "--fresh", "--set", "seq=9999"}).find("held.tok") !=
        std::string::npos);
  run_stepc_well(train_arguments(folder, "run", {"--fresh", "--set", "seed=3", "--stop-after", "1"}));
  CHECK(metrics_of(folder, "run").steps == steps_to(1));
  CHECK_FALSE(std::filesystem::exists(place));
}

TEST_CASE("train: a step that is no number ends the run, named, with the checkpoints before it") {
  const TempDir folder;
  test::make_shards(folder);
  const auto result =
      run_stepc(train_arguments(folder, "run", {"--set", "lr=1e30", "--set", "warmup=0", "--checkpoint-every", "1"}));
  CHECK(result.exit_code == 1);
  CHECK(test::count_of(result.err, "\n") == 1);
  CHECK(result.err.starts_with("stepc: step "));
  CHECK(result.err.find(" made NaN in %") != std::string::npos);
  const Metrics metrics = metrics_of(folder, "run");
  REQUIRE_FALSE(metrics.steps.empty());
  CHECK(std::filesystem::exists(checkpoint_of(folder, "run", static_cast<int>(metrics.steps.back()))));
  CHECK_FALSE(std::filesystem::exists(checkpoint_of(folder, "run", static_cast<int>(metrics.steps.back()) + 1)));
}

TEST_CASE("train: damaged checkpoints and shards are named") {
  const TempDir folder;
  test::make_shards(folder);
  run_stepc_well(train_arguments(folder, "run", {"--stop-after", "1"}));
  const std::string tensors = checkpoint_of(folder, "run", 1) + "/tensors.safetensors";
  const std::string whole = test::text_of(tensors);
  const auto refused = [&](const std::vector<std::string>& arguments) {
    const auto result = run_stepc(arguments);
    CHECK(result.exit_code == 2);
    CHECK(test::count_of(result.err, "\n") == 1);
    return result.err;
  };
  test::write_text(tensors, whole.substr(0, whole.size() - 1));
  CHECK(refused(train_arguments(folder, "run")) == fmt::format("stepc: {}: the tensors end at byte {}, but the file "
                                                               "has {} bytes\n",
                                                               tensors, whole.size(), whole.size() - 1));
  test::write_text(tensors, whole.substr(0, 5));
  CHECK(refused(train_arguments(folder, "run")) ==
        fmt::format("stepc: {}: 5 bytes are too few for a safetensors file\n", tensors));
  const std::string state = checkpoint_of(folder, "run", 1) + "/state.json";
  test::write_text(state, "{\n  \"version\": 2\n}\n");
  CHECK(refused(train_arguments(folder, "run")).find("checkpoint version 2, expected 1") != std::string::npos);

  const std::string shard = test::text_of(folder.file("train.tok"));
  test::write_text(folder.file("cut.tok"), shard.substr(0, shard.size() - 2));
  CHECK(refused(train_arguments(folder, "new", {"--data", folder.file("cut.tok")})).find("the header promises") !=
        std::string::npos);
  test::write_text(folder.file("large.tok"), shard.substr(0, shard.size() - 2) + std::string("\x80\x00", 2));
  CHECK(refused(train_arguments(folder, "new", {"--data", folder.file("large.tok")})) ==
        fmt::format("stepc: {}: token {} has id 128, but the vocabulary has 128 entries\n", folder.file("large.tok"),
                    (shard.size() - 24) / 2 - 1));
  test::write_text(folder.file("short"), "too short");
  run_stepc_well({"data", folder.file("short"), "--train", folder.file("short.tok")});
  CHECK(refused(train_arguments(folder, "new", {"--data", folder.file("short.tok")})).find("short.tok") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("new")));
}

}  // namespace
}  // namespace stepc
