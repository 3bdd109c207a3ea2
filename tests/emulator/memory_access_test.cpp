// Loads, stores, atomics and matrix accesses; every way to be out of bounds or misaligned.
#include <doctest/doctest.h>

#include <bit>
#include <numeric>

#include "tests/emulator/machine.h"

using namespace stepc::emulator;

namespace {

std::vector<uint32_t> counting(size_t n, uint32_t from = 0) {
  std::vector<uint32_t> v(n);
  std::iota(v.begin(), v.end(), from);
  return v;
}

// Runs a body over one buffer of 64 words; the report of the fault.
std::string fault_of(const std::string& body, uint32_t shared_bytes = 0, const std::string& items = "") {
  Machine m;
  m.shape().dynamic_shared_bytes = shared_bytes;
  const uint64_t a = m.buffer(counting(64));
  return text_of(m.run(kernel_text(1, body, items), {a}));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("vector loads and stores, with hints, of every width") {
  Machine m;
  const uint64_t from = m.buffer(counting(128, 5)), to = m.buffer(std::vector<uint32_t>(128));
  const std::string body =
      "mad.wide.u32 %rd10, %r0, 16, %rd0; mad.wide.u32 %rd11, %r0, 16, %rd1;\n"
      "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r1, %r2, %r3, %r4}, [%rd10];\n"
      "st.global.L1::no_allocate.v2.b32 [%rd11], {%r4, %r3};\n"
      "ld.global.v2.b64 {%rd20, %rd21}, [%rd10];\n"
      "st.global.b16 [%rd11+8], %r2; st.global.u8 [%rd11+10], 7; st.global.u8 [%rd11+11], 0;\n"
      "ld.global.s8 %r5, [%rd11+10]; sub.s32 %r5, %r5, 8; cvt.s16.s32 %rs1, %r5; st.global.b16 [%rd11+12], %rs1;\n"
      "ld.global.s16 %r6, [%rd11+12]; cvt.u32.u64 %r7, %rd20; add.s32 %r6, %r6, %r7; st.global.b16 [%rd11+14], %r6;";
  REQUIRE(text_of(m.run(kernel_text(2, body), {from, to})) == "");
  const auto d = m.read<uint32_t>(to, 128);
  for (uint32_t t = 0; t < 32; ++t) {
    CHECK(d[4 * t] == 5 + 4 * t + 3);
    CHECK(d[4 * t + 1] == 5 + 4 * t + 2);
    CHECK(d[4 * t + 2] == ((5 + 4 * t + 1) | 7u << 16));
    CHECK(d[4 * t + 3] == (0xffffu | ((5 + 4 * t - 1) << 16)));
  }
}

TEST_CASE("a module's shared variables and the dynamic ones behind them") {
  Machine m;
  m.shape().dynamic_shared_bytes = 256;
  const uint64_t to = m.buffer(std::vector<uint32_t>(32));
  const std::string items = ".shared .align 8 .b8 small[40]; .extern .shared .align 1024 .b8 rest[];";
  const std::string body =
      "mov.u32 %r1, rest; mov.u32 %r2, small; add.s32 %r3, %r1, 4; shl.b32 %r4, %r0, 2; add.s32 %r5, %r1, %r4;\n"
      "st.shared.u32 [%r5], %r0; bar.sync 0; xor.b32 %r6, %r4, 124; add.s32 %r6, %r1, %r6;\n"
      "ld.shared.u32 %r7, [%r6]; sub.s32 %r8, %r1, %r2; mad.lo.s32 %r7, %r8, 100, %r7;\n"
      "mov.u64 %rd20, rest; cvta.shared.u64 %rd20, %rd20; ld.u32 %r9, [%rd20+8]; add.s32 %r7, %r7, %r9;\n"
      "add.s64 %rd10, %rd0, %rd100; st.global.u32 [%rd10], %r7;";
  REQUIRE(text_of(m.run(kernel_text(1, body, items), {to})) == "");
  const auto d = m.read<uint32_t>(to, 32);
  for (uint32_t t = 0; t < 32; ++t) CHECK(d[t] == 1024 * 100 + (31 - t) + 2);
}

TEST_CASE("parameters of every size are read in place and through a generic address") {
  Machine m;
  const uint64_t to = m.buffer(std::vector<uint32_t>(8));
  const std::string text = module_text(
      ".visible .entry k(.param .u64 .ptr .global .align 16 k_param_0, .param .u32 k_param_1, .param .u8 k_param_2, "
      ".param .align 64 .b8 k_param_3[128]) .maxntid 32, 1, 1 .minnctapersm 1 {\n"
      ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<2>;\n"
      "ld.param.u64 %rd1, [k_param_0]; cvta.to.global.u64 %rd1, %rd1;\n"
      "ld.param.u32 %r1, [k_param_1]; ld.param.u8 %r2, [k_param_2];\n"
      "mov.b64 %rd2, k_param_3; cvta.param.u64 %rd3, %rd2; ld.u32 %r3, [%rd3+124]; ld.param.u32 %r4, [k_param_3+4];\n"
      "mov.u32 %r5, %tid.x; setp.ne.u32 %p1, %r5, 0; @%p1 bra DONE;\n"
      "st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};\nDONE: ret;\n}");
  std::vector<uint64_t> parameters(24);
  parameters[0] = to;
  parameters[1] = 77 | uint64_t{9} << 32;
  parameters[8] = uint64_t{1234} << 32;  // the map starts at 64
  parameters[8 + 15] = uint64_t{4321} << 32;
  REQUIRE(text_of(m.run(text, parameters)) == "");
  CHECK(m.read<uint32_t>(to, 4) == std::vector<uint32_t>{77, 9, 4321, 1234});
}

TEST_CASE("accesses out of bounds and misaligned ones name the place and what is near") {
  const std::string end = fault_of("add.s64 %rd10, %rd0, %rd101; ld.global.u32 %r1, [%rd10+8];");
  CHECK(contains(end, "address out of bounds: 4 bytes at global address"));
  CHECK(contains(end, "0 bytes past the end of the allocation of 256 bytes"));
  CHECK(contains(end, "kernel k, PTX line 6, CTA 0, warp 0, lane 31: add.s64"));
  CHECK(contains(fault_of("st.global.v2.u32 [%rd0+252], {%r0, %r0};"), "8 bytes at global address"));
  CHECK(contains(fault_of("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+8];"),
                 "misaligned address: 16 bytes at global address"));
  CHECK(contains(fault_of("mov.u64 %rd10, 16; ld.global.u32 %r1, [%rd10];"), "no allocation is near"));
  CHECK(contains(fault_of("ld.global.u32 %r1, [%rd150];"), "no allocation is near"));  // never written
  const std::string items = ".extern .shared .align 16 .b8 s[];";
  CHECK(contains(fault_of("mov.u32 %r1, s; st.shared.u32 [%r1+64], %r0;", 64, items),
                 "4 bytes at shared address 1088 (64 from the window's start), outside the CTA's 64 bytes"));
  CHECK(contains(fault_of("mov.u32 %r1, s; st.shared.u16 [%r1+5], %r0;", 64, items), "which is no multiple of 2"));
  CHECK(contains(fault_of("mov.u32 %r1, 0; ld.shared.u32 %r1, [%r1];", 64, items), "outside the CTA's 64 bytes"));
}

TEST_CASE("ld.global.nc may not see bytes that the launch has written") {
  Machine m;
  const uint64_t a = m.buffer(counting(64));
  const std::string in_place =
      "add.s64 %rd10, %rd0, %rd100; ld.global.nc.u32 %r1, [%rd10]; add.s32 %r1, %r1, 1; st.global.u32 [%rd10], %r1;";
  CHECK(text_of(m.run(kernel_text(1, in_place), {a}, 64)) == "");
  CHECK(text_of(m.run(kernel_text(1, in_place), {a}, 64)) == "");  // another launch may read what this one wrote
  CHECK(m.read<uint32_t>(a, 64) == counting(64, 2));
  const std::string again = in_place + "ld.global.u32 %r2, [%rd10]; ld.global.nc.u32 %r3, [%rd10];";
  CHECK(contains(text_of(m.run(kernel_text(1, again), {a}, 64)), "race: ld.global.nc of 4 bytes at"));
  const std::string half =
      "mad.wide.u32 %rd10, %r0, 2, %rd0; st.global.b16 [%rd10], %r0; ld.global.nc.u16 %rs1, [%rd10+64];";
  CHECK(text_of(m.run(kernel_text(1, half), {a})) == "");
}

TEST_CASE("a reduction of a vector adds each element") {
  Machine m;
  const uint64_t sums = m.buffer(std::vector<float>{0.5f, 1, 2, 3, 4, 5, 6, 7});
  const std::string body =
      "cvt.rn.f32.u32 %f1, %r0; add.f32 %f2, %f1, %f1; red.relaxed.gpu.global.add.v2.f32 [%rd0+8], {%f1, %f2};\n"
      "red.global.add.v4.f32 [%rd0+16], {%f2, %f1, %f1, %f2};";
  REQUIRE(text_of(m.run(kernel_text(1, body), {sums})) == "");
  CHECK(m.read<float>(sums, 8) == std::vector<float>{0.5f, 1, 498, 995, 996, 501, 502, 999});
  const std::string odd = "mov.f32 %f1, 0f3f800000; red.global.add.v2.f32 [%rd0+4], {%f1, %f1};";
  CHECK(contains(text_of(m.run(kernel_text(1, odd), {sums})), "no multiple of 8"));
}

TEST_CASE("atomics: every lane counts once, whatever the order") {
  Machine m;
  const uint64_t words = m.buffer(std::vector<uint32_t>{0, 0, 100, 7, 0, 0xffffffff, std::bit_cast<uint32_t>(0.5f), 0});
  const uint64_t old = m.buffer(std::vector<uint32_t>(64));
  const std::string body =
      "atom.global.add.u32 %r1, [%rd0], 1; red.global.max.u32 [%rd0+4], %r0; red.relaxed.gpu.global.min.s32 [%rd0+8], "
      "%r0;\n"
      "atom.global.cas.b32 %r2, [%rd0+12], 7, 9; atom.global.inc.u32 %r3, [%rd0+16], 9; red.global.and.b32 [%rd0+20], "
      "0xff;\n"
      "cvt.rn.f32.u32 %f1, %r0; red.global.add.f32 [%rd0+24], %f1;\n"
      "red.global.add.noftz.bf16x2 [%rd0+28], 0x3f804000;\n"
      "add.s64 %rd10, %rd1, %rd100; st.global.u32 [%rd10], %r1; st.global.u32 [%rd10+128], %r2;";
  REQUIRE(text_of(m.run(kernel_text(2, body), {words, old})) == "");
  const auto w = m.read<uint32_t>(words, 8);
  CHECK(w[0] == 32);
  CHECK(w[1] == 31);
  CHECK(w[2] == 0);
  CHECK(w[3] == 9);
  CHECK(w[4] == 2);
  CHECK(w[5] == 0xff);
  CHECK(std::bit_cast<float>(w[6]) == 496.5f);
  CHECK(w[7] == 0x42004280);  // 32 of 1.0 and of 2.0
  const auto o = m.read<uint32_t>(old, 64);
  uint64_t seen = 0;
  for (size_t k = 0; k < 32; ++k) seen |= uint64_t{1} << o[k];
  CHECK(seen == 0xffffffff);
  CHECK(std::count(o.begin() + 32, o.end(), 7) == 1);
  CHECK(std::count(o.begin() + 32, o.end(), 9) == 31);
}

TEST_CASE("cp.async lands by its wait; missing source bytes become zero") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Machine m(seed);
    m.shape().dynamic_shared_bytes = 1024;
    const uint64_t from = m.buffer(counting(128)), to = m.buffer(std::vector<uint32_t>(128));
    const std::string body =
        "mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.s32 %r1, %r1, %r2; cvt.u64.u32 %rd10, %r2; add.s64 %rd11, %rd0, "
        "%rd10; add.s64 %rd12, %rd1, %rd10;\n"
        "and.b32 %r3, %r0, 1; mul.lo.s32 %r3, %r3, 12; add.s32 %r3, %r3, 4;\n"
        "cp.async.cg.shared.global [%r1], [%rd11], 16, %r3; cp.async.commit_group; cp.async.wait_group 0;\n"
        "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r1]; st.global.v4.u32 [%rd12], {%r5, %r6, %r7, %r8};";
    REQUIRE(text_of(m.run(kernel_text(2, body, ".extern .shared .align 16 .b8 s[];"), {from, to})) == "");
    const auto d = m.read<uint32_t>(to, 128);
    for (uint32_t k = 0; k < 128; ++k) CHECK(d[k] == (k % 8 == 0 || k % 8 >= 4 ? k : 0));
  }
}

TEST_CASE("ldmatrix and stmatrix move 8x8 blocks; .trans turns them") {
  Machine m;
  m.shape().dynamic_shared_bytes = 2048;
  std::vector<uint16_t> matrices(256);
  std::iota(matrices.begin(), matrices.end(), uint16_t{0});
  const uint64_t from = m.buffer(matrices), to = m.buffer(std::vector<uint32_t>(256));
  // Each lane copies one row of 16 bytes, then loads all four matrices plain and transposed.
  const std::string body =
      "mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.s32 %r1, %r1, %r2; cvt.u64.u32 %rd10, %r2; add.s64 %rd11, %rd0, "
      "%rd10; add.s64 %rd12, %rd1, %rd10;\n"
      "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd11]; st.shared.v4.u32 [%r1], {%r3, %r4, %r5, %r6}; bar.warp.sync "
      "0xffffffff;\n"
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r1];\n"
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r20, %r21, %r22, %r23}, [%r1];\n"
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r1+1024], {%r20, %r21, %r22, %r23}; bar.warp.sync 0xffffffff;\n"
      "st.global.v4.u32 [%rd12], {%r10, %r11, %r20, %r21}; ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1+1024]; "
      "st.global.v4.u32 [%rd12+512], {%r3, %r4, %r5, %r6};";
  REQUIRE(text_of(m.run(kernel_text(2, body, ".extern .shared .align 16 .b8 s[];"), {from, to})) == "");
  const auto d = m.read<uint16_t>(to, 512);
  for (int l = 0; l < 32; ++l)
    for (int q = 0; q < 2; ++q)
      for (int e = 0; e < 2; ++e) {
        const int r = l / 4, c = 2 * (l % 4) + e;
        CHECK(d[8 * l + 2 * q + e] == q * 64 + r * 8 + c);
        CHECK(d[8 * l + 4 + 2 * q + e] == q * 64 + c * 8 + r);
      }
  for (int k = 0; k < 256; ++k) CHECK(d[256 + k] == k);
}

TEST_CASE("mma.sync m16n8k16: bf16 in, f32 out") {
  Machine m;
  // a[r][k] = r + k / 4, b[k][n] = k - n, both exact; c = 0.5.
  const auto bf16 = [](float x) { return std::bit_cast<uint32_t>(x) >> 16; };
  const auto a = [](int r, int k) { return static_cast<float>(r + k / 4); };
  const auto b = [](int k, int n) { return static_cast<float>(k - n); };
  std::vector<uint32_t> in(32 * 8);
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, t = 2 * (l % 4);
    const int rows[4] = {g, g + 8, g, g + 8}, ks[4] = {t, t, t + 8, t + 8};
    for (int s = 0; s < 4; ++s) in[8 * l + s] = bf16(a(rows[s], ks[s])) | bf16(a(rows[s], ks[s] + 1)) << 16;
    for (int s = 0; s < 2; ++s) in[8 * l + 4 + s] = bf16(b(t + 8 * s, g)) | bf16(b(t + 8 * s + 1, g)) << 16;
  }
  const uint64_t from = m.buffer(in), to = m.buffer(std::vector<float>(128));
  const std::string body =
      "mad.wide.u32 %rd10, %r0, 32, %rd0; mad.wide.u32 %rd11, %r0, 16, %rd1;\n"
      "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd10]; ld.global.v2.u32 {%r5, %r6}, [%rd10+16]; mov.f32 %f1, "
      "0f3F000000;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
      "{%f1, %f1, %f1, %f1};\nst.global.v4.f32 [%rd11], {%f2, %f3, %f4, %f5};";
  REQUIRE(text_of(m.run(kernel_text(2, body), {from, to})) == "");
  const auto d = m.read<float>(to, 128);
  for (int l = 0; l < 32; ++l)
    for (int s = 0; s < 4; ++s) {
      const int r = l / 4 + 8 * (s / 2), n = 2 * (l % 4) + s % 2;
      float sum = 0.5f;
      for (int k = 0; k < 16; ++k) sum += a(r, k) * b(k, n);
      CHECK(d[4 * l + s] == sum);
    }
}

TEST_CASE("mma.sync m16n8k8 in tf32 ignores the low bits") {
  Machine m;
  std::vector<float> in(32 * 8);
  const auto a = [](int r, int k) { return static_cast<float>(r - k); };
  const auto b = [](int k, int n) { return static_cast<float>(2 * k + n); };
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, t = l % 4;
    for (int s = 0; s < 4; ++s) in[8 * l + s] = a(g + 8 * (s % 2), t + 4 * (s / 2));
    for (int s = 0; s < 2; ++s)
      in[8 * l + 4 + s] = std::bit_cast<float>(std::bit_cast<uint32_t>(b(t + 4 * s, g)) | 0x1fff);
  }
  const uint64_t from = m.buffer(in), to = m.buffer(std::vector<float>(128));
  const std::string body =
      "mad.wide.u32 %rd10, %r0, 32, %rd0; mad.wide.u32 %rd11, %r0, 16, %rd1; mov.f32 %f1, 0f00000000;\n"
      "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd10]; ld.global.v2.u32 {%r5, %r6}, [%rd10+16];\n"
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f2, %f3, %f4, %f5}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
      "{%f1, %f1, %f1, %f1};\nst.global.v4.f32 [%rd11], {%f2, %f3, %f4, %f5};";
  REQUIRE(text_of(m.run(kernel_text(2, body), {from, to})) == "");
  const auto d = m.read<float>(to, 128);
  for (int l = 0; l < 32; ++l)
    for (int s = 0; s < 4; ++s) {
      const int r = l / 4 + 8 * (s / 2), n = 2 * (l % 4) + s % 2;
      float sum = 0;
      for (int k = 0; k < 8; ++k) sum += a(r, k) * b(k, n);
      CHECK(d[4 * l + s] == sum);
    }
}
