// Three training steps and an evaluation of a model on a machine, beside the reference evaluator.
#pragma once

#include "tests/model/model_run.h"
#include "tests/support/oracle.h"
#include "tests/system/machine.h"

namespace stepc::test {

// Sizes that Hopper's copy engine can take: rows of whole 16 bytes.
inline Config even_config() {
  Config config;
  config.model = {.vocab = 61,
                  .vocab_padded = 64,
                  .dim = 64,
                  .heads = 1,
                  .head_dim = 64,
                  .layers = 1,
                  .ffn = 64,
                  .experts = 2,
                  .top = 2,
                  .seq = 33};
  config.train = {.batch = 2, .steps = 10, .seed = 7, .lr = 1e-3};
  return config;
}

// Every persistent tensor after each step, as vectors: single elements near 0 take Adam's steps in either direction.
// The machine has the module of `config`; `first` is the relative error that is allowed after one step;
// outputs are sums, and may differ by less.
inline void check_model_steps(const Config& config, Machine& machine, double first = 2e-3) {
  ModelRun reference(config, stepc::differentiate);
  machine.run("init", {{"seed", scalar(static_cast<double>(config.train.seed), Dtype::i32)}});
  for (const auto& [name, tensor] : reference.tensors()) {
    CAPTURE(name);
    REQUIRE(machine.read(name).data == tensor.data);  // bit for bit: no sums in it
  }
  std::mt19937 random(3);
  const auto both = [&](std::string_view program, const TensorMap& given, int64_t step) {
    const TensorMap inputs = reference.with_scalars(program, given, step);
    const TensorMap wanted = reference.run(program, inputs);
    const TensorMap found = machine.run(program, inputs);
    REQUIRE(found.size() == wanted.size());
    for (const auto& [name, tensor] : found) {
      CAPTURE(name);
      CHECK(relative_error(tensor.data, wanted.at(name).data) <= std::max(1e-3, first / 5));
    }
  };
  for (int64_t step = 0; step < 3; ++step) {
    for (int64_t turn = 0; turn < config.train.accumulation; ++turn) {
      const TensorMap ids = {{"tokens", random_ids(random, config, config.train.batch)},
                             {"targets", random_ids(random, config, config.train.batch)}};
      both(config.train.accumulation == 1 ? "step" : "micro_step", ids, step);
    }
    if (config.train.accumulation > 1) both("update", {}, step);
    for (const auto& [name, tensor] : reference.tensors()) {
      CAPTURE(name);
      CAPTURE(step);
      CHECK(relative_error(machine.read(name).data, tensor.data) <= (step == 0 ? first : 2e-2));
    }
  }
  const TensorMap ids = {{"tokens", random_ids(random, config, config.train.batch)},
                         {"targets", random_ids(random, config, config.train.batch)}};
  both("eval", ids, 3);
}

}  // namespace stepc::test
