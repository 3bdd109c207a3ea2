// Faults planted in the PTX of Hopper's contraction kernel, below all that checks kernel IR. The emulator must report
// each as what it is, at the op concerned, whatever the schedule; the whole kernel passes under the same seeds.
#include "tests/hopper/gemm_kernels.h"
#include "tests/hopper/planted.h"

namespace stepc::sm90 {
namespace {

using test::check_planted;
using test::check_planted_among;
using test::check_whole;
using test::PlantedKernel;

// Two stages and six blocks of k, so that stages are used again; four panels of the result through two boxes.
PlantedKernel gemm() {
  GemmConfig config;
  config.tile_n = 256;
  config.stages = 2;
  config.group_m = 1;
  return PlantedKernel(build(product(136, 264, 384, 1, false, false), config, Dtype::bf16));
}

// The same product, handed over to warps that store it.
PlantedKernel handed() {
  GemmConfig config = *handed_over({});
  config.stages = 2;
  config.group_m = 1;
  config.processors = 2;
  return PlantedKernel(build(product(136, 520, 384, 1, false, false), config, Dtype::bf16));
}

// The wait spins on what its try_wait says; this makes it say yes.
constexpr const char* kTryWait = "mbarrier.try_wait.parity.shared::cta.b64 p,";
constexpr const char* kYes = "setp.eq.u32 p, 0, 0; // ";

TEST_CASE("planted: none") { check_whole(gemm()); }

TEST_CASE("planted: none, with the product handed over") { check_whole(handed()); }

TEST_CASE("planted: a product handed over and never taken") {
  PlantedKernel kernel = handed();
  kernel.remove("arrive %taken", "mbarrier.arrive");
  check_planted_among(kernel, "deadlock", "wait %taken", "4 of 4 arrivals missing");
}

TEST_CASE("planted: a product taken before it is there") {
  PlantedKernel kernel = handed();
  kernel.replace("wait %ready", kTryWait, kYes);
  check_planted(kernel, "read before", "load");
}

TEST_CASE("planted: a product handed over where another is still being read") {
  PlantedKernel kernel = handed();
  kernel.replace("wait %taken", kTryWait, kYes);
  check_planted(kernel, "race", "stmatrix", "that another warp has read");
}

TEST_CASE("planted: a removed wait") {
  PlantedKernel kernel = gemm();
  kernel.replace("wait %full", kTryWait, kYes);
  check_planted(kernel, "read before the data landed", "wgmma");
}

TEST_CASE("planted: a removed arrive") {
  PlantedKernel kernel = gemm();
  kernel.remove("arrive %empty", "mbarrier.arrive");
  check_planted_among(kernel, "deadlock", "wait %empty", "8 of 8 arrivals missing");
}

TEST_CASE("planted: a stage released before the product that reads it is complete") {
  PlantedKernel kernel = gemm();
  kernel.remove("wgmma_wait {pending=1}", "wgmma.wait_group");
  check_planted(kernel, "overwritten while in use", "tma_load");
}

TEST_CASE("planted: a missing proxy fence") {
  PlantedKernel kernel = gemm();
  kernel.remove("fence_async", "fence.proxy.async");
  check_planted(kernel, "missing proxy fence", "tma_store");
}

TEST_CASE("planted: a wrong byte count") {
  PlantedKernel many = gemm();
  many.replace("expect %full", "49152", "49168");
  check_planted(many, "mbarrier misuse", "expect %full", "wrong byte count");
  PlantedKernel few = gemm();
  few.replace("expect %full", "49152", "32768");
  check_planted(few, "mbarrier misuse", "tma_load", "wrong byte count");
}

TEST_CASE("planted: a swizzle that disagrees between tensor map and descriptor") {
  PlantedKernel kernel = gemm();
  kernel.set_map_swizzle(1, 0);
  check_planted(kernel, "swizzle mismatch", "wgmma", "swizzle 128, but the copy laid them out with swizzle none");
}

TEST_CASE("planted: an accumulator read in flight") {
  PlantedKernel kernel = gemm();
  kernel.remove("{pending=0}", "wgmma.wait_group");
  check_planted(kernel, "accumulator touched in flight", "= cast ");
}

TEST_CASE("planted: a mismatched named barrier") {
  PlantedKernel kernel = gemm();
  kernel.replace_one("sync copy + 1", true, ", 128;", ", 256;");
  check_planted(kernel, "named barrier mismatch", "sync");
}

TEST_CASE("planted: a box rewritten while its store still reads it") {
  PlantedKernel kernel = gemm();
  kernel.remove("bulk_wait {pending=1}", "cp.async.bulk.wait_group");
  check_planted(kernel, "overwritten while in use", "stmatrix");
}

// Two tasks share B: each brings half of it to both, and a stage is free when both have read it.
PlantedKernel pair() {
  GemmConfig config;
  config.tile_n = 128;
  config.stages = 2;
  config.group_m = 1;
  config.cluster = 2;
  return PlantedKernel(build(product(392, 136, 384, 1, false, true), config, Dtype::bf16));
}

TEST_CASE("planted in a cluster: none") { check_whole(pair()); }

TEST_CASE("planted in a cluster: a removed wait for a free stage") {
  PlantedKernel kernel = pair();
  kernel.replace("wait %empty", kTryWait, kYes);
  // The stage is taken while it is in use, or its barrier is armed a second time before its phase is complete.
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string report = kernel.run(seed);
    CAPTURE(report);
    const bool taken = report.find("overwritten while in use") != std::string::npos;
    const bool armed = report.find("over-arrival") != std::string::npos;
    const bool counted = report.find("wrong byte count") != std::string::npos;
    CHECK((taken || armed || counted));
    const std::string op = kernel.op_at(report);
    CHECK((op.find("tma_load") != std::string::npos || op.find("expect") != std::string::npos));
  }
}

TEST_CASE("planted in a cluster: barriers used before the other task has made them") {
  PlantedKernel kernel = pair();
  kernel.replace_anywhere("barrier.cluster.arrive.release.aligned", "bar.sync 0; //");
  kernel.replace_anywhere("barrier.cluster.wait.acquire.aligned", "bar.sync 0; //");
  check_planted(kernel, "mbarrier misuse", "", "mbarrier at +");
}

}  // namespace
}  // namespace stepc::sm90
