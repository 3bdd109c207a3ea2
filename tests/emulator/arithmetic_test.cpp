// Every arithmetic, logic, comparison and conversion family against C++ on awkward values.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/emulator/machine.h"

using namespace stepc::emulator;

namespace {

using U32s = std::vector<uint32_t>;
using U64s = std::vector<uint64_t>;

const U32s kInts = {0,          1,          2,          3,          7,          31,         32,         33,
                    100,        255,        256,        65535,      65536,      0x7ffffffe, 0x7fffffff, 0x80000000,
                    0x80000001, 0xfffffffe, 0xffffffff, 0xdeadbeef, 0x12345678, 0x0f0f0f0f, 0xaaaaaaaa, 17,
                    19,         1000003,    0xffff0000, 0x8000,     0x7fff,     5,          6,          9};
U32s rotated(size_t by) {
  U32s v;
  for (size_t k = 0; k < 32; ++k) v.push_back(kInts[(k * 7 + by) % 32]);
  return v;
}
U64s wide(const U32s& high, const U32s& low) {
  U64s v;
  for (size_t k = 0; k < 32; ++k) v.push_back(uint64_t{high[k]} << 32 | low[k]);
  return v;
}
const U32s kA = kInts, kB = rotated(3), kC = rotated(11);

template <class T, class F>
void check32(const std::string& instruction, F&& expected) {
  CAPTURE(instruction);
  const U32s d = lanes_of<uint32_t, uint32_t>(instruction, kA, kB, kC);
  for (size_t k = 0; k < 32; ++k) {
    CAPTURE(k);
    CHECK(d[k] == static_cast<uint32_t>(expected(static_cast<T>(kA[k]), static_cast<T>(kB[k]), static_cast<T>(kC[k]))));
  }
}
template <class T, class F>
void check64(const std::string& instruction, F&& expected) {
  CAPTURE(instruction);
  const U64s a = wide(kA, kC), b = wide(kB, kA), c = wide(kC, kB);
  const U64s d = lanes_of<uint64_t, uint64_t>(instruction, a, b, c);
  for (size_t k = 0; k < 32; ++k) {
    CAPTURE(k);
    CHECK(d[k] == static_cast<uint64_t>(expected(static_cast<T>(a[k]), static_cast<T>(b[k]), static_cast<T>(c[k]))));
  }
}

const float kNaN = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();
const std::vector<float> kFloats = {0.0f,
                                    -0.0f,
                                    1.0f,
                                    -1.0f,
                                    0.5f,
                                    2.5f,
                                    3.5f,
                                    -2.5f,
                                    1e-40f,
                                    -1e-40f,
                                    1e38f,
                                    -1e38f,
                                    kInf,
                                    -kInf,
                                    kNaN,
                                    1.17549435e-38f,
                                    255.5f,
                                    256.5f,
                                    65535.9f,
                                    3e9f,
                                    -3e9f,
                                    1e20f,
                                    -1e20f,
                                    0.1f,
                                    1.0f + 0x1p-12f,
                                    16777217.0f,
                                    1.5e-39f,
                                    7.0f,
                                    100.25f,
                                    -0.75f,
                                    0.999999f,
                                    42.0f};
std::vector<uint32_t> bits_of(const std::vector<float>& v) {
  std::vector<uint32_t> r;
  for (const float x : v) r.push_back(std::bit_cast<uint32_t>(x));
  return r;
}
std::vector<float> shuffled(size_t by) {
  std::vector<float> v;
  for (size_t k = 0; k < 32; ++k) v.push_back(kFloats[(k * 5 + by) % 32]);
  return v;
}
uint32_t float_bits(float x) { return x != x ? 0x7fffffffu : std::bit_cast<uint32_t>(x); }
float flushed(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }

template <class F>
void check_float(const std::string& instruction, F&& expected) {
  CAPTURE(instruction);
  const std::vector<float> a = kFloats, b = shuffled(1), c = shuffled(9);
  const U32s d = lanes_of<uint32_t, uint32_t>(instruction, bits_of(a), bits_of(b), bits_of(c));
  for (size_t k = 0; k < 32; ++k) {
    CAPTURE(a[k]);
    CAPTURE(b[k]);
    CHECK(d[k] == float_bits(expected(a[k], b[k], c[k])));
  }
}

}  // namespace

TEST_CASE("integer arithmetic") {
  using U = uint32_t;
  using I = int32_t;
  check32<U>("add.s32 %d, %a, %b;", [](U a, U b, U) { return a + b; });
  check32<U>("sub.u32 %d, %a, %b;", [](U a, U b, U) { return a - b; });
  check32<U>("mul.lo.s32 %d, %a, %b;", [](U a, U b, U) { return a * b; });
  check32<U>("mul.hi.u32 %d, %a, %b;", [](U a, U b, U) { return uint64_t{a} * b >> 32; });
  check32<I>("mul.hi.s32 %d, %a, %b;", [](I a, I b, I) { return int64_t{a} * b >> 32; });
  check32<U>("mad.lo.u32 %d, %a, %b, %c;", [](U a, U b, U c) { return a * b + c; });
  check32<U>("add.u32 %d, %a, -5;", [](U a, U, U) { return a - 5; });
  check32<U>("div.u32 %d, %a, %b;", [](U a, U b, U) { return b ? a / b : ~0u; });
  check32<U>("rem.u32 %d, %a, %b;", [](U a, U b, U) { return b ? a % b : a; });
  check32<I>("div.s32 %d, %a, %b;", [](I a, I b, I) { return b == 0 ? -1 : static_cast<I>(int64_t{a} / b); });
  check32<I>("rem.s32 %d, %a, 7;", [](I a, I, I) { return a % 7; });
  check32<I>("min.s32 %d, %a, %b;", [](I a, I b, I) { return std::min(a, b); });
  check32<U>("max.u32 %d, %a, %b;", [](U a, U b, U) { return std::max(a, b); });
  check32<U>("neg.s32 %d, %a;", [](U a, U, U) { return 0 - a; });
  check32<I>("abs.s32 %d, %a;", [](I a, I, I) { return a < 0 ? 0u - static_cast<U>(a) : static_cast<U>(a); });
  check32<I>("add.sat.s32 %d, %a, %b;",
             [](I a, I b, I) { return std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX); });
  check64<uint64_t>("add.s64 %d, %a, %b;", [](uint64_t a, uint64_t b, uint64_t) { return a + b; });
  check64<uint64_t>("mul.lo.u64 %d, %a, %b;", [](uint64_t a, uint64_t b, uint64_t) { return a * b; });
  check64<uint64_t>("mul.hi.u64 %d, %a, %b;", [](uint64_t a, uint64_t b, uint64_t) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
  });
  check64<int64_t>("max.s64 %d, %a, %b;", [](int64_t a, int64_t b, int64_t) { return std::max(a, b); });
  check64<uint64_t>("rem.u64 %d, %a, %b;", [](uint64_t a, uint64_t b, uint64_t) { return b ? a % b : a; });
}

TEST_CASE("products twice as wide as their factors") {
  const auto d = lanes_of<uint64_t, uint32_t>("mul.wide.s32 %d, %a, %b;", kA, kB);
  const auto e = lanes_of<uint64_t, uint32_t>("cvt.u64.u32 %d, %c; mad.wide.u32 %d, %a, %b, %d;", kA, kB, kC);
  for (size_t k = 0; k < 32; ++k) {
    CHECK(d[k] == static_cast<uint64_t>(int64_t{static_cast<int32_t>(kA[k])} * static_cast<int32_t>(kB[k])));
    CHECK(e[k] == uint64_t{kA[k]} * kB[k] + kC[k]);
  }
}

TEST_CASE("16-bit registers") {
  check32<uint32_t>("cvt.u16.u32 %rs1, %a; cvt.u16.u32 %rs2, %b; mul.wide.u16 %d, %rs1, %rs2;",
                    [](uint32_t a, uint32_t b, uint32_t) { return (a & 0xffff) * (b & 0xffff); });
  check32<uint32_t>("cvt.u16.u32 %rs1, %a; add.s16 %rs2, %rs1, %rs1; cvt.s32.s16 %d, %rs2;",
                    [](uint32_t a, uint32_t, uint32_t) { return static_cast<int16_t>(2 * a); });
  check32<uint32_t>("mov.b32 {%rs1, %rs2}, %a; mov.b32 %d, {%rs2, %rs1};",
                    [](uint32_t a, uint32_t, uint32_t) { return a >> 16 | a << 16; });
  check32<uint32_t>("mov.b32 {_, %rs2}, %a; cvt.u32.u16 %d, %rs2;",
                    [](uint32_t a, uint32_t, uint32_t) { return a >> 16; });
  check32<uint32_t>("cvt.u16.u32 %rs1, %a; not.b16 %rs1, %rs1; shr.u16 %rs1, %rs1, 3; cvt.u32.u16 %d, %rs1;",
                    [](uint32_t a, uint32_t, uint32_t) { return static_cast<uint16_t>(~a) >> 3; });
}

TEST_CASE("logic and bit fields") {
  using U = uint32_t;
  check32<U>("and.b32 %d, %a, %b;", [](U a, U b, U) { return a & b; });
  check32<U>("or.b32 %d, %a, %b;", [](U a, U b, U) { return a | b; });
  check32<U>("xor.b32 %d, %a, 0xff;", [](U a, U, U) { return a ^ 0xff; });
  check32<U>("not.b32 %d, %a;", [](U a, U, U) { return ~a; });
  check32<U>("cnot.b32 %d, %a;", [](U a, U, U) { return a == 0; });
  check32<U>("shl.b32 %d, %a, %b;", [](U a, U b, U) { return b > 31 ? 0 : a << b; });
  check32<U>("shr.u32 %d, %a, %b;", [](U a, U b, U) { return b > 31 ? 0 : a >> b; });
  check32<int32_t>("shr.s32 %d, %a, %b;",
                   [](int32_t a, int32_t b, int32_t) { return static_cast<U>(b) > 31 ? (a < 0 ? -1 : 0) : a >> b; });
  check32<U>("lop3.b32 %d, %a, %b, %c, 0xca;", [](U a, U b, U c) { return (a & b) | (~a & c); });
  check32<U>("lop3.b32 %d, %a, %b, %c, 0x96;", [](U a, U b, U c) { return a ^ b ^ c; });
  check32<U>("shf.l.wrap.b32 %d, %a, %b, 5;", [](U a, U b, U) { return b << 5 | a >> 27; });
  check32<U>("shf.r.wrap.b32 %d, %a, %b, 40;", [](U a, U b, U) { return b << 24 | a >> 8; });
  check32<U>("shf.l.clamp.b32 %d, %a, %b, 40;", [](U a, U, U) { return a; });
  check32<U>("prmt.b32 %d, %a, %b, 0x5410;", [](U a, U b, U) { return (a & 0xffff) | b << 16; });
  check32<U>("prmt.b32 %d, %a, %b, 0x7632;", [](U a, U b, U) { return a >> 16 | (b & 0xffff0000); });
  check32<U>("prmt.b32 %d, %a, 0, 0x8880;", [](U a, U, U) { return a & 0x80 ? 0xffffff00 | (a & 0xff) : a & 0xff; });
  check32<U>("bfe.u32 %d, %a, 8, 12;", [](U a, U, U) { return a >> 8 & 0xfff; });
  check32<int32_t>("bfe.s32 %d, %a, 8, 8;", [](int32_t a, int32_t, int32_t) { return static_cast<int8_t>(a >> 8); });
  check32<int32_t>("bfe.s32 %d, %a, 28, 8;", [](int32_t a, int32_t, int32_t) { return a >> 28; });
  check32<U>("bfi.b32 %d, %a, %b, 4, 8;", [](U a, U b, U) { return (b & ~0xff0u) | (a << 4 & 0xff0); });
  check32<U>("popc.b32 %d, %a;", [](U a, U, U) { return std::popcount(a); });
  check32<U>("clz.b32 %d, %a;", [](U a, U, U) { return std::countl_zero(a); });
  check32<U>("bfind.u32 %d, %a;", [](U a, U, U) { return a ? 31 - std::countl_zero(a) : -1; });
  check32<U>("brev.b32 %d, %a; brev.b32 %d, %d;", [](U a, U, U) { return a; });
  check64<uint64_t>("shl.b64 %d, %a, 33;", [](uint64_t a, uint64_t, uint64_t) { return a << 33; });
  check64<uint64_t>("bfe.u64 %d, %a, 30, 20;", [](uint64_t a, uint64_t, uint64_t) { return a >> 30 & 0xfffff; });
  check64<uint64_t>("mov.b64 {%r10, %r11}, %a; mov.b64 %d, {%r11, %r10};",
                    [](uint64_t a, uint64_t, uint64_t) { return a >> 32 | a << 32; });
}

TEST_CASE("comparisons, predicates and selections") {
  using U = uint32_t;
  using I = int32_t;
  const std::string take = " selp.b32 %d, 1, 0, %p1;";
  check32<I>("setp.lt.s32 %p1, %a, %b;" + take, [](I a, I b, I) { return a < b; });
  check32<U>("setp.hs.u32 %p1, %a, %b;" + take, [](U a, U b, U) { return a >= b; });
  check32<U>("setp.ne.b32 %p1, %a, 0;" + take, [](U a, U, U) { return a != 0; });
  check32<U>("setp.gt.u32 %p2, %a, %c; setp.gt.and.u32 %p1, %a, %b, %p2;" + take,
             [](U a, U b, U c) { return a > b && a > c; });
  check32<U>("setp.gt.u32 %p2, %a, %c; setp.gt.or.u32 %p1|%p3, %a, %b, !%p2; selp.b32 %d, 1, 0, %p3;",
             [](U a, U b, U c) { return !(a > b) || !(a > c); });
  check32<U>("setp.gt.u32 %p2, %a, %c; setp.lt.u32 %p3, %a, %b; xor.pred %p1, %p2, %p3; not.pred %p1, %p1;" + take,
             [](U a, U b, U c) { return (a > c) == (a < b); });
  check32<U>("setp.eq.u32 %p2, %a, 7; xor.pred %p1, %p2, -1;" + take, [](U a, U, U) { return a != 7; });
  check32<U>("setp.eq.u32 %p2, %a, 7; or.pred %p1, %p2, 0;" + take, [](U a, U, U) { return a == 7; });
  check32<U>("mov.pred %p1, -1; setp.eq.u32 %p2, %a, 7; and.pred %p1, %p1, %p2;" + take,
             [](U a, U, U) { return a == 7; });
  check32<U>("setp.lt.u32 %p1, %a, 100; @%p1 add.u32 %d, %a, 1; @!%p1 mov.u32 %d, 5;",
             [](U a, U, U) { return a < 100 ? a + 1 : 5; });
  check32<I>("set.le.u32.s32 %d, %a, %b;", [](I a, I b, I) { return a <= b ? -1 : 0; });
  check32<I>("slct.b32.s32 %d, %a, %b, %c;", [](I a, I b, I c) { return c >= 0 ? a : b; });

  const auto float_compare = [&](const std::string& op, auto&& expected) {
    const std::vector<float> a = kFloats, b = shuffled(1);
    const U32s d = lanes_of<uint32_t, uint32_t>("setp." + op + ".f32 %p1, %a, %b;" + take, bits_of(a), bits_of(b));
    for (size_t k = 0; k < 32; ++k) CHECK(d[k] == static_cast<uint32_t>(expected(a[k], b[k])));
  };
  float_compare("lt", [](float a, float b) { return a < b; });
  float_compare("ne", [](float a, float b) { return a < b || a > b; });
  float_compare("neu", [](float a, float b) { return a != b; });
  float_compare("geu", [](float a, float b) { return !(a < b); });
  float_compare("nan", [](float a, float b) { return a != a || b != b; });
  float_compare("num", [](float a, float b) { return a == a && b == b; });
  const U32s finite = lanes_of<uint32_t, uint32_t>("testp.finite.f32 %p1, %a;" + take, bits_of(kFloats));
  for (size_t k = 0; k < 32; ++k) CHECK(finite[k] == static_cast<uint32_t>(std::isfinite(kFloats[k])));
}

TEST_CASE("f32 arithmetic: one rounding, one NaN, subnormals flushed where .ftz says so") {
  check_float("add.rn.f32 %d, %a, %b;", [](float a, float b, float) { return a + b; });
  check_float("sub.f32 %d, %a, %b;", [](float a, float b, float) { return a - b; });
  check_float("mul.rn.ftz.f32 %d, %a, %b;", [](float a, float b, float) { return flushed(flushed(a) * flushed(b)); });
  check_float("fma.rn.f32 %d, %a, %b, %c;", [](float a, float b, float c) { return std::fma(a, b, c); });
  check_float("div.rn.f32 %d, %a, %b;", [](float a, float b, float) { return a / b; });
  check_float("neg.f32 %d, %a;", [](float a, float, float) { return -a; });
  check_float("abs.ftz.f32 %d, %a;", [](float a, float, float) { return std::fabs(flushed(a)); });
  check_float("sqrt.rn.f32 %d, %a;", [](float a, float, float) { return std::sqrt(a); });
  check_float("rcp.rn.f32 %d, %a;", [](float a, float, float) { return 1 / a; });
  check_float("add.sat.f32 %d, %a, %b;",
              [](float a, float b, float) { return a + b != a + b ? 0 : std::clamp(a + b, 0.0f, 1.0f); });
  check_float("max.f32 %d, %a, %b;", [](float a, float b, float) {
    return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
  });
  check_float("min.NaN.f32 %d, %a, %b;", [](float a, float b, float) {
    return a != a || b != b ? kNaN : a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
  });
  check32<uint32_t>("copysign.f32 %d, %a, %b;",
                    [](uint32_t a, uint32_t b, uint32_t) { return (a & 0x80000000) | (b & 0x7fffffff); });
  check_float("ex2.approx.ftz.f32 %d, %a;", [](float a, float, float) { return flushed(std::exp2(flushed(a))); });
  check_float("lg2.approx.f32 %d, %a;", [](float a, float, float) { return std::log2(a); });
  check_float("tanh.approx.f32 %d, %a;", [](float a, float, float) { return std::tanh(a); });
  check_float("rsqrt.approx.ftz.f32 %d, %a;",
              [](float a, float, float) { return static_cast<float>(1 / std::sqrt(double{flushed(a)})); });
  check_float("add.f32 %d, %a, 0f3F800000;", [](float a, float, float) { return a + 1; });
}

TEST_CASE("f64 arithmetic") {
  const auto result = [](const std::string& op, double a, double b) {
    const U64s d = lanes_of<uint64_t, uint64_t>(op, {std::bit_cast<uint64_t>(a)}, {std::bit_cast<uint64_t>(b)});
    return std::bit_cast<double>(d[0]);
  };
  CHECK(result("add.rn.f64 %d, %a, %b;", 0.1, 0.2) == 0.1 + 0.2);
  CHECK(result("mul.rn.f64 %d, %a, 0d4008000000000000;", 0.1, 0) == 0.1 * 3);
  CHECK(result("fma.rn.f64 %d, %a, %b, %a;", 0.1, 3) == std::fma(0.1, 3.0, 0.1));
  CHECK(result("div.rn.f64 %d, %a, %b;", 1, 3) == 1.0 / 3);
  CHECK(result("sqrt.rn.f64 %d, %a;", 2, 0) == std::sqrt(2.0));
}

TEST_CASE("conversions") {
  using U = uint32_t;
  using I = int32_t;
  check_float("cvt.rn.f32.s32 %d, %a;",
              [](float a, float, float) { return static_cast<float>(std::bit_cast<int32_t>(a)); });
  check_float("cvt.rn.f32.u32 %d, %a;",
              [](float a, float, float) { return static_cast<float>(std::bit_cast<uint32_t>(a)); });
  check_float("cvt.rni.f32.f32 %d, %a;", [](float a, float, float) { return std::nearbyint(a); });
  check_float("cvt.rmi.f32.f32 %d, %a;", [](float a, float, float) { return std::floor(a); });
  check32<U>("cvt.u64.u32 %rd20, %a; shl.b64 %rd20, %rd20, 4; cvt.u32.u64 %d, %rd20;",
             [](U a, U, U) { return a << 4; });
  check32<I>("cvt.s64.s32 %rd20, %a; shr.s64 %rd20, %rd20, 33; cvt.u32.u64 %d, %rd20;",
             [](I a, I, I) { return int64_t{a} >> 33; });
  check32<I>("cvt.s32.s8 %d, %a;", [](I a, I, I) { return static_cast<int8_t>(a); });
  check32<U>("cvt.u32.u8 %d, %a;", [](U a, U, U) { return a & 0xff; });

  const U32s trunc = lanes_of<uint32_t, uint32_t>("cvt.rzi.s32.f32 %d, %a;", bits_of(kFloats));
  const U32s near = lanes_of<uint32_t, uint32_t>("cvt.rni.u32.f32 %d, %a;", bits_of(kFloats));
  const auto clamped = [](double x, double low, double high) { return x != x ? 0 : std::clamp(x, low, high); };
  for (size_t k = 0; k < 32; ++k) {
    CAPTURE(kFloats[k]);
    CHECK(static_cast<I>(trunc[k]) == static_cast<I>(clamped(std::trunc(double{kFloats[k]}), INT32_MIN, INT32_MAX)));
    CHECK(near[k] == static_cast<U>(clamped(std::nearbyint(double{kFloats[k]}), 0, UINT32_MAX)));
  }
}

TEST_CASE("bf16: rounds to nearest even, packs with the first operand on top") {
  const auto rounded = [](float x) -> uint32_t {
    if (x != x) return 0x7fff;
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t low = bits & 0xffff, high = bits >> 16;
    return low > 0x8000 || (low == 0x8000 && (high & 1)) ? high + 1 : high;
  };
  std::vector<float> a = kFloats, b = shuffled(1);
  a[2] = std::bit_cast<float>(0x3f808000u);  // ties
  a[3] = std::bit_cast<float>(0x3f818000u);
  const U32s packed = lanes_of<uint32_t, uint32_t>("cvt.rn.bf16x2.f32 %d, %a, %b;", bits_of(a), bits_of(b));
  const U32s single =
      lanes_of<uint32_t, uint32_t>("cvt.rn.bf16.f32 %rs1, %a; cvt.u32.u16 %d, %rs1;", bits_of(a), bits_of(b));
  const U32s back = lanes_of<uint32_t, uint32_t>("cvt.rn.bf16.f32 %rs1, %a; cvt.f32.bf16 %d, %rs1;", bits_of(a));
  for (size_t k = 0; k < 32; ++k) {
    CAPTURE(a[k]);
    CHECK(packed[k] == (rounded(a[k]) << 16 | rounded(b[k])));
    CHECK(single[k] == rounded(a[k]));
    CHECK(back[k] == rounded(a[k]) << 16);
  }
}
