// What the instruction families share: loops over lanes, the types behind register rows, handlers made from plain
// functions. A family's file holds, for each of its instructions, what it computes and which forms exist.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/emulator/cta.h"
#include "runtime/emulator/form.h"
#include "runtime/emulator/warp.h"

namespace stepc::emulator {

template <class F>
inline void each_lane(Mask lanes, F&& f) {
  if (lanes == kAllLanes) {
    for (int l = 0; l < kLanes; ++l) f(l);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) f(std::countr_zero(lanes));
  }
}

// The value of a row's lane: 64-bit types take 8 bytes, all others 4 (16-bit and 8-bit ones zero-extended).
template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
inline T from_bits(Bits<T> bits) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<T>(bits);
  else
    return static_cast<T>(bits);
}

template <class T>
inline Bits<T> to_bits(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<Bits<T>>(value);
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

template <class T>
inline Bits<T>* row(Warp& w, Row r) {
  if constexpr (sizeof(T) == 8)
    return w.u64(r);
  else
    return w.u32(r);
}

// Floating-point results: one NaN, and zero for subnormals where the instruction says .ftz.
template <bool Ftz>
inline float flush(float x) {
  if constexpr (Ftz) return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
  return x;
}
inline float one_nan(float x) { return x != x ? std::bit_cast<float>(0x7fffffffu) : x; }
inline double one_nan(double x) { return x != x ? std::bit_cast<double>(0x7fffffffffffffffull) : x; }

// Handlers d = F(a), F(a, b), F(a, b, c) with every operand of type T and the result of type R.
template <class R, class T, auto F>
void unary_handler(Warp& w, const Instruction& i, Mask lanes) {
  auto* d = row<R>(w, i.d);
  const auto* a = row<T>(w, i.a);
  each_lane(lanes, [&](int l) { d[l] = to_bits<R>(F(from_bits<T>(a[l]))); });
}

template <class R, class T, auto F>
void binary_handler(Warp& w, const Instruction& i, Mask lanes) {
  auto* d = row<R>(w, i.d);
  const auto* a = row<T>(w, i.a);
  const auto* b = row<T>(w, i.b);
  each_lane(lanes, [&](int l) { d[l] = to_bits<R>(F(from_bits<T>(a[l]), from_bits<T>(b[l]))); });
}

template <class R, class T, auto F>
void ternary_handler(Warp& w, const Instruction& i, Mask lanes) {
  auto* d = row<R>(w, i.d);
  const auto* a = row<T>(w, i.a);
  const auto* b = row<T>(w, i.b);
  const auto* c = row<T>(w, i.c);
  each_lane(lanes, [&](int l) { d[l] = to_bits<R>(F(from_bits<T>(a[l]), from_bits<T>(b[l]), from_bits<T>(c[l]))); });
}

// Calls make.operator()<T>() with the C++ type of an integer type (b types are unsigned); nullptr: not one of them.
template <class Make>
Handler for_integer(Type type, Make&& make, bool bytes_too = false) {
  switch (type) {
    case Type::b8:
    case Type::u8: return bytes_too ? make.template operator()<uint8_t>() : nullptr;
    case Type::s8: return bytes_too ? make.template operator()<int8_t>() : nullptr;
    case Type::b16:
    case Type::u16: return make.template operator()<uint16_t>();
    case Type::s16: return make.template operator()<int16_t>();
    case Type::b32:
    case Type::u32: return make.template operator()<uint32_t>();
    case Type::s32: return make.template operator()<int32_t>();
    case Type::b64:
    case Type::u64: return make.template operator()<uint64_t>();
    case Type::s64: return make.template operator()<int64_t>();
    case Type::none:
    case Type::pred:
    case Type::b128:
    case Type::f16:
    case Type::bf16:
    case Type::bf16x2:
    case Type::tf32:
    case Type::f32:
    case Type::f64: return nullptr;
  }
  return nullptr;
}

// The common shape: `name.type d, a {, b {, c}}`, all of one type.
inline void set_operands(Form& f, Type type, int sources) {
  f.expect(static_cast<size_t>(sources) + 1);
  Instruction& i = f.out();
  i.type = type;
  i.d = f.target(0, type);
  int32_t* const slots[] = {&i.a, &i.b, &i.c, &i.e};
  for (int s = 0; s < sources; ++s) *slots[s] = f.source(static_cast<size_t>(s) + 1, type);
}

inline void set_handler(Form& f, Handler handler) {
  if (!handler) f.fail("no such form");
  f.out().run = handler;
}

}  // namespace stepc::emulator
