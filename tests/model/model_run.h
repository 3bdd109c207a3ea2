// Runs a model's programs with the reference evaluator.
#pragma once

#include <doctest/doctest.h>

#include <random>

#include "compiler/graph/autodiff.h"
#include "ir/graph/evaluate.h"
#include "model/programs.h"
#include "model/schedule.h"

namespace stepc::test {

// A model that the evaluator runs in milliseconds, with odd sizes and dropped assignments.
inline Config small_config() {
  Config config;
  config.model = {.vocab = 61,
                  .vocab_padded = 64,
                  .dim = 12,
                  .heads = 2,
                  .head_dim = 6,
                  .layers = 2,
                  .ffn = 10,
                  .experts = 4,
                  .top = 2,
                  .seq = 7};
  config.train = {.batch = 3, .steps = 10, .seed = 7, .lr = 1e-3};
  return config;
}

inline Tensor scalar(double value, Dtype dtype = Dtype::f32) {
  return {{dtype, {}}, {dtype == Dtype::f32 ? static_cast<double>(static_cast<float>(value)) : value}};
}

inline Tensor random_ids(std::mt19937& random, const Config& config, int64_t batch) {
  Tensor ids{{Dtype::i32, {batch, config.model.seq}}, {}};
  for (int64_t i = 0; i < batch * config.model.seq; ++i)
    ids.data.push_back(static_cast<double>(random() % static_cast<uint32_t>(config.model.vocab)));
  return ids;
}

class ModelRun {
 public:
  ModelRun(const Config& config, const Differentiate& differentiate)
      : ModelRun(config, build_module(config, differentiate)) {}
  ModelRun(const Config& config, Module module) : config_(config), module_(std::move(module)) {
    for (const Persistent& persistent : module_.persistents)
      tensors_[persistent.name] = {persistent.type,
                                   std::vector<double>(static_cast<size_t>(numel(persistent.type.shape)), -1.0)};
    run("init", {{"seed", scalar(static_cast<double>(config.train.seed), Dtype::i32)}});
  }

  TensorMap run(std::string_view program, const TensorMap& inputs, TensorMap* trace = nullptr) {
    const Program* found = module_.find_program(program);
    REQUIRE(found != nullptr);
    Result<TensorMap> outputs = evaluate(*found, tensors_, inputs, Precision::f32, trace);
    if (!outputs) FAIL(outputs.error().text());
    return *std::move(outputs);
  }

  // Every step-varying scalar that the program asks for, beside the given inputs.
  TensorMap with_scalars(std::string_view program, TensorMap inputs, int64_t step) const {
    const StepScalars values = step_scalars(config_.train, step);
    const std::pair<const char*, double> all[] = {{"lr", values.lr},
                                                  {"inv_bias1", values.inv_bias1},
                                                  {"inv_bias2", values.inv_bias2},
                                                  {"aux_coefficient", values.aux_coefficient}};
    for (const Node& node : module_.find_program(program)->nodes)
      for (const auto& [name, value] : all)
        if (node.op == Op::input && node.attrs.text(AttrKey::name) == name) inputs[name] = scalar(value);
    return inputs;
  }

  const Module& module() const { return module_; }
  TensorMap& tensors() { return tensors_; }

 private:
  Config config_;
  Module module_;
  TensorMap tensors_;
};

}  // namespace stepc::test
