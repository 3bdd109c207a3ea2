// bf16 rounding, exhaustively over all bf16 values.
#include "ir/dtype.h"

#include <doctest/doctest.h>

#include <limits>

#include "ir/shape.h"

namespace stepc {
namespace {

double next_up(double x) { return std::nextafter(x, std::numeric_limits<double>::infinity()); }
double next_down(double x) { return std::nextafter(x, -std::numeric_limits<double>::infinity()); }

TEST_CASE("every bf16 value survives the way through f32 and double") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f32_from_bf16(static_cast<uint16_t>(bits));
    const uint32_t expected = std::isnan(value) ? bits | 0x40 : bits;  // NaNs become quiet
    wrong += bf16_from_f32(value) != expected;
    const float rounded = round_to_bf16(static_cast<double>(value));
    wrong += std::isnan(value) ? !std::isnan(rounded) : std::bit_cast<uint32_t>(rounded) != bits << 16;
  }
  CHECK(wrong == 0);
}

TEST_CASE("between neighbours the nearer is taken, half way the even one, from f32 and from double") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);  // infinity after the last
    const uint16_t even = bits % 2 == 0 ? low : high;
    const uint32_t middle = bits << 16 | 0x8000;
    wrong += bf16_from_f32(std::bit_cast<float>(middle)) != even;
    wrong += bf16_from_f32(std::bit_cast<float>(middle - 1)) != low;
    wrong += bf16_from_f32(std::bit_cast<float>(middle + 1)) != high;
    wrong += bf16_from_f32(-std::bit_cast<float>(middle)) != (even | 0x8000);
    // Closer to the middle than f32 can tell: rounding through f32 first would take the even one.
    const auto exact_middle = static_cast<double>(std::bit_cast<float>(middle));
    wrong += round_to_bf16(exact_middle) != f32_from_bf16(even);
    wrong += round_to_bf16(next_down(exact_middle)) != f32_from_bf16(low);
    wrong += round_to_bf16(next_up(exact_middle)) != f32_from_bf16(high);
    wrong += round_to_bf16(-next_up(exact_middle)) != -f32_from_bf16(high);
  }
  CHECK(wrong == 0);
}

TEST_CASE("beyond bf16's range lie infinity and zero") {
  CHECK(round_to_bf16(1e300) == std::numeric_limits<float>::infinity());
  CHECK(round_to_bf16(-3.4e38) == -std::numeric_limits<float>::infinity());
  CHECK(round_to_bf16(3.39e38) == f32_from_bf16(0x7f7f));
  CHECK(round_to_bf16(1e-300) == 0);
  CHECK(std::signbit(round_to_bf16(-1e-300)));
}

TEST_CASE("dtypes have names and sizes") {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32, Dtype::pred})
    CHECK(dtype_from_name(dtype_name(dtype)) == dtype);
  CHECK_FALSE(dtype_from_name("f16").has_value());
  CHECK_FALSE(dtype_from_name("").has_value());
  CHECK(dtype_bytes(Dtype::bf16) == 2);
  CHECK(dtype_bytes(Dtype::pred) == 1);
}

TEST_CASE("shapes: element counts, strides, text") {
  CHECK(checked_numel({}) == 1);
  CHECK(checked_numel({7, 0, 3}) == 0);
  CHECK(checked_numel({int64_t{1} << 62, 0, int64_t{1} << 62, 4}) == std::nullopt);
  CHECK(checked_numel({int64_t{1} << 32, int64_t{1} << 31}) == std::nullopt);
  CHECK(checked_numel({3, -1}) == std::nullopt);
  CHECK(row_major_strides({2, 3, 5}) == std::vector<int64_t>{15, 5, 1});
  CHECK(row_major_strides({}).empty());
  CHECK(shape_text({8, 256}) == "[8, 256]");
  CHECK(shape_text({}) == "[]");
}

}  // namespace
}  // namespace stepc
