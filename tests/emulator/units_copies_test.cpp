// The copy engine in PTX: boxes across the edges of a tensor in and out, bulk copies and reductions, multicast in a
// cluster; and what it refuses.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <numeric>

#include "tests/emulator/ptx_launch.h"

namespace stepc::emulator {
namespace {

std::string with_head(const std::string& parameters, const std::string& body) {
  return ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 tile[];\n.visible .entry f(" +
         parameters +
         ")\n{\n  .reg .pred %p<8>;\n  .reg .b32 %r<24>;\n  .reg .b64 %rd<16>;\n  .reg .f32 %f<8>;\n  mov.u32 %r1, "
         "tile;\n"
         "  mov.u32 %r2, %tid.x;\n  setp.ne.u32 %p1, %r2, 0;\n" +
         body + "  ret;\n}\n";
}

// One thread brings a box of `in` at (x, y, z) and sends it to the same place of `out`.
std::string round_trip(int box_bytes) {
  return with_head(
      ".param .align 64 .b8 f_param_0[128], .param .align 64 .b8 f_param_1[128], .param .u32 f_param_2, "
      ".param .u32 f_param_3, .param .u32 f_param_4",
      fmt::format(R"(  @%p1 bra OUT;
  mov.b64 %rd1, f_param_0;
  cvta.param.u64 %rd1, %rd1;
  mov.b64 %rd2, f_param_1;
  cvta.param.u64 %rd2, %rd2;
  ld.param.u32 %r3, [f_param_2];
  ld.param.u32 %r4, [f_param_3];
  ld.param.u32 %r5, [f_param_4];
  add.u32 %r6, %r1, {0};
  mbarrier.init.shared::cta.b64 [%r6], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], {0};
  cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {{%r3, %r4, %r5}}], [%r6];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r6], 0;
  @!%p2 bra WAIT;
  cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd2, {{%r3, %r4, %r5}}], [%r1];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
OUT:
)",
                  box_bytes));
}

TEST_CASE("a box goes in and out: what lies outside the tensor is neither read nor written") {
  constexpr int kX = 72, kY = 13, kZ = 3;
  for (const int corner : {0, 1, 2, 3, 4}) {
    int x = (corner - 2) * 30, y = (corner - 1) * 5, z = corner - 2;
    PtxLaunch launch(static_cast<uint64_t>(corner));
    std::vector<uint16_t> in(kX * kY * kZ), out(in.size(), 0);
    std::iota(in.begin(), in.end(), static_cast<uint16_t>(1));
    const uint64_t at_in = launch.upload(in), at_out = launch.upload(out);
    CUtensorMap from = launch.map(at_in, {kX, kY, kZ}, {64, 8, 2}, CU_TENSOR_MAP_SWIZZLE_128B);
    CUtensorMap to = launch.map(at_out, {kX, kY, kZ}, {64, 8, 2}, CU_TENSOR_MAP_SWIZZLE_128B);
    CHECK(launch.launch(round_trip(64 * 8 * 2 * 2), "f", {1, 32, 4096, 1}, {&from, &to, &x, &y, &z}) == "");
    const auto result = launch.download<uint16_t>(at_out, out.size());
    int different = 0;
    for (int c = 0; c < kZ; ++c)
      for (int b = 0; b < kY; ++b)
        for (int a = 0; a < kX; ++a) {
          const bool inside = a >= x && a < x + 64 && b >= y && b < y + 8 && c >= z && c < z + 2;
          const auto at = static_cast<size_t>((c * kY + b) * kX + a);
          different += result[at] != (inside ? in[at] : 0);
        }
    CHECK(different == 0);
  }
}

TEST_CASE("what the copy engine refuses") {
  PtxLaunch launch(1);
  const uint64_t at = launch.upload(std::vector<uint16_t>(64 * 8));
  CUtensorMap good = launch.map(at, {64, 8, 1}, {64, 8, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
  CUtensorMap flat = launch.map(at, {64, 8}, {64, 8}, CU_TENSOR_MAP_SWIZZLE_128B);
  CUtensorMap beyond = launch.map(at, {64, 8, 4}, {64, 8, 1}, CU_TENSOR_MAP_SWIZZLE_128B);
  CUtensorMap junk{};
  int zero = 0, two = 2;
  const auto report = [&](CUtensorMap* from, unsigned shared_bytes, int* z, std::string ptx = round_trip(1024)) {
    PtxLaunch::Shape shape{1, 32, shared_bytes, 1};
    return launch.launch(ptx, "f", shape, {from, &good, &zero, &zero, z});
  };
  CHECK(report(&good, 2048, &zero) == "");
  CHECK(report(&junk, 2048, &zero).find("128 bytes that cuTensorMapEncodeTiled did not make") != std::string::npos);
  CHECK(report(&flat, 2048, &zero).find("names 3 coordinates of a tensor map of rank 2") != std::string::npos);
  CHECK(report(&beyond, 2048, &two).find("global address") != std::string::npos);
  std::string shifted = round_trip(1024);
  shifted.replace(shifted.find("[%r1], [%rd1"), 5, "[%r1+128]");
  CHECK(report(&good, 4096, &zero, shifted).find("expected a multiple of 1024 (swizzle 128)") != std::string::npos);
}

TEST_CASE("bulk copies and reductions move bytes when their waits say so") {
  const std::string ptx = with_head(".param .u64 f_param_0, .param .u64 f_param_1", R"(
  ld.param.u64 %rd1, [f_param_0];
  ld.param.u64 %rd2, [f_param_1];
  shl.b32 %r3, %r2, 2;
  add.u32 %r3, %r3, %r1;
  cvt.rn.f32.u32 %f1, %r2;
  st.shared.f32 [%r3], %f1;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p1 bra OUT;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 512;
  cp.async.bulk.commit_group;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd2], [%r1], 256;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd2], [%r1+256], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 1;
  cp.async.bulk.wait_group.read 0;
OUT:
)");
  PtxLaunch launch(3);
  uint64_t copied = launch.upload(std::vector<float>(128, -1)), added = launch.upload(std::vector<float>(64, 0.5f));
  CHECK(launch.launch(ptx, "f", {1, 128, 1024, 1}, {&copied, &added}) == "");
  const auto copy = launch.download<float>(copied, 128);
  const auto sum = launch.download<float>(added, 64);
  for (int i = 0; i < 128; ++i) CHECK(copy[static_cast<size_t>(i)] == static_cast<float>(i));
  for (int i = 0; i < 64; ++i) CHECK(sum[static_cast<size_t>(i)] == static_cast<float>(2 * i + 64) + 0.5f);
  std::string short_wait = ptx;
  short_wait.erase(short_wait.find("  cp.async.bulk.wait_group.read 0;"), 34);
  CHECK(launch.launch(short_wait, "f", {1, 128, 1024, 1}, {&copied, &added}).find("bulk store") != std::string::npos);
}

// Each CTA of a cluster of two brings half of a kilobyte and sends it to both; the barrier of each counts all.
std::string multicast_kernel(const std::string& before_use) {
  return with_head(".param .u64 f_param_0, .param .u64 f_param_1", R"(
  ld.param.u64 %rd1, [f_param_0];
  ld.param.u64 %rd2, [f_param_1];
  mov.u32 %r3, %cluster_ctarank;
  add.u32 %r4, %r1, 1024;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r4], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 1024;
READY:
)" + before_use + R"(
  @%p1 bra WAIT;
  shl.b32 %r5, %r3, 9;
  add.u32 %r6, %r1, %r5;
  cvt.u64.u32 %rd3, %r5;
  add.u64 %rd3, %rd3, %rd1;
  mov.u16 %rs1, 3;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r6], [%rd3], 512, [%r4], %rs1;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;
  @!%p2 bra WAIT;
  shl.b32 %r7, %r2, 2;
  add.u32 %r8, %r7, %r1;
  ld.shared.u32 %r9, [%r8];
  shl.b32 %r10, %r3, 10;
  add.u32 %r10, %r10, %r7;
  cvt.u64.u32 %rd4, %r10;
  add.u64 %rd4, %rd4, %rd2;
  st.global.u32 [%rd4], %r9;
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
)");
}

TEST_CASE("multicast reaches every CTA of the cluster, once its barriers are known there") {
  std::string ptx =
      multicast_kernel("  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;");
  ptx.replace(ptx.find("  .reg .f32"), 0, "  .reg .b16 %rs<4>;\n");
  std::vector<uint32_t> in(256);
  std::iota(in.begin(), in.end(), 7u);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PtxLaunch launch(seed);
    uint64_t at_in = launch.upload(in), at_out = launch.upload(std::vector<uint32_t>(512));
    CHECK(launch.launch(ptx, "f", {2, 256, 2048, 2}, {&at_in, &at_out}) == "");
    const auto out = launch.download<uint32_t>(at_out, 512);
    for (size_t i = 0; i < 512; ++i) CHECK(out[i] == in[i % 256]);
  }
  std::string unordered = multicast_kernel("  bar.sync 0;");
  unordered.replace(unordered.find("  .reg .f32"), 0, "  .reg .b16 %rs<4>;\n");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PtxLaunch launch(seed);
    uint64_t at_in = launch.upload(in), at_out = launch.upload(std::vector<uint32_t>(512));
    const std::string report = launch.launch(unordered, "f", {2, 256, 2048, 2}, {&at_in, &at_out});
    CHECK(report.find("mbarrier at +1024") != std::string::npos);
  }
}

}  // namespace
}  // namespace stepc::emulator
