// The presets compiled for every GPU that they are meant for: no group without a template, and where there is a ptxas
// no kernel with spills or local memory (the command fails on those).
#include <doctest/doctest.h>

#include <regex>

#include "compiler/lower_gpu.h"
#include "ir/plan/bundle_io.h"
#include "tests/support/skip.h"
#include "tests/system/command.h"

namespace stepc {
namespace {

// bf16 is for memory and products: no ordinary arithmetic in it.
void check_no_bf16_arithmetic(const BundleKernel& kernel) {
  static const std::regex arithmetic(R"(\b(add|sub|mul|fma|min|max|neg|abs|ex2|tanh)\.([a-z0-9]+\.)*bf16)");
  std::smatch found;
  CHECK_MESSAGE(!std::regex_search(kernel.object, found, arithmetic), kernel.name << ": " << found.str());
}

void check_preset(const std::string& preset, const std::string& arch) {
  CAPTURE(preset);
  CAPTURE(arch);
  if (!find_ptxas().value()) test::skip("ptxas-" + preset + "-" + arch, "no ptxas: spills are not looked for");
  const test::TempDir folder;
  const auto result = test::run_stepc({"compile", "--preset", preset, "--arch", arch, "-o", folder.file("bundle")});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  const Bundle bundle = load_bundle(folder.file("bundle")).value();
  CHECK(bundle.kernels.size() > 50);
  for (const BundleKernel& kernel : bundle.kernels) check_no_bf16_arithmetic(kernel);
  for (const char* program : {"init", "step", "eval", "sample"}) CHECK(bundle.find_plan(program) != nullptr);
}

TEST_CASE("presets: tiny for every architecture") {
  for (const std::string_view arch : gpu_architectures()) check_preset("tiny", std::string(arch));
}

TEST_CASE("presets: moe-4b for sm_90a") { check_preset("moe-4b", "sm_90a"); }

}  // namespace
}  // namespace stepc
