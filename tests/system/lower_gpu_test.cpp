// From graph to a bundle for a GPU, and its kernels on the emulator (or a card, with STEPC_DEVICE=cuda).
#include "compiler/lower_gpu.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ir/graph/builder.h"
#include "ir/plan/bundle_io.h"
#include "runtime/executor.h"
#include "tests/support/gpu.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"
#include "tests/system/machine.h"

namespace stepc {
namespace {

// y = a * b, with tails in every direction.
Module product_module() {
  Module module{"product", {}, {}};
  GraphBuilder g(module, "main");
  const ValueId a = g.input("a", {Dtype::bf16, {130, 96}}), b = g.input("b", {Dtype::bf16, {96, 136}});
  g.output("y", g.matmul(a, b, Dtype::f32));
  return module;
}

Tensor counted(const TensorType& type, int step) {
  Tensor tensor{type, {}};
  for (int64_t i = 0; i < numel(type.shape); ++i) tensor.data.push_back(static_cast<double>((i * step % 61) - 30) / 16);
  return tensor;
}

TEST_CASE("gpu: a lowered product computes what the evaluator does, the same bits whatever the order") {
  if (!test::gpu_runs("sm_90a")) return test::skip("lower-gpu", "the card is no sm_90a");
  const Module module = product_module();
  const TensorMap inputs = {{"a", counted({Dtype::bf16, {130, 96}}, 7)}, {"b", counted({Dtype::bf16, {96, 136}}, 11)}};
  TensorMap persistents;
  const Tensor wanted = evaluate(module.programs[0], persistents, inputs).value().at("y");
  test::Machine first(module, GpuTarget{"sm_90a"}, 1), second(module, GpuTarget{"sm_90a"}, 2);
  const Tensor found = first.run("main", inputs).at("y");
  for (size_t i = 0; i < wanted.data.size(); ++i)
    REQUIRE(found.data[i] == doctest::Approx(wanted.data[i]).epsilon(1e-5));
  CHECK(second.run("main", inputs).at("y").data == found.data);
}

TEST_CASE("gpu: tensors that differ by their stream of random numbers share a kernel, and are the evaluator's") {
  Module module{"random", {}, {}};
  GraphBuilder g(module, "main");
  const TensorType scalar{Dtype::i32, {}};
  const ValueId seed = g.input("seed", scalar);
  const std::vector<int64_t> streams = {7, -9, INT32_MAX, INT32_MIN};
  for (int64_t stream : streams) {
    const auto key = g.constant(static_cast<double>(stream), scalar);
    const auto bits = g.emit1(Op::random_bits, {seed, key, g.constant(0, scalar)}, {}, {Dtype::i32, {100}});
    g.output(fmt::format("bits.{}", stream), bits);
  }
  TensorMap persistents;
  const TensorMap inputs = {{"seed", {scalar, {12345}}}};
  const TensorMap wanted = evaluate(module.programs[0], persistents, inputs).value();
  test::Machine machine(module, GpuTarget{"sm_80"});
  CHECK(machine.bundle().kernels.size() == 1);
  std::vector<int64_t> passed;
  for (const PlanStep& step : machine.bundle().plans[0].steps)
    if (const auto* launch = std::get_if<LaunchStep>(&step.action))
      passed.insert(passed.end(), launch->scalars.begin(), launch->scalars.end());
  CHECK(passed == streams);
  for (const auto& [name, tensor] : machine.run("main", inputs)) CHECK(tensor.data == wanted.at(name).data);
}

TEST_CASE("gpu: a bundle from the cache, and one from disk, is the same bundle") {
  const test::TempDir folder;
  GpuLowerOptions options{.common = {.cache_folder = folder.file("cache"), .threads = 2}};
  const Bundle first = lower_gpu(product_module(), {"sm_90a"}, options).value().bundle;
  CHECK(first.target == "cuda sm_90a");
  REQUIRE(first.kernels.size() == 1);
  CHECK(first.kernels[0].launch.threads % 32 == 0);
  CHECK(first.kernels[0].launch.maps.size() >= 2);
  CHECK(first.kernels[0].object.find(".target sm_90a") != std::string::npos);
  CHECK(first.plans[0].alignment_bytes == kGpuAlignmentBytes);
  CHECK(lower_gpu(product_module(), {"sm_90a"}, options).value().bundle == first);
  REQUIRE(save_bundle(first, folder.file("bundle")).has_value());
  CHECK(load_bundle(folder.file("bundle")).value() == first);
}

TEST_CASE("gpu: cubins and reports come from ptxas") {
  GpuLowerOptions options{.cubin = true};
  CHECK(lower_gpu(product_module(), {"sm_90a"}, options).error().text() ==
        "cubins need ptxas: put it in PATH or set STEPC_PTXAS; without it the driver compiles PTX");
  options.ptxas = find_ptxas().value();
  if (!options.ptxas) return test::skip("lower-cubin", "no ptxas");
  const GpuLowered lowered = lower_gpu(product_module(), {"sm_90a"}, options).value();
  REQUIRE(lowered.reports.size() == lowered.bundle.kernels.size());
  CHECK(lowered.bundle.kernels[0].object.starts_with("\177ELF"));
  CHECK(lowered.reports[0].registers > 0);
  CHECK_FALSE(lowered.reports[0].uses_local_memory());
}

TEST_CASE("gpu: architectures and groups that there is nothing for are named") {
  CHECK(gpu_target("sm_91a").error().text() ==
        "unknown architecture 'sm_91a'; did you mean 'sm_90a'?; there are templates for sm_80, sm_89, sm_90a");
  // No GPU template takes heads of 6 elements.
  Module module{"heads", {}, {}};
  GraphBuilder g(module, "main");
  const ValueId qkv = g.input("qkv", {Dtype::bf16, {1, 4, 3, 2, 6}});
  g.output("out", g.emit(Op::attention, {qkv}, {{AttrKey::causal, true}, {AttrKey::scale, 0.5}})[0]);
  const auto lowered = lower_gpu(std::move(module), {"sm_90a"});
  REQUIRE_FALSE(lowered.has_value());
  CHECK(lowered.error().exit_code() == 2);
  const std::string text = lowered.error().text();
  CHECK_MESSAGE(text.starts_with("kernel @"), text);
  CHECK_MESSAGE(text.find(" of @main: ") != std::string::npos, text);
}

}  // namespace
}  // namespace stepc
