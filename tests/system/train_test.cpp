// A small model of the real kind (attention, RoPE, routed experts, AdamW) trained through the whole compiler.
#include <doctest/doctest.h>

#include <cstring>

#include "compiler/emit/host.h"
#include "compiler/graph/autodiff.h"
#include "compiler/lower.h"
#include "ir/graph/evaluate.h"
#include "model/config.h"
#include "model/programs.h"
#include "model/schedule.h"
#include "runtime/executor.h"
#include "runtime/host/host_device.h"

namespace stepc {
namespace {

Config small_config() {
  Config config = preset_config("tiny").value();
  for (const char* field :
       {"vocab=64", "vocab_padded=64", "dim=64", "heads=1", "layers=1", "ffn=32", "seq=24", "batch=2"})
    REQUIRE(override_config(config, field).has_value());
  REQUIRE(validate(config).has_value());
  return config;
}

struct Inputs {
  std::map<std::string, TensorType> types;
  std::map<std::string, std::vector<char>> bytes;

  void scalar(const std::string& name, double value) {
    const auto f32 = static_cast<float>(value);
    types[name] = {Dtype::f32, {}};
    bytes[name].assign(reinterpret_cast<const char*>(&f32), reinterpret_cast<const char*>(&f32) + 4);
  }
  void ids(const std::string& name, const Shape& shape, int64_t first, int64_t factor) {
    std::vector<int32_t> values(static_cast<size_t>(numel(shape)));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int32_t>((static_cast<int64_t>(i) * static_cast<int64_t>(i + 3) * factor + first) % 64);
    types[name] = {Dtype::i32, shape};
    bytes[name].assign(reinterpret_cast<const char*>(values.data()),
                       reinterpret_cast<const char*>(values.data() + values.size()));
  }
  std::map<std::string, HostTensorView> views() const {
    std::map<std::string, HostTensorView> views;
    for (const auto& [name, type] : types) views[name] = {type, bytes.at(name)};
    return views;
  }
};

Inputs step_inputs(const Config& config, int64_t step) {
  Inputs inputs;
  const Shape shape = {config.train.batch, config.model.seq};
  inputs.ids("tokens", shape, step, 5);
  inputs.ids("targets", shape, step + 7, 3);
  const StepScalars scalars = step_scalars(config.train, step);
  inputs.scalar("lr", scalars.lr);
  inputs.scalar("inv_bias1", scalars.inv_bias1);
  inputs.scalar("inv_bias2", scalars.inv_bias2);
  inputs.scalar("aux_coefficient", scalars.aux_coefficient);
  return inputs;
}

Inputs init_inputs() {
  Inputs inputs;
  inputs.types["seed"] = {Dtype::i32, {}};
  inputs.bytes["seed"] = {5, 0, 0, 0};
  return inputs;
}

Tensor to_tensor(const HostTensor& host) {
  Tensor tensor{host.type, {}};
  const auto read = [&](auto sample, auto convert) {
    for (size_t at = 0; at < host.bytes.size(); at += sizeof sample) {
      std::memcpy(&sample, host.bytes.data() + at, sizeof sample);
      tensor.data.push_back(static_cast<double>(convert(sample)));
    }
  };
  switch (host.type.dtype) {
    case Dtype::f32: read(float{}, [](float v) { return v; }); break;
    case Dtype::bf16: read(uint16_t{}, f32_from_bf16); break;
    case Dtype::i32: read(int32_t{}, [](int32_t v) { return v; }); break;
    case Dtype::pred: read(uint8_t{}, [](uint8_t v) { return v; }); break;
  }
  return tensor;
}

using Bytes = std::map<std::string, std::vector<char>>;

struct Trained {
  Bytes persistents;
  std::vector<float> losses;
};

Trained train(const Bundle& bundle, const Config& config, int threads, const RunOptions& options) {
  HostLoader loader;
  const auto load = [&](const std::string& object, const std::string& symbol) -> Result<void*> {
    STEPC_ASSIGN(const HostKernelFunction function, loader.load(object, symbol));
    return reinterpret_cast<void*>(function);
  };
  const auto device = make_host_device(load, threads);
  const auto executor = Executor::create(*device, bundle).value();
  REQUIRE(executor->run("init", init_inputs().views(), options).has_value());
  Trained trained;
  for (int64_t step = 0; step < 3; ++step) {
    const auto outputs = executor->run("step", step_inputs(config, step).views(), options);
    REQUIRE_MESSAGE(outputs.has_value(), outputs.error().text());
    trained.losses.push_back(static_cast<float>(to_tensor(outputs->at("loss")).data[0]));
  }
  for (const PersistentPlacement& tensor : bundle.persistents.tensors)
    trained.persistents[tensor.name] = executor->read_persistent(tensor.name).value().bytes;
  return trained;
}

TEST_CASE("training gives the same bits at any thread count, with and without poison, and the evaluator's losses") {
  const Config config = small_config();
  const Module module = build_module(config, differentiate);
  const auto bundle = lower_host(module, detect_host_target());
  REQUIRE_MESSAGE(bundle.has_value(), bundle.error().text());
  const Trained once = train(*bundle, config, 1, {});
  CHECK(once.losses[0] == doctest::Approx(4.3).epsilon(0.1));  // ln 64 and a little
  for (int threads : {1, 2, 5}) {
    const Trained again = train(*bundle, config, threads, {.check = true, .poison = true});
    CHECK(again.losses == once.losses);
    CHECK(again.persistents == once.persistents);
  }
  TensorMap persistents;
  const auto evaluator_run = [&](std::string_view program, const Inputs& inputs) {
    TensorMap tensors;
    for (const auto& [name, type] : inputs.types) tensors[name] = to_tensor({type, inputs.bytes.at(name)});
    return evaluate(*module.find_program(program), persistents, tensors).value();
  };
  for (const Persistent& p : module.persistents)
    persistents[p.name] = {p.type, std::vector<double>(static_cast<size_t>(numel(p.type.shape)), 0.0)};
  evaluator_run("init", init_inputs());
  for (int64_t step = 0; step < 3; ++step) {
    const TensorMap outputs = evaluator_run("step", step_inputs(config, step));
    CHECK(once.losses[static_cast<size_t>(step)] == doctest::Approx(outputs.at("loss").data[0]).epsilon(2e-3));
  }
}

}  // namespace
}  // namespace stepc
