// Divergence, warp-wide instructions, barriers, clusters, determinism, and the reports of what goes wrong.
#include <doctest/doctest.h>

#include <set>

#include "tests/emulator/machine.h"

using namespace stepc::emulator;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// 32 results of a body that leaves them in %r99.
std::vector<uint32_t> results(const std::string& body, uint64_t seed = 1, uint32_t threads = 32) {
  Machine m(seed);
  const uint64_t to = m.buffer(std::vector<uint32_t>(threads));
  REQUIRE(text_of(m.run(kernel_text(1, body + "\nadd.s64 %rd10, %rd0, %rd100; st.global.u32 [%rd10], %r99;"), {to},
                        threads)) == "");
  return m.read<uint32_t>(to, threads);
}

std::string fault_of(const std::string& body, uint32_t threads = 32, uint64_t seed = 1) {
  Machine m(seed);
  m.shape().patience = 100000;
  return text_of(m.run(kernel_text(0, body), {}, threads));
}

}  // namespace

TEST_CASE("lanes diverge, loop unequally and meet again, for every seed") {
  // Collatz steps of tid + 1, then a sum over the warp, which needs all lanes.
  const std::string body =
      "add.s32 %r1, %r0, 1; mov.u32 %r2, 0;\n"
      "LOOP: setp.eq.u32 %p1, %r1, 1; @%p1 bra DONE;\n"
      "and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra EVEN;\n"
      "mad.lo.u32 %r1, %r1, 3, 1; bra.uni NEXT;\n"
      "EVEN: shr.u32 %r1, %r1, 1;\n"
      "NEXT: add.s32 %r2, %r2, 1; bra LOOP;\n"
      "DONE: redux.sync.add.u32 %r98, %r2, 0xffffffff; mad.lo.u32 %r99, %r98, 1000, %r2;";
  std::vector<uint32_t> steps(32);
  uint32_t sum = 0;
  for (uint32_t t = 0; t < 32; ++t) {
    for (uint32_t x = t + 1; x != 1; x = x % 2 ? 3 * x + 1 : x / 2) ++steps[t];
    sum += steps[t];
  }
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const auto d = results(body, seed);
    for (uint32_t t = 0; t < 32; ++t) CHECK(d[t] == sum * 1000 + steps[t]);
  }
}

TEST_CASE("scopes: a label and a register of an inner scope hide the outer ones") {
  const auto d = results(
      "mov.u32 %r99, 0; mov.u32 %r1, 5;\n"
      "{ .reg .b32 t; .reg .pred p; mov.u32 t, 3;\nAGAIN: add.s32 %r99, %r99, t; sub.s32 %r1, %r1, 1; setp.ne.s32 p, "
      "%r1, 0; @p bra AGAIN; }\n"
      "mov.u32 %r1, 2; { .reg .b32 t; .reg .pred p; mov.u32 t, 100;\nAGAIN: add.s32 %r99, %r99, t; sub.s32 %r1, %r1, "
      "1; setp.ne.s32 p, %r1, 0; @p bra AGAIN; }");
  for (const uint32_t x : d) CHECK(x == 215);
}

TEST_CASE("brx.idx: each lane goes its way") {
  const auto d = results(
      "and.b32 %r1, %r0, 3; brx.idx %r1, TABLE;\nTABLE: .branchtargets L0, L1, L2, L1;\n"
      "L0: mov.u32 %r99, 10; bra END;\nL1: mov.u32 %r99, 11; bra END;\nL2: mov.u32 %r99, 12;\nEND:");
  const uint32_t expected[4] = {10, 11, 12, 11};
  for (uint32_t t = 0; t < 32; ++t) CHECK(d[t] == expected[t % 4]);
}

TEST_CASE("shuffles, votes, election") {
  const auto lane = [](auto f) {
    std::vector<uint32_t> v;
    for (uint32_t t = 0; t < 32; ++t) v.push_back(f(t));
    return v;
  };
  CHECK(results("shfl.sync.bfly.b32 %r99, %r0, 5, 31, -1;") == lane([](uint32_t t) { return t ^ 5; }));
  CHECK(results("shfl.sync.idx.b32 %r99|%p1, %r0, 7, 0x1807, 0xffffffff;") ==
        lane([](uint32_t t) { return (t & 24) + 7; }));
  CHECK(results("shfl.sync.down.b32 %r98|%p1, %r0, 4, 31, -1; selp.b32 %r99, %r98, 99, %p1;") ==
        lane([](uint32_t t) { return t + 4 < 32 ? t + 4 : 99; }));
  CHECK(results("shfl.sync.up.b32 %r98|%p1, %r0, 1, 0, -1; selp.b32 %r99, %r98, 99, %p1;") ==
        lane([](uint32_t t) { return t ? t - 1 : 99; }));
  CHECK(results("setp.lt.u32 %p1, %r0, 4; vote.sync.ballot.b32 %r99, !%p1, -1;") ==
        lane([](uint32_t) { return 0xfffffff0u; }));
  CHECK(results("setp.lt.u32 %p1, %r0, 4; vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; selp.b32 "
                "%r99, 1, 0, %p2; selp.b32 %r98, 2, 0, %p3; add.s32 %r99, %r99, %r98;") ==
        lane([](uint32_t) { return 1; }));
  CHECK(results("setp.lt.u32 %p1, %r0, 16; @!%p1 bra HIGH;\nshfl.sync.idx.b32 %r99, %r0, 3, 31, 0xffff; bra END;\n"
                "HIGH: shfl.sync.idx.b32 %r99, %r0, 20, 31, 0xffff0000;\nEND:") ==
        lane([](uint32_t t) { return t < 16 ? 3u : 20u; }));
  for (uint64_t seed = 1; seed < 4; ++seed) {
    const auto e = results(
        "elect.sync %r98|%p1, 0xffffffff; elect.sync _|%p2, -1; and.pred %p1, %p1, %p2; selp.b32 "
        "%r99, 1, 0, %p1;",
        seed);
    CHECK(std::count(e.begin(), e.end(), 1u) == 1);
  }
}

TEST_CASE("barriers order warps: sync by all, named ones by half, arrive without waiting") {
  // Warps 0-1 write, barrier 1 hands over to warps 2-3 (which add), barrier 2 is only arrived at by them.
  const std::string body =
      "mov.u32 %r1, s; shr.u32 %r2, %r0, 5; and.b32 %r3, %r0, 63; shl.b32 %r4, %r3, 2; add.s32 %r5, %r1, %r4; "
      "setp.ge.u32 "
      "%p1, %r2, 2;\n"
      "@%p1 bra HIGH;\n"
      "st.shared.u32 [%r5], %r3; bar.arrive 1, 128; bar.sync 2, 128; xor.b32 %r6, %r4, 252; add.s32 %r6, %r6, %r1; "
      "ld.shared.u32 %r99, [%r6]; bra END;\n"
      "HIGH: bar.sync 1, 128; ld.shared.u32 %r7, [%r5]; add.s32 %r7, %r7, 1000; st.shared.u32 [%r5], %r7; bar.arrive "
      "2, "
      "128; mov.u32 %r99, %r7;\nEND: bar.sync 0;";
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Machine m(seed);
    m.shape().dynamic_shared_bytes = 256;
    const uint64_t to = m.buffer(std::vector<uint32_t>(128));
    const std::string text = kernel_text(1, body + "add.s64 %rd10, %rd0, %rd100; st.global.u32 [%rd10], %r99;",
                                         ".extern .shared .align 16 .b8 s[];");
    REQUIRE(text_of(m.run(text, {to}, 128)) == "");
    const auto d = m.read<uint32_t>(to, 128);
    for (uint32_t t = 0; t < 64; ++t) {
      CHECK(d[t] == 1063 - t);
      CHECK(d[t + 64] == 1000 + t);
    }
  }
}

TEST_CASE("a barrier for all counts warps that have not exited") {
  CHECK(fault_of("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0; bar.sync 0;", 128) == "");
}

TEST_CASE("CTAs see their places; clusters share a barrier and one another's memory") {
  Machine m;
  m.shape().cluster.x = 2;
  m.shape().dynamic_shared_bytes = 16;
  const uint64_t to = m.buffer(std::vector<uint32_t>(8 * 4));
  const std::string body =
      "mov.u32 %r1, s; mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r0, 0;\n"
      "@!%p1 st.shared.u32 [%r1], %r2; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n"
      "mov.u32 %r3, %cluster_ctarank; xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r5, %r1, %r4; "
      "ld.shared::cluster.u32 %r6, [%r5];\n"
      "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mov.u32 %r7, %clusterid.x; mov.u32 %r8, "
      "%nctaid.x; "
      "mad.wide.u32 %rd10, %r2, 16, %rd0;\n"
      "@!%p1 st.global.v4.u32 [%rd10], {%r6, %r3, %r7, %r8};";
  REQUIRE(text_of(m.run(kernel_text(1, body, ".extern .shared .align 16 .b8 s[];"), {to}, 64, 8)) == "");
  const auto d = m.read<uint32_t>(to, 32);
  for (uint32_t c = 0; c < 8; ++c) {
    CHECK(d[4 * c] == (c ^ 1));
    CHECK(d[4 * c + 1] == c % 2);
    CHECK(d[4 * c + 2] == c / 2);
    CHECK(d[4 * c + 3] == 8);
  }
}

TEST_CASE("the same seed gives the same bits on any number of threads; seeds differ in what nothing orders") {
  // Every lane appends its number to a list: the order is the schedule's.
  const std::string body =
      "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %r0; atom.global.add.u32 %r3, [%rd0], 1; mad.wide.u32 %rd10, "
      "%r3, 4, %rd1; st.global.u32 [%rd10], %r2;";
  const auto order = [&](uint64_t seed, int threads) {
    Machine m(seed, threads);
    const uint64_t counter = m.buffer(std::vector<uint32_t>(1)), list = m.buffer(std::vector<uint32_t>(1024));
    REQUIRE(text_of(m.run(kernel_text(2, body), {counter, list}, 64, 16)) == "");
    return m.read<uint32_t>(list, 1024);
  };
  const auto one = order(3, 1);
  CHECK(one == order(3, 1));
  CHECK(one == order(3, 2));
  CHECK(one != order(4, 1));
  CHECK(std::set(one.begin(), one.end()).size() == 1024);
}

TEST_CASE("a deadlock names every warp, where it waits and for what") {
  const std::string text = fault_of(
      ".loc 1 14 0\nsetp.lt.u32 %p1, %r0, 32; @%p1 bra LOW;\nbar.sync 3, 64;\nret;\n.loc 1 20 0\nLOW: bar.sync 4, 64;",
      64);
  CHECK(contains(text, "deadlock: no warp can go on and nothing is under way"));
  CHECK(contains(text, "kernel IR line 20, PTX line 11, CTA 0, warp 0: LOW: bar.sync 4, 64;"));
  CHECK(contains(text, "barrier 4: 32 of 64 threads have arrived"));
  CHECK(contains(text, "kernel IR line 14, PTX line 8, CTA 0, warp 1: bar.sync 3, 64;"));
}

TEST_CASE("a loop that changes nothing is reported as hanging") {
  CHECK(contains(fault_of("LOOP: add.s32 %r1, %r1, 1; bra LOOP;"), "100000 instructions and nothing but registers"));
}

TEST_CASE("barrier misuse") {
  const std::string two =
      fault_of("setp.lt.u32 %p1, %r0, 32; @%p1 bra LOW;\nbar.sync 3, 64;\nret;\nLOW: bar.sync 3, 96;", 64);
  CHECK(contains(two, "named barrier mismatch: barrier 3 for"));
  CHECK(contains(two, "first to arrive:"));
  CHECK(contains(fault_of("bar.arrive 5, 64;"), "the kernel ends with 32 of 64 threads at barrier 5"));
  CHECK(contains(fault_of("bar.sync 1, 48;"), "48 threads is no number of whole warps"));
  CHECK(contains(fault_of("bar.sync %r0;"), "barrier operand 0 in one lane, 1 in another"));
  CHECK(contains(fault_of("mov.u32 %r1, 16; bar.sync %r1;"), "barrier 16; there are 16"));
  CHECK(contains(fault_of("barrier.cluster.wait.aligned;"), "without having arrived"));
}

TEST_CASE("warp-wide instructions that lanes cannot reach together") {
  CHECK(contains(fault_of("setp.lt.u32 %p1, %r0, 7; @%p1 ret; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;"),
                 "divergent warp: needs lanes 0xffffffff, of which 0x0000007f have exited"));
  CHECK(contains(fault_of("setp.lt.u32 %p1, %r0, 7; @%p1 bar.sync 0;"),
                 "only lanes 0x0000007f execute it, of 0xffffffff that it needs"));
  CHECK(contains(fault_of("setp.lt.u32 %p1, %r0, 7; @%p1 barrier.cluster.arrive.aligned;"), "only lanes 0x0000007f"));
  CHECK(contains(fault_of("setp.lt.u32 %p1, %r0, 7; @%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;"),
                 "only lanes 0x0000007f"));
  CHECK(contains(fault_of("setp.lt.u32 %p1, %r0, 7; @%p1 shfl.sync.bfly.b32 %r1, %r0, 8, 31, 127;"),
                 "which does not take part"));
  const std::string text = fault_of(
      "setp.lt.u32 %p1, %r0, 16; @%p1 bra LOW;\nshfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; ret;\nLOW: shfl.sync.bfly.b32 "
      "%r1, %r0, 1, 31, -1;");
  CHECK(contains(text, "deadlock"));
  CHECK(contains(text, "lanes 0x0000ffff wait here for 0xffff0000"));
}

TEST_CASE("registers move between warps; taking more than others give back never ends") {
  const auto report = [](const std::string& directives, const std::string& give, const std::string& take) {
    Machine m;
    const std::string text = module_text(".visible .entry k() " + directives +
                                         " {\n.reg .pred %p<2>; .reg .b32 %r<2>; mov.u32 %r0, %tid.x; "
                                         "setp.ge.u32 %p1, %r0, 128; @%p1 bra TAKE;\nsetmaxnreg.dec.sync.aligned.u32 " +
                                         give +
                                         "; ret;\n"
                                         "TAKE: setmaxnreg.inc.sync.aligned.u32 " +
                                         take + "; ret;\n}");
    return text_of(m.run(text, {}, 384));
  };
  CHECK(report(".maxntid 384", "24", "240") == "");
  const std::string stuck = report(".maxntid 384", "40", "240");
  CHECK(contains(stuck, "deadlock"));
  CHECK(contains(stuck, "registers are free, it needs 2304"));
  CHECK(contains(report(".maxntid 384", "176", "240"), "176 registers, while the warp has 168"));
  CHECK(contains(report("", "24", "240"), "needs a kernel that states .maxntid"));
}

TEST_CASE("trap") { CHECK(contains(fault_of("setp.eq.u32 %p1, %r0, 9; @%p1 trap;"), "lane 9")); }

TEST_CASE("what the decoder does not know, it names with its line") {
  const auto error = [](const std::string& body) { return decode_error(kernel_text(0, body)); };
  CHECK(error("\nsuld.b.1d.b32 %r1, %r2;") == "module.ptx:7:1: unknown instruction suld.b.1d.b32");
  CHECK(error("add.rz.f32 %f1, %f2, %f3;") == "module.ptx:6:1: add.rz.f32: unknown modifier .rz");
  CHECK(error("add.rn.bf16x2 %r1, %r2, %r3;") == "module.ptx:6:1: add.rn.bf16x2: no such form for .bf16x2");
  CHECK(error("ld.local.u32 %r1, [%rd1];") == "module.ptx:6:1: ld.local.u32: local memory: stepc's kernels have none");
  CHECK(error("add.s32 %r1, %rd2, %r3;") == "module.ptx:6:1: add.s32: operand %rd2 is 64 bits wide, .s32 expected");
  CHECK(error("add.s32 %r1, %r2;") == "module.ptx:6:1: add.s32: 2 operands, expected 3");
  CHECK(error("mov.u32 %r1, %clock;") == "module.ptx:6:14: unknown register %clock");
  CHECK(error("mov.u32 %r1, %r400;") == "module.ptx:6:14: unknown register %r400");
  CHECK(error("bra NOWHERE;") == "module.ptx:6:1: unknown label NOWHERE");
  CHECK(error(".local .b8 depot[16];") == "module.ptx:6:1: unknown directive .local");
  CHECK(error("add.s32 %r1, %r2, %r3") == "module.ptx:7:1: found 'ret', expected ';' after add.s32");
  CHECK(error("setp.zz.s32 %p1, %r2, %r3;") == "module.ptx:6:1: setp.zz.s32: no comparison");
  CHECK(decode_error(module_text(".func f() { ret; }")) == "module.ptx:4:1: unknown directive .func");
  CHECK(decode_error(module_text(".visible .entry k() { ret;")) == "module.ptx:4:27: the text ends inside kernel k");
}
