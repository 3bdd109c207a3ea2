// Training with everything made again in backward that can be: the same bits, in less memory.
#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/graph/autodiff.h"
#include "compiler/plan/report.h"
#include "tests/system/model_steps.h"
#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::Machine;

const FitOptions kAll{Recompute::all, INT64_MAX};

void check_same_training(const Config& config, Machine& kept, Machine& again, int64_t steps) {
  const test::ModelRun model(config, differentiate);  // for its inputs
  std::mt19937 random(3);
  const auto both = [&](std::string_view program, const TensorMap& given, int64_t step) {
    const TensorMap inputs = model.with_scalars(program, given, step);
    const TensorMap expected = kept.run(program, inputs), found = again.run(program, inputs);
    REQUIRE(found.size() == expected.size());
    for (const auto& [name, tensor] : expected) CHECK_MESSAGE(found.at(name).data == tensor.data, name);
  };
  both("init", {{"seed", test::scalar(static_cast<double>(config.train.seed), Dtype::i32)}}, 0);
  for (int64_t step = 0; step < steps; ++step) {
    const TensorMap ids = {{"tokens", test::random_ids(random, config, config.train.batch)},
                           {"targets", test::random_ids(random, config, config.train.batch)}};
    both(config.train.accumulation == 1 ? "step" : "micro_step", ids, step);
    if (config.train.accumulation > 1) both("update", {}, step);
  }
  for (const PersistentPlacement& tensor : kept.bundle().persistents.tensors)
    CHECK_MESSAGE(again.read(tensor.name).data == kept.read(tensor.name).data, tensor.name);
}

void check_less_memory(const Bundle& kept, const Bundle& again, const std::string& program) {
  CHECK(again.find_plan(program)->activations_bytes < kept.find_plan(program)->activations_bytes);
  CHECK(again.find_plan(program)->steps.size() > kept.find_plan(program)->steps.size());
  const auto is_choice = [&](const BundleChoice& choice) { return choice.subject == program + "/recompute"; };
  CHECK(std::none_of(kept.choices.begin(), kept.choices.end(), is_choice));
  const auto choice = std::find_if(again.choices.begin(), again.choices.end(), is_choice);
  REQUIRE(choice != again.choices.end());
  CHECK(choice->choice.starts_with("all: "));
  CHECK(choice->choice.find("values made again in backward: ") != std::string::npos);
}

TEST_CASE("recompute: training on the host is the same to the bit") {
  Config config = test::small_config();
  config.train.batch = 5;
  SUBCASE("routed") {}
  SUBCASE("dense, clipped") { config.model.experts = config.model.top = 1, config.train.clip = 0.5; }
  SUBCASE("accumulated") { config.train.accumulation = 2; }
  Machine kept(build_module(config, differentiate));
  Machine again(build_module(config, differentiate), 2, detect_host_target(), kAll);
  check_same_training(config, kept, again, 4);
  check_less_memory(kept.bundle(), again.bundle(), config.train.accumulation == 1 ? "step" : "micro_step");
}

TEST_CASE("recompute: training on a GPU is the same to the bit") {
  Config config = test::even_config();
  config.model.layers = 2;
  std::string arch = "sm_90a";
  SUBCASE("sm_90a") {}
  SUBCASE("sm_80") { arch = "sm_80"; }
  Machine kept(build_module(config, differentiate), GpuTarget{arch});
  Machine again(build_module(config, differentiate), GpuTarget{arch}, 1, kAll);
  check_same_training(config, kept, again, 1);
  check_less_memory(kept.bundle(), again.bundle(), "step");
}

TEST_CASE("recompute: a bundle fits the memory that it is given") {
  const Config config = test::small_config();
  const auto need = [](const Bundle& bundle) {
    return memory_need(*bundle.find_plan("step"), bundle.persistents).total_bytes;
  };
  const auto lowered = [&](const FitOptions& fit) {
    LowerOptions options;
    options.fit = fit;
    options.cache_folder = STEPC_BINARY_DIR "/tests/cache/stepc";
    return lower_host(build_module(config, differentiate), detect_host_target(), options).value();
  };
  const int64_t most = need(lowered({})), least = need(lowered(kAll));
  REQUIRE(least < most);
  const int64_t available = (least + most) / 2;
  const Bundle some = lowered({Recompute::automatic, available});
  CHECK(need(some) <= available);
  CHECK(need(lowered({Recompute::automatic, most})) == most);
}

TEST_CASE("recompute: `stepc train` ends in the same checkpoint, and says what it does") {
  const test::TempDir folder;
  test::make_shards(folder);
  const auto run = [&](const char* name, const char* recompute) {
    return test::run_stepc_well(
               test::train_arguments(folder, name, {"--recompute", recompute, "--set", "steps=3", "--set", "warmup=1"}))
        .out;
  };
  CHECK(run("kept", "none").find("made again") == std::string::npos);
  CHECK(run("again", "all").find("recompute step: all: ") != std::string::npos);
  CHECK(run("auto", "auto").find("made again") == std::string::npos);
  const std::string kept = test::tensors_of(folder, "kept", 3);
  CHECK(!kept.empty());
  CHECK(test::tensors_of(folder, "again", 3) == kept);
}

}  // namespace
}  // namespace stepc
