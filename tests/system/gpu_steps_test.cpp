// Whole training steps of a very small mixture of experts on a GPU: the emulator, or the card with STEPC_DEVICE=cuda.
#include "tests/support/gpu.h"
#include "tests/support/skip.h"
#include "tests/system/model_steps.h"

namespace stepc {
namespace {

using test::Machine;

// On a GPU attention rounds its weights to bf16 before they are divided by their row's sum, the evaluator after: its
// results differ by a rounding, and what is made of them by some. Sequences of one token have weights of 1, and leave
// everything else to be compared closely.
constexpr double kBesideAttention = 2e-3;
constexpr double kWithAttention = 2e-2;

void check_on(const std::string& arch, const Config& config) {
  if (!test::gpu_runs(arch)) return test::skip("gpu-steps-" + arch, "the card runs no code for it");
  Machine machine(build_module(config, stepc::differentiate), GpuTarget{arch});
  CHECK(machine.bundle().target == "cuda " + arch);
  test::check_model_steps(config, machine, config.model.seq == 1 ? kBesideAttention : kWithAttention);
}

TEST_CASE("gpu: three steps of a small model for sm_90a are the evaluator's") {
  Config config = test::even_config();
  SUBCASE("whole") {}
  SUBCASE("beside attention") { config.model.seq = 1, config.train.batch = 67; }
  check_on("sm_90a", config);
}

// Tensors after two steps, and how many kernels the step is.
std::pair<TensorMap, size_t> after_steps(const Config& config, bool updates_apart) {
  Machine machine(build_module(config, stepc::differentiate), GpuTarget{"sm_90a"}, 1, {}, updates_apart);
  test::ModelRun inputs(config, stepc::differentiate);
  machine.run("init", {{"seed", test::scalar(static_cast<double>(config.train.seed), Dtype::i32)}});
  std::mt19937 random(3);
  for (int64_t step = 0; step < 2; ++step)
    machine.run("step", inputs.with_scalars("step",
                                            {{"tokens", test::random_ids(random, config, config.train.batch)},
                                             {"targets", test::random_ids(random, config, config.train.batch)}},
                                            step));
  TensorMap tensors;
  for (const auto& [name, tensor] : inputs.tensors()) tensors[name] = machine.read(name);
  size_t launches = 0;
  for (const Plan& plan : machine.bundle().plans)
    if (plan.program == "step") launches = plan.steps.size();
  return {tensors, launches};
}

TEST_CASE("gpu: updates in the products of their gradients and apart give the same bits") {
  if (!test::gpu_runs("sm_90a")) return test::skip("gpu-updates", "the card runs no code for it");
  const Config config = test::even_config();
  const auto [together, fewer] = after_steps(config, false);
  const auto [apart, more] = after_steps(config, true);
  CHECK(fewer < more);
  for (const auto& [name, tensor] : together) {
    CAPTURE(name);
    CHECK(tensor.data == apart.at(name).data);
  }
}

TEST_CASE("gpu: three steps of a small model of odd sizes for sm_80 are the evaluator's") {
  Config config = test::small_config();
  config.model.dim = 16, config.model.heads = 1, config.model.head_dim = 16;  // what the portable attention takes
  config.model.layers = 1;
  SUBCASE("whole") {}
  SUBCASE("beside attention") { config.model.seq = 1, config.train.batch = 21; }
  SUBCASE("dense, clipped") { config.model.experts = config.model.top = 1, config.train.clip = 0.5; }
  SUBCASE("accumulated") { config.train.accumulation = 2; }
  check_on("sm_80", config);
}

}  // namespace
}  // namespace stepc
