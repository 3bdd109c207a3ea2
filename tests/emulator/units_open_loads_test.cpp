// Loads that are still under way when their bytes are given back: a copy may overtake them, as nothing waits for their
// values. Each kernel reads a slot that the copy engine fills again and again.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <numeric>

#include "tests/emulator/pipeline.h"
#include "tests/emulator/ptx_launch.h"

namespace stepc::emulator {
namespace {

constexpr int kTurns = 3;
constexpr uint32_t kWords = 128;  // of the slot

// Warp 0 takes the slot's words, warp 1 brings them: bytes 0 .. 511, the barriers `full` and `empty` behind them. Each
// lane sums its %r20 of all turns, which `load` sets from the slot; %r5 is the lane's own place there.
PtxText ring_kernel(const std::string& load) {
  return PtxText(R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 bytes[];
.visible .entry f(.param .u64 f_param_0, .param .u64 f_param_1, .param .align 64 .b8 f_param_2[128])
{
  .reg .pred %p<8>;
  .reg .b32 %r<32>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [f_param_0];
  ld.param.u64 %rd2, [f_param_1];
  mov.b64 %rd3, f_param_2;
  cvta.param.u64 %rd3, %rd3;
  mov.u32 %r1, bytes;
  mov.u32 %r2, %tid.x;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r1+1024], 1;
  mbarrier.init.shared::cta.b64 [%r1+1032], 1;
  fence.mbarrier_init.release.cluster;
READY:
  bar.sync 0;
  mov.u32 %r6, 0;
  mov.u32 %r9, 0;
  mov.u32 %r10, 0;
  setp.gt.u32 %p2, %r2, 31;
  @%p2 bra BRING;
  shl.b32 %r5, %r2, 4;
  add.u32 %r5, %r5, %r1;
TAKE:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+1024], %r10;
  @!%p4 bra TAKE;
  )" + load + R"( //@load
  //@before
  bar.warp.sync 0xffffffff;
  @!%p1 mbarrier.arrive.shared::cta.b64 _, [%r1+1032]; //@arrive
  add.u32 %r9, %r9, %r20; //@use
  xor.b32 %r10, %r10, 1;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p5, %r6, 3;
  @%p5 bra TAKE;
  mul.wide.u32 %rd4, %r2, 4;
  add.u64 %rd4, %rd4, %rd2;
  st.global.u32 [%rd4], %r9;
  bra OUT;
BRING:
  setp.ne.u32 %p3, %r2, 32;
  @%p3 bra OUT;
FREE:
  xor.b32 %r11, %r10, 1;
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+1032], %r11;
  @!%p4 bra FREE;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+1024], 512;
  add.u32 %r12, %r1, 1024;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 512, [%r12]; //@copy
  add.u64 %rd1, %rd1, 512;
  xor.b32 %r10, %r10, 1;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p5, %r6, 3;
  @%p5 bra FREE;
OUT:
  ret;
}
)");
}

constexpr const char* kLoad = "ld.shared.u32 %r20, [%r5];";
constexpr const char* kVector = "ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r5];";
constexpr const char* kMatrix = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r5];";
const std::vector<std::string> kLoads{kLoad, kVector, kMatrix};

// The fault's report, or "" if the sums came out right.
std::string run(const PtxText& ptx, bool by_matrix, uint64_t seed) {
  PtxLaunch launch(seed);
  std::vector<uint32_t> words(kTurns * kWords);
  std::iota(words.begin(), words.end(), 1u);
  uint64_t at = launch.upload(words), sums = launch.upload(std::vector<uint32_t>(kLanes));
  // As a tensor: a box is 4 rows of 128 bytes.
  CUtensorMap map = launch.map(at, {64, kTurns * 4}, {64, 4}, CU_TENSOR_MAP_SWIZZLE_NONE);
  const std::string report = launch.launch(ptx.str(), "f", {1, 64, 2048, 1}, {&at, &sums, &map});
  if (!report.empty()) return report;
  const auto found = launch.download<uint32_t>(sums, kLanes);
  for (size_t l = 0; l < kLanes; ++l) {
    // An ordinary load takes the first word of the lane's 16 bytes, ldmatrix word l of the first 8 rows.
    uint32_t sum = 0;
    for (size_t turn = 0; turn < kTurns; ++turn) sum += words[turn * kWords + (by_matrix ? l : 4 * l)];
    if (found[l] != sum) return fmt::format("lane {}: {}, expected {}", l, found[l], sum);
  }
  return "";
}

void check_right(const PtxText& ptx, bool by_matrix = false) {
  for (uint64_t seed = 1; seed <= 10; ++seed) CHECK(run(ptx, by_matrix, seed) == "");
}

// Every seed must report the copy, and name the load.
void check_overtaken(const PtxText& ptx) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string report = run(ptx, false, seed);
    CAPTURE(seed);
    CAPTURE(report);
    CHECK(report.find(fault_name(FaultKind::overwrite)) != std::string::npos);
    CHECK(report.find("whose load may still be under way") != std::string::npos);
    CHECK(report.find(fmt::format("PTX line {}", ptx.line_of("copy"))) != std::string::npos);
    const size_t loader = report.find("loaded by");
    REQUIRE(loader != std::string::npos);
    CHECK(report.find(fmt::format("PTX line {}, CTA 0, warp 0", ptx.line_of("load")), loader) != std::string::npos);
  }
}

PtxText with(const std::string& load, const std::string& before) {
  PtxText ptx = ring_kernel(load);
  ptx.change("before", "//", before + " //");
  return ptx;
}

TEST_CASE("planted in PTX: a slot given back right after the loads from it") {
  for (const std::string& load : kLoads) check_overtaken(ring_kernel(load));
  PtxText by_tensor = ring_kernel(kMatrix);
  by_tensor.replace("copy",
                    "shl.b32 %r13, %r6, 2; mov.u32 %r14, 0; cp.async.bulk.tensor.2d.shared::cluster.global."
                    "mbarrier::complete_tx::bytes [%r1], [%rd3, {%r14, %r13}], [%r12]; //@copy");
  check_overtaken(by_tensor);
}

TEST_CASE("a load is over when an instruction has used its value") {
  for (const std::string& load : kLoads) check_right(with(load, "add.u32 %r15, %r20, 1;"), load == kMatrix);
  // Any of its registers, by whatever instruction, and by another name.
  for (const char* use : {"xor.b32 %r15, %r23, %r22;", "setp.eq.u32 %p6, %r21, 7;", "st.shared.u32 [%r5+1040], %r21;",
                          "mov.u32 %r15, %r20; add.u32 %r15, %r15, 1;"})
    check_right(with(kVector, use));
  // Writing a register waits for the load that writes it.
  check_right(with(kVector, "add.u32 %r22, %r5, 1;"));
}

TEST_CASE("a load is over when its threads have executed fence.proxy.async") {
  for (const char* fence : {"fence.proxy.async.shared::cta;", "fence.proxy.async;"})
    for (const std::string& load : kLoads) check_right(with(load, fence), load == kMatrix);
  check_overtaken(with(kMatrix, "fence.proxy.async.global;"));
  check_overtaken(with(kMatrix, "@!%p1 fence.proxy.async.shared::cta;"));
  // A later load is not covered.
  PtxText early = ring_kernel(kVector);
  early.change("load", "ld", "fence.proxy.async.shared::cta; ld");
  check_overtaken(early);
}

TEST_CASE("planted in PTX: what does not wait for a load") {
  check_overtaken(with(kLoad, "mov.u32 %r15, %r20;"));
  check_overtaken(with(kLoad, "add.u32 %r15, %r5, 1;"));
  check_overtaken(with(kLoad, "bar.sync 1, 32;"));
  check_overtaken(with(kLoad, "fence.mbarrier_init.release.cluster;"));
  // The second load from the bytes is still under way when the first is over.
  PtxText twice = ring_kernel(kLoad);
  twice.change("load", "ld", "ld.shared.u32 %r24, [%r5]; ld");
  twice.change("before", "//", "add.u32 %r15, %r24, 1; //");
  check_overtaken(twice);
}

// Two warps load the same bytes, and meet; then one thread brings new ones.
std::string refill(const std::string& load, const std::string& after, const std::string& write, uint64_t seed) {
  const std::string ptx = R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 bytes[];
.visible .entry f(.param .u64 f_param_0)
{
  .reg .pred %p<8>;
  .reg .b32 %r<32>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [f_param_0];
  mov.u32 %r1, bytes;
  mov.u32 %r2, %tid.x;
  add.u32 %r3, %r1, 1024;
  shl.b32 %r5, %r2, 3;
  add.u32 %r5, %r5, %r1;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 512, [%r3];
READY:
  bar.sync 0;
FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3], 0;
  @!%p4 bra FULL;
  )" + load + "\n  bar.sync 0;\n  " +
                          after + "\n  @%p1 bra OUT;\n  " + write + R"(
AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3], 1;
  @!%p4 bra AGAIN;
OUT:
  ret;
}
)";
  PtxLaunch launch(seed);
  uint64_t at = launch.upload(std::vector<uint32_t>(kWords, 5));
  return launch.launch(ptx, "f", {1, 64, 2048, 1}, {&at});
}

constexpr const char* kCopy =
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512; cp.async.bulk.shared::cluster.global."
    "mbarrier::complete_tx::bytes [%r1], [%rd1], 512, [%r3];";

TEST_CASE("bar.sync does not wait for loads either, and ordinary stores come after them by themselves") {
  const std::string load = "ld.shared.u32 %r20, [%r5];", use = "add.u32 %r21, %r20, 1;";
  const std::string store = "st.shared.u32 [%r1], %r2; mbarrier.arrive.shared::cta.b64 _, [%r3];";
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CHECK(refill(load + use, "", kCopy, seed) == "");
    CHECK(refill(load + "fence.proxy.async.shared::cta;", "", kCopy, seed) == "");
    CHECK(refill(load, "", store, seed) == "");
    // Used, but after the barrier: too late for the other warp's.
    CHECK(refill(load, use, kCopy, seed).find("whose load may still be under way") != std::string::npos);
    // A thread's own loads have no other order.
    const std::string own = "@!%p1 ld.shared.u32 %r20, [%r1];";
    CHECK(refill(own, "", kCopy, seed).find("whose load may still be under way") != std::string::npos);
    CHECK(refill(own, use, kCopy, seed) == "");
  }
}

}  // namespace
}  // namespace stepc::emulator
