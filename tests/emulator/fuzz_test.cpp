// Damaged PTX: the decoder answers with a module or an error, and whatever it lets pass runs to an end or a fault.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>

#include "runtime/emulator/warp.h"
#include "tests/emulator/machine.h"

using namespace stepc::emulator;

namespace {

// A kernel with most kinds of instructions, each on few lines so that damage meets all of them.
std::string sample() {
  const std::string body =
      "mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.s32 %r3, %r1, %r2; add.s64 %rd10, %rd0, %rd100;\n"
      "setp.eq.u32 %p1, %r0, 0; @!%p1 bra SKIP;\n"
      "mbarrier.init.shared::cta.b64 [%r1+4096], 1; mbarrier.init.shared::cta.b64 [%r1+4104], 32;\n"
      "fence.mbarrier_init.release.cluster;\n"
      "SKIP: bar.sync 0; @!%p1 bra WAIT;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+4096], 2048;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 2048, [%r1+4096];\n"
      "WAIT: { .reg .pred P;\nW: mbarrier.try_wait.parity.shared::cta.b64 P, [%r1+4096], 0; @!P bra W; }\n"
      "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3]; mad.lo.s32 %r4, %r5, %r6, %r7; bfe.u32 %r8, %r4, 3, 9;\n"
      "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r9, %r10}, [%r3]; prmt.b32 %r11, %r9, %r10, 0x5410;\n"
      "cvt.rn.f32.s32 %f1, %r4; fma.rn.f32 %f2, %f1, %f1, 0f3F800000; cvt.rn.bf16x2.f32 %r12, %f1, %f2;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f3, %f4, %f5, %f6}, {%r9, %r10, %r11, %r12}, {%r4, %r5}, "
      "{%f1, %f2, %f1, %f2};\n"
      "shfl.sync.bfly.b32 %r13, %r12, 1, 31, -1; redux.sync.add.u32 %r14, %r13, 0xffffffff;\n"
      "st.shared.v4.b32 [%r3+5120], {%r12, %r13, %r14, %r4}; fence.proxy.async.shared::cta; bar.sync 1, 128;\n"
      "elect.sync _|%p2, 0xffffffff; @!%p2 bra TAIL;\n"
      "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1+5120], 512; cp.async.bulk.commit_group;\n"
      "cp.async.bulk.wait_group.read 0;\n"
      "TAIL: atom.global.add.u32 %r15, [%rd1+512], %r14; cp.async.cg.shared.global [%r3+8192], [%rd0], 16;\n"
      "cp.async.commit_group; cp.async.wait_group 0; mov.u32 %r16, 0;\n"
      "LOOP: add.s32 %r16, %r16, 1; setp.lt.s32 %p3, %r16, %r0; @%p3 bra LOOP;\n"
      "shr.u32 %r17, %r1, 4; or.b32 %r17, %r17, 524288; mov.u32 %r18, 16; mov.b64 %rd20, {%r17, %r18}; "
      "wgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f10, %f11, %f12, %f13}, {%r4, %r5, %r6, %r7}, %rd20, 0, "
      "1, "
      "1, 0;\n"
      "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; st.global.f32 [%rd10], %f10;";
  return kernel_text(2, body, ".extern .shared .align 1024 .b8 s[];");
}

std::string damaged(const std::string& text, Random& random) {
  static const std::string kPieces[] = {"%r1",  "%rd0",  "%f1",        "%p1",  "0",
                                        "-1",   "4096",  "0xffffffff", ".b32", ".u64",
                                        ".f32", ".s16",  ",",          ";",    "[",
                                        "]",    "{",     "}",          "@",    "!",
                                        "|",    "+",     ":",          "1024", "99999999999999999999",
                                        "_",    ".sync", ".v2",        "ret",  "bra LOOP",
                                        "\"",   "/*"};
  std::string t = text;
  for (uint32_t n = 1 + random.below(2); n > 0; --n) {
    const size_t at = random.below(static_cast<uint32_t>(t.size()));
    const size_t length = std::min<size_t>(1 + random.below(6), t.size() - at);
    switch (random.below(9)) {
      case 0: t.erase(at, length); break;
      case 1: t.insert(at, kPieces[random.below(std::size(kPieces))]); break;
      case 2: t[at] = static_cast<char>(' ' + random.below(95)); break;
      case 3: t.insert(at, t.substr(random.below(static_cast<uint32_t>(t.size())), length)); break;
      default:  // another number
        for (size_t k = at; k < t.size(); ++k)
          if (std::isdigit(static_cast<unsigned char>(t[k]))) {
            t[k] = static_cast<char>('0' + random.below(10));
            break;
          }
    }
  }
  return t;
}

}  // namespace

TEST_CASE("damaged modules are refused or run to an end") {
  const std::string text = sample();
  const auto run = [](const std::string& t, uint64_t seed, size_t parameter_bytes) {
    Machine m(seed);
    m.shape().dynamic_shared_bytes = 12288;
    m.shape().patience = 3000;
    const uint64_t from = m.buffer(std::vector<uint32_t>(512, 3)), to = m.buffer(std::vector<uint32_t>(512));
    std::vector<uint64_t> parameters = {from, to};
    parameters.resize(parameter_bytes / 8 + 1);
    return text_of(m.run(t, parameters, 128));
  };
  REQUIRE(run(text, 1, 16) == "");
  size_t decoded = 0, faults = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    Random random(seed);
    const std::string t = damaged(text, random);
    auto module = decode_module(t);
    if (!module) {
      CHECK(!module.error().message.empty());
      continue;
    }
    if (!(*module)->kernels.contains("k")) continue;
    ++decoded;
    CAPTURE(t);
    faults += run(t, seed, (*module)->kernels.at("k")->parameter_bytes) != "";
  }
  CHECK(decoded > 300);
  CHECK(faults > 100);
}
