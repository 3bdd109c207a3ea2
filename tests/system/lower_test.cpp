// From graph to running code on this machine: lower, load, execute, compared with the reference evaluator.
#include "compiler/lower.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "compiler/emit/host.h"
#include "ir/graph/builder.h"
#include "ir/graph/evaluate.h"
#include "ir/plan/bundle_io.h"
#include "runtime/executor.h"
#include "runtime/host/host_device.h"

namespace stepc {
namespace {

TensorType f32(Shape shape) { return {Dtype::f32, std::move(shape)}; }

// One kernel an op: what lowering does must not depend on the fuser.
void group_each(Program& program) {
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const Op op = program.nodes[n].op;
    const OpFamily family = op_info(op).family;
    if (op == Op::input || op == Op::param || op == Op::state || op == Op::reshape || family == OpFamily::effect)
      continue;
    const Template schedule = op == Op::matmul                ? Template::matmul
                              : family == OpFamily::reduction ? Template::row
                                                              : Template::pointwise;
    program.groups.push_back({fmt::format("k{}", n), schedule, {static_cast<NodeId>(n)}});
  }
}

// loss = mean((x w + b)^2); w and b step along a made-up gradient, through a matmul and a row reduction.
Module small_module() {
  Module module{"small", {}, {}};
  module.persistents.push_back({"w", f32({13, 7}), true, Arena::weights});
  module.persistents.push_back({"b", f32({7}), true, Arena::weights});
  GraphBuilder g(module, "step");
  const ValueId x = g.input("x", f32({5, 13}));
  const ValueId lr = g.input("lr", f32({}));
  const ValueId w = g.persistent("w"), b = g.persistent("b");
  const ValueId product = g.matmul(x, w, Dtype::f32);
  const ValueId y = g.add(product, g.broadcast(b, {5, 7}, {1}));
  const ValueId squares = g.mul(y, y);
  const ValueId rows = g.reduce(Op::reduce_sum, squares, {1});
  g.output("rows", rows);
  const ValueId dw = g.matmul(x, y, Dtype::f32, true, false);
  g.assign("w", g.sub(w, g.mul(dw, g.broadcast(lr, {13, 7}, {}))));
  g.assign("b", g.mul(b, 0.5));
  g.output("y", y);
  group_each(g.program());
  return module;
}

struct Machine {
  explicit Machine(int threads) : device(make_host_device(loader_function(), threads)) {}
  ObjectLoader loader_function() {
    return [this](const std::string& object, const std::string& symbol) -> Result<void*> {
      STEPC_ASSIGN(const HostKernelFunction function, loader.load(object, symbol));
      return reinterpret_cast<void*>(function);
    };
  }
  HostLoader loader;
  std::unique_ptr<Device> device;
};

std::vector<float> test_values(int64_t count, int seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((static_cast<int>(i) * 37 + seed * 11) % 64 - 32) / 32;
  return values;
}

HostTensorView view(const TensorType& type, const std::vector<float>& values) {
  return {type, {reinterpret_cast<const char*>(values.data()), values.size() * 4}};
}

std::vector<float> floats(const HostTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

void check_near(const std::vector<float>& values, const Tensor& expected) {
  REQUIRE(values.size() == expected.data.size());
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == doctest::Approx(expected.data[i]).epsilon(1e-5));
}

using Results = std::map<std::string, std::vector<float>>;

// Two steps; outputs and persistent tensors by name.
Results run_two_steps(const Bundle& bundle, int threads) {
  Machine machine(threads);
  const auto executor = Executor::create(*machine.device, bundle).value();
  const std::vector<float> w = test_values(91, 1), b = test_values(7, 2), x = test_values(65, 3), lr = {0.125f};
  REQUIRE(executor->write_persistent("w", view(f32({13, 7}), w)).has_value());
  REQUIRE(executor->write_persistent("b", view(f32({7}), b)).has_value());
  Results results;
  for (int step = 0; step < 2; ++step) {
    const auto outputs = executor->run("step", {{"x", view(f32({5, 13}), x)}, {"lr", view(f32({}), lr)}},
                                       {.check = true, .poison = true});
    REQUIRE_MESSAGE(outputs.has_value(), outputs.error().text());
    for (const auto& [name, tensor] : *outputs) results[name] = floats(tensor);
  }
  for (const char* name : {"w", "b"}) results[name] = floats(executor->read_persistent(name).value());
  return results;
}

Tensor tensor(const TensorType& type, const std::vector<float>& values) {
  return {type, std::vector<double>(values.begin(), values.end())};
}

TEST_CASE("a lowered program computes what the evaluator does, the same bits at any thread count") {
  const Module module = small_module();
  const auto bundle = lower_host(module, detect_host_target(), {.run_passes = false});
  REQUIRE_MESSAGE(bundle.has_value(), bundle.error().text());
  const Results results = run_two_steps(*bundle, 1);
  CHECK(run_two_steps(*bundle, 3) == results);
  TensorMap persistents = {{"w", tensor(f32({13, 7}), test_values(91, 1))}, {"b", tensor(f32({7}), test_values(7, 2))}};
  const TensorMap inputs = {{"x", tensor(f32({5, 13}), test_values(65, 3))}, {"lr", tensor(f32({}), {0.125f})}};
  TensorMap outputs;
  for (int step = 0; step < 2; ++step) outputs = evaluate(module.programs[0], persistents, inputs).value();
  check_near(results.at("rows"), outputs.at("rows"));
  check_near(results.at("y"), outputs.at("y"));
  check_near(results.at("w"), persistents.at("w"));
  check_near(results.at("b"), persistents.at("b"));
}

TEST_CASE("a bundle from the cache, and one from disk, is the same bundle") {
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("stepc-lower-{}", ::getpid())).string();
  std::vector<std::string> progress;
  LowerOptions options{.run_passes = false, .cache_folder = folder + "/cache", .threads = 2};
  options.progress = [&](int done, int total, const std::string&) {
    progress.push_back(fmt::format("{}/{}", done, total));
  };
  const Bundle first = lower_host(small_module(), detect_host_target(), options).value();
  const auto entries = [&] {
    return std::distance(std::filesystem::recursive_directory_iterator(folder + "/cache"), {});
  };
  CHECK(progress.size() == first.kernels.size());
  CHECK(progress.back() == fmt::format("{0}/{0}", first.kernels.size()));
  const auto stored = entries();
  CHECK(stored >= static_cast<int64_t>(first.kernels.size()));
  CHECK(lower_host(small_module(), detect_host_target(), options).value() == first);
  CHECK(entries() == stored);
  CHECK(lower_host(small_module(), baseline_host_target(), options).value().target ==
        host_target_text(baseline_host_target()));
  REQUIRE(save_bundle(first, folder + "/bundle").has_value());
  const Bundle loaded = load_bundle(folder + "/bundle").value();
  CHECK(loaded == first);
  CHECK(run_two_steps(loaded, 2) == run_two_steps(first, 2));
  std::filesystem::remove_all(folder);
}

TEST_CASE("equal kernels are compiled once, and named by what they do") {
  Module module{"m", {}, {}};
  GraphBuilder g(module, "p");
  ValueId x = g.input("x", f32({3, 5}));
  for (int i = 0; i < 4; ++i) x = g.unary(Op::neg, x);
  g.output("y", x);
  g.output("z", g.unary(Op::exp, x));
  group_each(g.program());
  const Bundle bundle = lower_host(module, detect_host_target(), {.run_passes = false}).value();
  REQUIRE(bundle.kernels.size() == 2);
  CHECK(bundle.plans[0].steps.size() == 5);
  CHECK(bundle.kernels[0].name.ends_with(bundle.kernels[0].key.substr(0, 12)));
  CHECK(bundle.kernels[0].name != bundle.kernels[1].name);
}

}  // namespace
}  // namespace stepc
