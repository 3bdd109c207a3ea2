// Faults planted in the portable contraction kernel: cp.async, CTA barriers, mma.sync.
#include "compiler/schedule/cuda/templates.h"
#include "tests/hopper/planted.h"

namespace stepc::test {
namespace {

PlantedKernel portable_product() {
  const GroupCase test{"", Template::matmul, [](GraphBuilder& g) {
                         const ValueId a = g.input("a", {Dtype::bf16, {1, 96, 512}});
                         const ValueId b = g.input("b", {Dtype::bf16, {1, 512, 72}});
                         g.output("y", g.matmul(a, b, Dtype::f32, false, false));
                       }};
  const Module module = one_group_module(test);
  auto scheduled = cuda::schedule_matmul(module.programs[0], module.programs[0].groups[0], {"sm_80"});
  REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
  return PlantedKernel(std::move(scheduled->kernel));
}

TEST_CASE("planted in a portable product: none") { check_whole(portable_product()); }

TEST_CASE("planted in a portable product: copies not waited for") {
  PlantedKernel kernel = portable_product();
  kernel.replace_anywhere("cp.async.wait_group", "// ");
  check_planted(kernel, "read before the data landed", "= mma_sync ");
}

TEST_CASE("planted in a portable product: no barrier between copies and their readers") {
  PlantedKernel kernel = portable_product();
  kernel.replace_anywhere("bar.sync", "// ");
  // Whichever comes first: another warp's copies unseen or under way, or a tile overwritten.
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string report = kernel.run(seed);
    CAPTURE(report);
    CHECK((report.find("race") != std::string::npos ||
           report.find("read before the data landed") != std::string::npos ||
           report.find("overwritten while in use") != std::string::npos));
  }
}

}  // namespace
}  // namespace stepc::test
