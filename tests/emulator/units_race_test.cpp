// Races between the warps of a CTA, found by what orders them and not by how they happened to run; and mbarriers
// used against their rules.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/emulator/ptx_launch.h"

namespace stepc::emulator {
namespace {

// Three warps; `body` sees %r1 shared base, %r2 thread, %r3 warp, %r4 lane, %p1 "not thread 0", %p2 "not warp 1".
std::string kernel(const std::string& body) {
  return R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 bytes[];
.visible .entry f()
{
  .reg .pred %p<8>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, bytes;
  mov.u32 %r2, %tid.x;
  shr.u32 %r3, %r2, 5;
  and.b32 %r4, %r2, 31;
  setp.ne.u32 %p1, %r2, 0;
  setp.ne.u32 %p2, %r3, 1;
)" + body +
         "  ret;\n}\n";
}

std::string run(const std::string& body, uint64_t seed) {
  PtxLaunch launch(seed);
  return launch.launch(kernel(body), "f", {1, 96, 2048, 1}, {});
}

void check_all(const std::string& body, const std::string& text) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string report = run(body, seed);
    CAPTURE(seed);
    CAPTURE(report);
    if (text.empty())
      CHECK(report == "");
    else
      CHECK(report.find(text) != std::string::npos);
  }
}

constexpr const char* kOwnWord = "  shl.b32 %r5, %r2, 2;\n  add.u32 %r5, %r5, %r1;\n";

TEST_CASE("words written by one warp and read by another need a barrier between") {
  const std::string write = std::string(kOwnWord) + "  st.shared.u32 [%r5], %r2;\n";
  const std::string read =
      "  sub.u32 %r6, %r1, %r5;\n  add.u32 %r6, %r6, %r1;\n  add.u32 %r6, %r6, 380;\n"
      "  ld.shared.u32 %r7, [%r6];\n";
  check_all(write + "  bar.sync 0;\n" + read, "");
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string report = run(write + read, seed);
    const bool told =
        report.find("race") != std::string::npos || report.find("nothing has written") != std::string::npos;
    CHECK(told);
  }
  // The next round's writes need one too.
  check_all(write + "  bar.sync 0;\n" + read + "  bar.sync 0;\n" + write, "");
  check_all(write + "  bar.sync 0;\n" + read + write, "with no barrier");
}

TEST_CASE("neighbouring bytes of two warps are no race, the same byte is") {
  check_all("  shl.b32 %r5, %r2, 1;\n  add.u32 %r5, %r5, %r1;\n  st.shared.u16 [%r5], %r2;\n", "");
  check_all("  add.u32 %r5, %r3, %r1;\n  st.shared.u8 [%r5], %r2;\n", "");
  check_all("  add.u32 %r5, %r1, 8;\n  setp.ne.u32 %p3, %r4, 0;\n  @%p3 bra OUT;\n  st.shared.u8 [%r5], %r2;\nOUT:\n",
            "race");
}

TEST_CASE("a named barrier orders those who meet at it, in both directions, and nobody else") {
  // Warp 0 writes and arrives; warp 1 waits and reads; warp 2 reads without.
  const std::string head =
      "  setp.eq.u32 %p3, %r3, 0;\n  @%p3 bra WRITE;\n  @%p2 bra THIRD;\n  bar.sync 1, 64;\n"
      "  ld.shared.u32 %r7, [%r1];\n  bra OUT;\nTHIRD:\n";
  const std::string tail =
      "  bra OUT;\nWRITE:\n  setp.ne.u32 %p4, %r4, 0;\n  @%p4 bra WRITTEN;\n"
      "  st.shared.u32 [%r1], %r2;\nWRITTEN:\n  bar.arrive 1, 64;\nOUT:\n";
  check_all(head + tail, "");
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string report = run(head + "  ld.shared.u32 %r7, [%r1];\n" + tail, seed);
    CHECK(report != "");
  }
}

TEST_CASE("bytes of cp.async are under way until their thread has waited, whenever they move") {
  // Global memory of its own; each thread copies 16 bytes and reads those of a thread of the other warp.
  const std::string head = R"(.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 bytes[];
.visible .entry f(.param .u64 f_param_0)
{
  .reg .pred %p<8>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [f_param_0];
  mov.u32 %r1, bytes;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 16;
  add.u64 %rd1, %rd1, %rd2;
  shl.b32 %r3, %r2, 4;
  add.u32 %r4, %r3, %r1;
  xor.b32 %r5, %r3, 512;
  add.u32 %r5, %r5, %r1;
)";
  const std::string copy = "  cp.async.cg.shared.global [%r4], [%rd1], 16;\n  cp.async.commit_group;\n";
  const std::string read = "  ld.shared.u32 %r6, [%r5];\n";
  const auto report = [&](const std::string& body, uint64_t seed) {
    PtxLaunch launch(seed);
    uint64_t in = launch.upload(std::vector<uint32_t>(256, 5));
    return launch.launch(head + body + "  ret;\n}\n", "f", {1, 64, 1024, 1}, {&in});
  };
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CHECK(report(copy + "  cp.async.wait_group 0;\n  bar.sync 0;\n" + read, seed) == "");
    CHECK(report(copy + "  bar.sync 0;\n" + read, seed).find("while a copy to them is under way") != std::string::npos);
    CHECK(report(copy + "  cp.async.wait_group 0;\n  bar.sync 0;\n" + read + copy + "  cp.async.wait_group 0;\n" + read,
                 seed) != "");
  }
}

TEST_CASE("atomics of many warps are no race among themselves") {
  const std::string clear =
      "  @%p1 bra CLEAR;\n  mov.u32 %r8, 0;\n  st.shared.u32 [%r1], %r8;\nCLEAR:\n  bar.sync 0;\n";
  const std::string add = "  atom.shared.add.u32 %r7, [%r1], 1;\n";
  check_all(clear + add + "  bar.sync 0;\n  ld.shared.u32 %r9, [%r1];\n", "");
}

TEST_CASE("an mbarrier orders what was written before the arrival with what follows the wait") {
  const std::string init =
      "  @%p1 bra READY;\n  mbarrier.init.shared::cta.b64 [%r1+1024], 32;\nREADY:\n  bar.sync 0;\n";
  const std::string body = std::string(kOwnWord) +
                           "  setp.eq.u32 %p3, %r3, 0;\n  @%p3 bra WRITE;\n  @%p2 bra OUT;\n"
                           "WAIT:\n  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+1024], 0;\n  @!%p4 bra WAIT;\n"
                           "  ld.shared.u32 %r7, [%r5+-128];\n  bra OUT;\nWRITE:\n  st.shared.u32 [%r5], %r2;\n"
                           "  mbarrier.arrive.shared::cta.b64 _, [%r1+1024];\nOUT:\n";
  check_all(init + body, "");
  // One arrival more than a phase has, before the next can begin.
  const std::string over =
      "  @%p1 bra READY;\n  mbarrier.init.shared::cta.b64 [%r1+1024], 2;\n"
      "  mbarrier.arrive.shared::cta.b64 _, [%r1+1024], 3;\nREADY:\n";
  check_all(over, "over-arrival: 3 more arrivals, and 2 of 2 are still due");
  check_all("  @%p1 bra READY;\n  mbarrier.arrive.shared::cta.b64 _, [%r1+1024];\nREADY:\n",
            "which is not initialised");
  const std::string twice = "  mbarrier.init.shared::cta.b64 [%r1+1024], 2;\n";
  check_all("  @%p1 bra READY;\n" + twice + twice + "READY:\n", "initialised twice");
  check_all("  @%p1 bra READY;\n" + twice + "  mbarrier.inval.shared::cta.b64 [%r1+1024];\n" + twice + "READY:\n", "");
  const std::string pending =
      "  @%p1 bra READY;\n" + twice + "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+1024], 64;\nREADY:\n";
  check_all(pending, "wrong byte count: at the end of the kernel, 64 bytes are expected and no copy brings them");
}

TEST_CASE("a state from an arrival is what test_wait takes") {
  check_all(
      "  @%p1 bra READY;\n  mbarrier.init.shared.b64 [%r1+1024], 2;\n  mbarrier.arrive.shared.b64 %rd1, [%r1+1024];\n"
      "  mbarrier.test_wait.shared.b64 %p4, [%r1+1024], %rd1;\n  @%p4 trap;\n"
      "  mbarrier.arrive.shared.b64 %rd2, [%r1+1024];\n"
      "  mbarrier.test_wait.shared.b64 %p4, [%r1+1024], %rd1;\n  @!%p4 trap;\nREADY:\n",
      "");
}

}  // namespace
}  // namespace stepc::emulator
