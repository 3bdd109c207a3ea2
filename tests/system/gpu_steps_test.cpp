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
