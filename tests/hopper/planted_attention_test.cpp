// Faults planted in the PTX of Hopper's attention kernels: rules that contractions do not come to.
#include "tests/hopper/attention_case.h"
#include "tests/hopper/planted.h"

namespace stepc::sm90 {
namespace {

using test::check_planted;
using test::check_planted_among;
using test::check_whole;
using test::PlantedKernel;

// Long enough for the rings of stages to come round; two tasks take turns over the tiles.
AttentionCase test_case() { return attention_case(1, 449, 1, 128, true, 2); }

PlantedKernel forward() { return PlantedKernel(forward_kernel(test_case()).kernel); }
PlantedKernel keys() { return PlantedKernel(gradient_kernel(test_case(), GradientKernel::keys).kernel); }
PlantedKernel queries() { return PlantedKernel(gradient_kernel(test_case(), GradientKernel::queries).kernel); }

// Of the atomic form.
PlantedKernel atomic() {
  AttentionCase test = test_case();
  test.form = GradientForm::atomic;
  return PlantedKernel(gradient_kernel(test, GradientKernel::keys).kernel);
}

constexpr const char* kTryWait = "mbarrier.try_wait.parity.shared::cta.b64 p,";
constexpr const char* kYes = "setp.eq.u32 p, 0, 0; // ";

TEST_CASE("planted in attention: none") {
  check_whole(forward());
  check_whole(queries());
  check_whole(keys());
  check_whole(atomic());
}

TEST_CASE("planted in attention: waits for queries and values taken away") {
  PlantedKernel kernel = forward();
  kernel.replace("wait %q_full", kTryWait, kYes);
  check_planted(kernel, "read before the data landed", "= wgmma %");
  PlantedKernel values = forward();
  values.replace("wait %v_full", kTryWait, kYes);
  check_planted(values, "read before the data landed", "= wgmma_rs %");
}

TEST_CASE("planted in attention: a stage released while two products still read it") {
  PlantedKernel kernel = keys();
  kernel.remove("wgmma_wait %flight_4, %flight_3 {pending=1}", "wgmma.wait_group");
  check_planted(kernel, "overwritten while in use", "tma_load");
}

TEST_CASE("planted in attention: scores read in flight") {
  PlantedKernel kernel = forward();
  kernel.replace("wgmma_wait %flight_2 {pending=1}", "wait_group.sync.aligned 1", "wait_group.sync.aligned 2");
  check_planted(kernel, "accumulator touched in flight", "= reduce_max ");
}

TEST_CASE("planted in attention: probabilities handed to the tensor core with no wgmma.fence") {
  PlantedKernel kernel = forward();
  kernel.remove("= wgmma_rs %", "wgmma.fence");
  check_planted(kernel, "accumulator touched in flight", "= wgmma_rs %", "no wgmma.fence between");
}

TEST_CASE("planted in attention: an arrival taken away") {
  PlantedKernel kernel = queries();
  kernel.remove("arrive %k_empty", "mbarrier.arrive");
  check_planted_among(kernel, "deadlock", "wait %", "8 of 8 arrivals missing");
}

TEST_CASE("planted in attention: dS multiplied before the other group has written its own") {
  PlantedKernel kernel = atomic();
  kernel.replace("wait %ds_full", kTryWait, kYes);
  check_planted(kernel, "read before the data landed", "= wgmma %");
}

TEST_CASE("planted in attention: dQ's place written again while the bulk reduction reads it") {
  PlantedKernel kernel = atomic();
  kernel.remove("bulk_wait {pending=0}", "cp.async.bulk.wait_group");
  check_planted(kernel, "overwritten while in use", "store %");
}

TEST_CASE("planted in attention: dS handed to the tensor core with no proxy fence") {
  PlantedKernel kernel = atomic();
  kernel.remove("fence_async", "fence.proxy.async");
  check_planted(kernel, "missing proxy fence", "= wgmma %");
}

TEST_CASE("planted in attention: queries given back right after they are loaded, with no fence between") {
  // In short tiles that keep dO too: what is given back later would tell that the products with Q have begun.
  AttentionCase test = attention_case(1, 128, 4, 128, true, 2);
  test.kept_operands = 2;
  PlantedKernel kernel(gradient_kernel(test, GradientKernel::queries).kernel);
  kernel.remove_before("arrive %q_empty", "fence.proxy.async");
  check_planted(kernel, "overwritten while in use", "tma_load", "whose load may still be under way");
}

TEST_CASE("planted in attention: statistics that the byte count forgets") {
  PlantedKernel kernel = keys();
  kernel.replace("expect %q_full", "16896", "16384");
  check_planted(kernel, "mbarrier misuse", "bulk_load", "wrong byte count");
}

}  // namespace
}  // namespace stepc::sm90
