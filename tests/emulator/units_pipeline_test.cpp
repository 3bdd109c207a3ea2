// A warp-specialised product on the emulator: right as it stands, and each rule of the asynchronous units broken in
// turn, one edit of the PTX each. Every edit must be reported, as what it is and where it is, under every seed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <functional>

#include "tests/emulator/pipeline.h"
#include "tests/emulator/ptx_launch.h"

namespace stepc::emulator {
namespace {

constexpr int kSeeds = 10;

uint16_t bf16(int value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16); }
int integer(uint16_t bits) { return static_cast<int>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)); }

struct Maps {
  CUtensorMapSwizzle a = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapSwizzle c = CU_TENSOR_MAP_SWIZZLE_128B;
};

// Runs the product of small integers, 64 x K by 64 x K; the report, or "" if C came out right.
std::string run(const std::string& ptx, uint64_t seed, Maps swizzles = {}, int blocks = 5) {
  PtxLaunch launch(seed);
  const int k = blocks * 64;
  Random random(seed);
  std::vector<uint16_t> a(static_cast<size_t>(64 * k)), b(a.size()), c(64 * 64, 0xffff);
  // Sums of at most 8 nonzero terms a row: exact in bf16.
  for (auto* operand : {&a, &b})
    for (uint16_t& v : *operand) v = bf16(random.below(8) == 0 ? static_cast<int>(random.below(7)) - 3 : 0);
  const uint64_t at_a = launch.upload(a), at_b = launch.upload(b), at_c = launch.upload(c);
  const auto width = static_cast<uint64_t>(k);
  CUtensorMap map_a = launch.map(at_a, {width, 64}, {64, 64}, swizzles.a);
  CUtensorMap map_b = launch.map(at_b, {width, 64}, {64, 64}, CU_TENSOR_MAP_SWIZZLE_128B);
  CUtensorMap map_c = launch.map(at_c, {64, 64}, {64, 64}, swizzles.c);
  const std::string report = launch.launch(ptx, "product", {1, PipelineLayout::kThreads, PipelineLayout::kBytes, 1},
                                           {&blocks, &map_a, &map_b, &map_c});
  if (!report.empty()) return report;
  const auto result = launch.download<uint16_t>(at_c, c.size());
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < 64; ++n) {
      int sum = 0;
      for (int i = 0; i < k; ++i)
        sum += integer(a[static_cast<size_t>(m * k + i)]) * integer(b[static_cast<size_t>(n * k + i)]);
      if (integer(result[static_cast<size_t>(m * 64 + n)]) != sum) return fmt::format("wrong at ({}, {})", m, n);
    }
  return "";
}

// Every seed must report the kind (in the words of fault_name) at one of the tagged lines, and say `text`.
void check_fault(const PtxText& ptx, FaultKind kind, const std::vector<std::string>& tags, const std::string& text,
                 Maps swizzles = {}) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string report = run(ptx.str(), seed, swizzles);
    CAPTURE(seed);
    CAPTURE(report);
    CHECK(report.find(fault_name(kind)) != std::string::npos);
    CHECK(report.find(text) != std::string::npos);
    bool placed = tags.empty();
    for (const std::string& tag : tags)
      placed = placed || report.find(fmt::format("PTX line {}", ptx.line_of(tag))) != std::string::npos;
    CHECK(placed);
  }
}

TEST_CASE("the product is right under every seed, and for one block") {
  const PtxText ptx = product_kernel();
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) CHECK(run(ptx.str(), seed) == "");
  CHECK(run(ptx.str(), 3, {}, 1) == "");
}

TEST_CASE("planted in PTX: a wait for the tiles taken away") {
  PtxText ptx = product_kernel();
  ptx.remove("wait_full_loop");
  check_fault(ptx, FaultKind::early_read, {"product0"}, "reads 16 bytes of shared memory");
}

TEST_CASE("planted in PTX: an arrival taken away") {
  PtxText ptx = product_kernel();
  ptx.replace("arrive", "//@arrive");
  check_fault(ptx, FaultKind::deadlock, {"wait_empty"}, "4 of 4 arrivals missing");
}

TEST_CASE("planted in PTX: a stage released before its product is complete") {
  PtxText ptx = product_kernel();
  ptx.remove("arrive");
  ptx.change("commit", "wgmma.commit_group.sync.aligned;",
             "wgmma.commit_group.sync.aligned;\n  setp.eq.u32 %p10, %r4, 0;\n"
             "  @%p10 mbarrier.arrive.shared::cta.b64 _, [%r9+40976];");
  check_fault(ptx, FaultKind::overwrite, {"load_a", "load_b"}, "overwrites 16 bytes of shared memory");
}

TEST_CASE("planted in PTX: no proxy fence before the store by TMA") {
  PtxText ptx = product_kernel();
  ptx.remove("proxy_fence");
  check_fault(ptx, FaultKind::proxy_fence, {"store_c"}, "fence.proxy.async");
}

TEST_CASE("planted in PTX: no barrier before the store by TMA") {
  PtxText ptx = product_kernel();
  ptx.remove("store_barrier");
  // The storing thread may come before the others have written at all.
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string report = run(ptx.str(), seed);
    CAPTURE(report);
    const bool told = report.find("no barrier between") != std::string::npos ||
                      report.find("nothing has written") != std::string::npos ||
                      report.find("still reads them") != std::string::npos ||
                      report.find("no barrier after that read") != std::string::npos;
    CHECK(told);
  }
}

TEST_CASE("planted in PTX: wrong byte counts") {
  PtxText many = product_kernel();
  many.change("expect", "16384", "16400");
  check_fault(many, FaultKind::mbarrier, {"expect"}, "wrong byte count");
  PtxText few = product_kernel();
  few.change("expect", "16384", "8192");
  check_fault(few, FaultKind::mbarrier, {"load_b"}, "wrong byte count");
}

TEST_CASE("planted in PTX: swizzles that disagree") {
  PtxText ptx = product_kernel();
  ptx.change("descriptor_a", "0x4000004000010000", "0x8000004000010000");
  check_fault(ptx, FaultKind::swizzle, {"product0"}, "swizzle 64, but the copy laid them out with swizzle 128");
  check_fault(product_kernel(), FaultKind::swizzle, {"product0"},
              "swizzle 128, but the copy laid them out with swizzle none", {CU_TENSOR_MAP_SWIZZLE_NONE});
}

TEST_CASE("planted in PTX: an accumulator read in flight, and wgmma.fence taken away") {
  PtxText read = product_kernel();
  read.change("commit", "wgmma.commit_group.sync.aligned;",
              "wgmma.commit_group.sync.aligned; //@\n  mov.b32 %r50, %f3;");
  check_fault(read, FaultKind::accumulator, {"commit"}, "");
  PtxText fence = product_kernel();
  fence.remove("wgmma_fence");
  check_fault(fence, FaultKind::accumulator, {"product0"}, "wgmma.fence");
  PtxText written = product_kernel();
  written.change("product0", "wgmma", "mov.f32 %f5, 0f3f800000;\n  wgmma");
  check_fault(written, FaultKind::accumulator, {"product0"}, "no wgmma.fence between");
}

TEST_CASE("planted in PTX: a warpgroup that does not agree on its product") {
  PtxText ptx = product_kernel();
  // Warp 2 takes another step of B.
  ptx.change("product1", "wgmma",
             "setp.eq.u32 %p12, %r3, 2;\n  selp.b64 %rd20, %rd12, %rd13, %p12;\n  mov.b64 %rd13, %rd20;\n  wgmma");
  check_fault(ptx, FaultKind::bad_operand, {"product1"}, "is not the product that another warp of its warpgroup");
}

TEST_CASE("planted in PTX: a named barrier with two counts") {
  PtxText ptx = product_kernel();
  ptx.change("store_barrier", "bar.sync 1, 128;",
             "setp.eq.u32 %p11, %r3, 0;\n  selp.u32 %r51, 128, 160, %p11;\n  bar.sync 1, %r51;");
  check_fault(ptx, FaultKind::named_barrier, {"store_barrier"}, "barrier 1 for ");
  // Here three warps may meet for themselves before the fourth comes.
  PtxText fewer = product_kernel();
  fewer.change("store_barrier", "bar.sync 1, 128;",
               "setp.eq.u32 %p11, %r3, 0;\n  selp.u32 %r51, 128, 96, %p11;\n  bar.sync 1, %r51;");
  check_fault(fewer, FaultKind::named_barrier, {"store_barrier"}, "barrier 1 for ");
}

TEST_CASE("planted in PTX: barriers handed on unfenced, unordered, or overwritten") {
  PtxText unfenced = product_kernel();
  unfenced.remove("init_fence");
  check_fault(unfenced, FaultKind::proxy_fence, {"load_a"}, "fence.mbarrier_init");
  PtxText unordered = product_kernel();
  unordered.remove("init_barrier");
  check_fault(unordered, FaultKind::mbarrier, {}, "mbarrier at +40");
  PtxText overwritten = product_kernel();
  overwritten.change("store_c", "cp.async", "st.shared.u32 [%r1+40964], %r20;\n  cp.async");
  check_fault(overwritten, FaultKind::mbarrier, {}, "which hold an mbarrier");
}

TEST_CASE("planted in PTX: a store that nothing waits for") {
  PtxText ptx = product_kernel();
  ptx.remove("bulk_wait");
  check_fault(ptx, FaultKind::incomplete, {"store_c"}, "bulk store");
  PtxText uncommitted = product_kernel();
  uncommitted.remove("bulk_commit");
  check_fault(uncommitted, FaultKind::incomplete, {"store_c"}, "bulk store");
}

}  // namespace
}  // namespace stepc::emulator
