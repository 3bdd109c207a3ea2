// Programs and models for GPUs by the command line: compiled, dumped, run and trained without one.
#include <doctest/doctest.h>

#include <filesystem>

#include "compiler/ptxas/ptxas.h"
#include "ir/plan/bundle_io.h"
#include "runtime/safetensors.h"
#include "tests/support/skip.h"
#include "tests/system/machine.h"
#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::run_stepc_well;
using test::TempDir;

constexpr const char* kGraph = R"(module "softplus"

program @main {
  %x: f32[37, 50] = input {name="x"}
  %e: f32[37, 50] = exp(%x)
  %one: f32[37, 50] = constant {value=1}
  %sum: f32[37, 50] = add(%e, %one)
  %y: f32[37, 50] = log(%sum)
  %row: f32[37] = reduce_sum(%y) {axes=[1]}
  output(%y) {name="y"}
  output(%row) {name="row"}
}
)";

TEST_CASE("compile: a bundle for each architecture, with what ptxas says of its kernels") {
  const TempDir folder;
  const std::string graph = folder.file("g.gir");
  test::write_text(graph, kGraph);
  const bool has_ptxas = find_ptxas().value().has_value();
  for (const std::string arch : {"sm_80", "sm_89", "sm_90a"}) {
    CAPTURE(arch);
    const std::string out = folder.file(arch);
    const std::string said = run_stepc_well({"compile", graph, "--arch", arch, "-o", out}).out;
    const Bundle bundle = load_bundle(out).value();
    CHECK(bundle.target == "cuda " + arch);
    for (const BundleKernel& kernel : bundle.kernels) {
      CHECK(kernel.launch.threads > 0);
      CHECK(kernel.object.find(".target " + arch) != std::string::npos);
      CHECK(kernel.object.find(".visible .entry " + kernel.name) != std::string::npos);
      CHECK_MESSAGE((said.find(kernel.name) != std::string::npos) == has_ptxas, said);
    }
    CHECK(said.find(fmt::format("1 programs, {} kernels, ", bundle.kernels.size())) != std::string::npos);
    CHECK((said.find("not checked for spills") == std::string::npos) == has_ptxas);
  }
  if (!has_ptxas) return test::skip("compile-cubin", "no ptxas");
  run_stepc_well({"compile", graph, "--arch", "sm_80", "--cubin", "-o", folder.file("cubin")});
  const Bundle cubins = load_bundle(folder.file("cubin")).value();
  for (const BundleKernel& kernel : cubins.kernels) CHECK(kernel.object.starts_with("\177ELF"));
}

TEST_CASE("dump: a kernel for a GPU at every level") {
  const TempDir folder;
  const std::string graph = folder.file("g.gir");
  test::write_text(graph, kGraph);
  const std::string ptx = run_stepc_well({"dump", graph, "--arch", "sm_80", "--stage", "ptx"}).out;
  CHECK(ptx.find(".visible .entry ") != std::string::npos);
  const std::string kernel = run_stepc_well({"dump", graph, "--arch", "sm_80", "--stage", "kernel"}).out;
  CHECK(kernel.find(" cuda\n") != std::string::npos);
  run_stepc_well({"dump", graph, "--arch", "sm_80", "--dump-dir", folder.file("d")});
  int files = 0;
  for (const std::string& file : test::files_below(folder.file("d"))) files += file.ends_with(".ptx") ? 1 : 0;
  CHECK(files > 0);
}

TEST_CASE("devices: a program on the emulator computes what the CPU does") {
  const TempDir folder;
  const std::string graph = folder.file("g.gir");
  test::write_text(graph, kGraph);
  Tensor x{{Dtype::f32, {37, 50}}, {}};
  for (int i = 0; i < 37 * 50; ++i) x.data.push_back((i * 37 % 64 - 32) / 16.0);
  const HostTensor bytes = test::to_host(x);
  REQUIRE(write_safetensors(folder.file("in"), {{"x", bytes.type, bytes.bytes}}).has_value());
  const auto run_on = [&](const std::vector<std::string>& device) {
    std::vector<std::string> arguments = {"run", graph, "--inputs", folder.file("in"), "--outputs", folder.file("out")};
    arguments.insert(arguments.end(), device.begin(), device.end());
    run_stepc_well(arguments);
    const SafetensorsFile file = SafetensorsFile::open(folder.file("out")).value();
    const auto y = file.tensor("y", {Dtype::f32, {37, 50}}).value();
    return test::from_host({{Dtype::f32, {37, 50}}, {y.begin(), y.end()}}).data;
  };
  const std::vector<double> host = run_on({"--device", "host"});
  for (const auto& device : {std::vector<std::string>{"--device", "emulator"},
                             {"--device", "emulator", "--arch", "sm_80", "--emulator-seed", "5"}}) {
    const std::vector<double> found = run_on(device);
    for (size_t i = 0; i < host.size(); ++i) CHECK(found[i] == doctest::Approx(host[i]).epsilon(1e-5));
  }
}

TEST_CASE("devices: training goes on the emulator from a checkpoint of the CPU") {
  const TempDir folder;
  test::make_shards(folder);
  // Heads of a size that GPUs have templates for.
  const auto arguments = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--set", "heads=1", "--set", "head_dim=16", "--stop-after", "1"});
    return test::train_arguments(folder, "run", more);
  };
  run_stepc_well(arguments({}));
  run_stepc_well(arguments({"--device", "emulator"}));
  CHECK(std::filesystem::exists(test::checkpoint_of(folder, "run", 2)));
}

}  // namespace
}  // namespace stepc
