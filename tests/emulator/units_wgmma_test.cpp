// wgmma in PTX against a double-precision product, with operands laid out in shared memory by functions written for
// this test alone: every N, every pair of majors, every swizzle, A from shared memory and from registers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "tests/emulator/ptx_launch.h"

namespace stepc::emulator {
namespace {

uint16_t bf16_of(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }
float value_of(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// A matrix of 16 columns of k, and how it lies in shared memory.
struct Operand16 {
  int rows = 64;
  bool mn_major = false;
  uint32_t span = 128;           // bytes of the swizzle; 0: none
  std::vector<uint16_t> values;  // [row][k]

  uint16_t at(int row, int k) const { return values[static_cast<size_t>(row * 16 + k)]; }

  // Byte of element (row, k). Swizzled K-major: 8-row tiles one below the other, only the first 32 bytes of each row
  // used. Swizzled MN-major: panels of span bytes, 16 rows of k each. Plain: 8 x 16-byte cores, all of one k half
  // before the other.
  uint32_t byte(int row, int k) const {
    const auto r = static_cast<uint32_t>(row), c = static_cast<uint32_t>(k);
    const auto all = static_cast<uint32_t>(rows);
    if (span == 0)
      return mn_major ? (c / 8) * (all / 8) * 128 + (r / 8) * 128 + (c % 8) * 16 + (r % 8) * 2
                      : (c / 8) * (all / 8) * 128 + (r / 8) * 128 + (r % 8) * 16 + (c % 8) * 2;
    const uint32_t line = mn_major ? c : r;
    const uint32_t column = (mn_major ? r % (span / 2) : c) * 2;
    const uint32_t panel = mn_major ? r / (span / 2) * panel_bytes() : 0;
    const uint32_t turn = line * span / 128 % (span / 16);
    return panel + line * span + ((column / 16) ^ turn) * 16 + column % 16;
  }
  uint32_t panel_bytes() const { return std::max(16 * span, 1024u); }
  uint32_t bytes() const {
    const auto all = static_cast<uint32_t>(rows);
    if (span == 0) return all * 32;
    return mn_major ? (all + span / 2 - 1) / (span / 2) * panel_bytes() : all * span;
  }
  uint64_t descriptor(uint32_t start) const {
    uint64_t leading = 16, stride = 8 * span, mode = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
    if (span == 0) {
      leading = static_cast<uint64_t>(rows) / 8 * 128;
      stride = 128;
    } else if (mn_major) {
      leading = panel_bytes();
    }
    return start / 16 | (leading / 16) << 16 | (stride / 16) << 32 | mode << 62;
  }
  void put(std::vector<uint8_t>* image, uint32_t start) const {
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < 16; ++k) {
        const uint16_t v = at(r, k);
        std::memcpy(image->data() + start + byte(r, k), &v, 2);
      }
  }
};

std::string rows_of(const char* prefix, int count) {
  std::string text;
  for (int r = 0; r < count; ++r) text += fmt::format("{}{}{}", r == 0 ? "" : ", ", prefix, r);
  return text;
}

// Brings an image of shared memory, multiplies twice (d = a b, then d = d + a b), and writes the registers.
std::string kernel_text(int n, const Operand16& a, const Operand16& b, bool registers) {
  std::string text = R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 image[];
.visible .entry multiply(.param .u64 multiply_param_0, .param .u32 multiply_param_1, .param .u64 multiply_param_2,
  .param .u64 multiply_param_3, .param .u64 multiply_param_4, .param .u64 multiply_param_5)
{
  .reg .pred %p<8>;
  .reg .b32 %r<24>;
  .reg .b64 %rd<24>;
  .reg .f32 %f<128>;
  mov.u32 %r1, image;
  mov.u32 %r2, %tid.x;
  ld.param.u64 %rd1, [multiply_param_0];
  ld.param.u32 %r3, [multiply_param_1];
  add.u32 %r4, %r1, %r3;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r4], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], %r3;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r3, [%r4];
READY:
  bar.sync 0;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;
  @!%p2 bra WAIT;
  ld.param.u64 %rd2, [multiply_param_2];
  ld.param.u64 %rd3, [multiply_param_3];
  ld.param.u64 %rd4, [multiply_param_4];
  ld.param.u64 %rd5, [multiply_param_5];
  shr.u32 %r5, %r1, 4;
  cvt.u64.u32 %rd6, %r5;
  add.u64 %rd2, %rd2, %rd6;
  add.u64 %rd3, %rd3, %rd6;
  mul.wide.u32 %rd7, %r2, 16;
  add.u64 %rd7, %rd7, %rd5;
  ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd7];
  wgmma.fence.sync.aligned;
)";
  const std::string first = registers ? "{%r10, %r11, %r12, %r13}" : "%rd2";
  const std::string modes = registers ? fmt::format("1, 1, {}", int{b.mn_major})
                                      : fmt::format("1, 1, {}, {}", int{a.mn_major}, int{b.mn_major});
  for (const char* scale_d : {"0", "1"})
    text += fmt::format("  wgmma.mma_async.sync.aligned.m64n{}k16.f32.bf16.bf16 {{{}}}, {}, %rd3, {}, {};\n", n,
                        rows_of("%f", n / 2), first, scale_d, modes);
  text += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n";
  text += fmt::format("  mul.wide.u32 %rd8, %r2, {};\n  add.u64 %rd8, %rd8, %rd4;\n", n / 2 * 4);
  for (int r = 0; r < n / 2; ++r) text += fmt::format("  st.global.f32 [%rd8+{}], %f{};\n", 4 * r, r);
  return text + "  ret;\n}\n";
}

// Largest difference from the double-precision product, relative to the sum of magnitudes.
double error(int n, Operand16 a, Operand16 b, bool registers, uint64_t seed) {
  Random random(seed);
  a.rows = 64;
  b.rows = n;
  for (Operand16* operand : {&a, &b})
    for (int i = 0; i < operand->rows * 16; ++i)
      operand->values.push_back(bf16_of((static_cast<float>(random.below(1 << 16)) - 32768.f) / 16384.f));
  const uint32_t start_b = (a.bytes() + 1023) / 1024 * 1024;
  const uint32_t bytes = (start_b + b.bytes() + 15) / 16 * 16;
  std::vector<uint8_t> image(bytes, 0x7f);
  a.put(&image, 0);
  b.put(&image, start_b);
  std::vector<uint32_t> fragments(128 * 4);
  for (int t = 0; t < 128; ++t)
    for (int q = 0; q < 4; ++q) {
      const int row = t / 32 * 16 + t % 32 / 4 + 8 * (q % 2), k = t % 4 * 2 + 8 * (q / 2);
      fragments[static_cast<size_t>(t * 4 + q)] = a.at(row, k) | static_cast<uint32_t>(a.at(row, k + 1)) << 16;
    }
  PtxLaunch launch(seed);
  uint64_t at_image = launch.upload(image), at_fragments = launch.upload(fragments);
  uint64_t at_out = launch.upload(std::vector<float>(static_cast<size_t>(64 * n), -1));
  uint64_t descriptor_a = a.descriptor(0), descriptor_b = b.descriptor(start_b);
  uint32_t image_bytes = bytes;
  const std::string report =
      launch.launch(kernel_text(n, a, b, registers), "multiply", {1, 128, (bytes + 1023) / 1024 * 1024 + 1024, 1},
                    {&at_image, &image_bytes, &descriptor_a, &descriptor_b, &at_out, &at_fragments});
  CHECK(report == "");
  const auto out = launch.download<float>(at_out, static_cast<size_t>(64 * n));
  double worst = 0;
  for (int t = 0; t < 128; ++t)
    for (int r = 0; r < n / 2; ++r) {
      const int row = t / 32 * 16 + t % 32 / 4 + 8 * (r / 2 % 2), column = r / 4 * 8 + t % 4 * 2 + r % 2;
      double sum = 0, size = 1;
      for (int k = 0; k < 16; ++k) {
        const double term =
            2 * static_cast<double>(value_of(a.at(row, k))) * static_cast<double>(value_of(b.at(column, k)));
        sum += term;
        size += std::abs(term);
      }
      worst = std::max(worst, std::abs(sum - static_cast<double>(out[static_cast<size_t>(t * (n / 2) + r)])) / size);
    }
  return worst;
}

TEST_CASE("wgmma of every N") {
  for (int n = 8; n <= 256; n += 8) {
    CAPTURE(n);
    CHECK(error(n, {}, {}, false, static_cast<uint64_t>(n)) < 1e-6);
  }
}

TEST_CASE("wgmma with both majors of both operands, in every swizzle") {
  uint64_t seed = 100;
  for (const uint32_t span_a : {128u, 64u, 32u, 0u})
    for (const uint32_t span_b : {128u, 64u, 32u, 0u})
      for (const bool a_mn : {false, true})
        for (const bool b_mn : {false, true}) {
          CAPTURE(span_a);
          CAPTURE(span_b);
          CAPTURE(a_mn);
          CAPTURE(b_mn);
          Operand16 a, b;
          a.span = span_a;
          a.mn_major = a_mn;
          b.span = span_b;
          b.mn_major = b_mn;
          CHECK(error(192, a, b, false, ++seed) < 1e-6);
        }
}

TEST_CASE("wgmma with A from registers") {
  for (const int n : {8, 64, 136, 256})
    for (const bool b_mn : {false, true}) {
      CAPTURE(n);
      CAPTURE(b_mn);
      Operand16 b;
      b.mn_major = b_mn;
      CHECK(error(n, {}, b, true, static_cast<uint64_t>(n) + 7) < 1e-6);
    }
}

}  // namespace
}  // namespace stepc::emulator
