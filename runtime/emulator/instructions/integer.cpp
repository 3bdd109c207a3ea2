// Integer arithmetic.
#include <algorithm>

#include "runtime/emulator/instructions/execute.h"
#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>>;

// Arithmetic wraps: done on unsigned numbers of at least 32 bits, since smaller ones would become int.
template <class T>
using Wrap = std::conditional_t<(sizeof(T) < 4), uint32_t, Unsigned<T>>;

template <class T>
T add(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
}
template <class T>
T sub(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b));
}
template <class T>
T mul_lo(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
}
template <class T>
T mul_hi(T a, T b) {
  return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
}
template <class T>
Wide<T> mul_wide(T a, T b) {
  return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
}
template <class T>
T mad_lo(T a, T b, T c) {
  return add(mul_lo(a, b), c);
}
template <class T>
T mad_hi(T a, T b, T c) {
  return add(mul_hi(a, b), c);
}
// Division by zero gives all ones, as the hardware does; the most negative number by -1 wraps.
template <class T>
T div(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return sub(T{0}, a);
  return static_cast<T>(a / b);
}
template <class T>
T rem(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <class T>
T min_of(T a, T b) {
  return std::min(a, b);
}
template <class T>
T max_of(T a, T b) {
  return std::max(a, b);
}
template <class T>
T neg(T a) {
  return sub(T{0}, a);
}
template <class T>
T abs_of(T a) {
  return a < 0 ? neg(a) : a;
}
template <class T>
T sad(T a, T b, T c) {
  return add(c, a < b ? sub(b, a) : sub(a, b));
}
int32_t add_saturating(int32_t a, int32_t b) {
  return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX));
}
int32_t sub_saturating(int32_t a, int32_t b) {
  return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} - b, INT32_MIN, INT32_MAX));
}

#define BINARY(function) []<class T>() -> Handler { return &binary_handler<T, T, &function<T>>; }
#define TERNARY(function) []<class T>() -> Handler { return &ternary_handler<T, T, &function<T>>; }

void mul_wide_form(Form& f, Type type) {
  const Type result = bytes_of(type) == 2 ? Type::b32 : Type::b64;
  Instruction& i = f.out();
  f.expect(3);
  i.d = f.target(0, result);
  i.a = f.source(1, type);
  i.b = f.source(2, type);
  if (bytes_of(type) == 8) return f.fail("no such form");
  if (type == Type::u32) set_handler(f, &binary_handler<uint64_t, uint32_t, &mul_wide<uint32_t>>);
  if (type == Type::s32) set_handler(f, &binary_handler<int64_t, int32_t, &mul_wide<int32_t>>);
  if (type == Type::u16) set_handler(f, &binary_handler<uint32_t, uint16_t, &mul_wide<uint16_t>>);
  if (type == Type::s16) set_handler(f, &binary_handler<int32_t, int16_t, &mul_wide<int16_t>>);
  if (!i.run) f.fail("no such form");
}

// d = a * b + c, with c and d twice as wide as a and b.
template <class T>
void mad_wide_handler(Warp& w, const Instruction& i, Mask lanes) {
  using W = Wide<T>;
  auto* d = row<W>(w, i.d);
  const auto* a = row<T>(w, i.a);
  const auto* b = row<T>(w, i.b);
  const auto* c = row<W>(w, i.c);
  each_lane(lanes, [&](int l) {
    d[l] = to_bits<W>(add(mul_wide(from_bits<T>(a[l]), from_bits<T>(b[l])), from_bits<W>(c[l])));
  });
}

void mad_wide_form(Form& f, Type type) {
  const Type result = bytes_of(type) == 2 ? Type::b32 : Type::b64;
  Instruction& i = f.out();
  f.expect(4);
  i.d = f.target(0, result);
  i.a = f.source(1, type);
  i.b = f.source(2, type);
  i.c = f.source(3, result);
  if (type == Type::u32) i.run = &mad_wide_handler<uint32_t>;
  if (type == Type::s32) i.run = &mad_wide_handler<int32_t>;
  if (type == Type::u16) i.run = &mad_wide_handler<uint16_t>;
  if (type == Type::s16) i.run = &mad_wide_handler<int16_t>;
  if (!i.run) f.fail("no such form");
}

}  // namespace

bool decode_integer(Form& f, Type type) {
  const std::string_view name = f.name();
  if (name == "mul" && f.take("wide")) return mul_wide_form(f, type), true;
  if (name == "mad" && f.take("wide")) return mad_wide_form(f, type), true;
  const bool hi = f.take("hi");
  if (!hi) f.take("lo");
  if (f.take("sat") && type == Type::s32 && (name == "add" || name == "sub")) {
    set_operands(f, type, 2);
    set_handler(f, name == "add" ? &binary_handler<int32_t, int32_t, &add_saturating>
                                 : &binary_handler<int32_t, int32_t, &sub_saturating>);
    return true;
  }
  Handler handler = nullptr;
  int sources = 2;
  if (name == "add") handler = for_integer(type, BINARY(add));
  if (name == "sub") handler = for_integer(type, BINARY(sub));
  if (name == "mul") handler = hi ? for_integer(type, BINARY(mul_hi)) : for_integer(type, BINARY(mul_lo));
  if (name == "div") handler = for_integer(type, BINARY(div));
  if (name == "rem") handler = for_integer(type, BINARY(rem));
  if (name == "min") handler = for_integer(type, BINARY(min_of));
  if (name == "max") handler = for_integer(type, BINARY(max_of));
  if (name == "mad" || name == "sad") sources = 3;
  if (name == "mad") handler = hi ? for_integer(type, TERNARY(mad_hi)) : for_integer(type, TERNARY(mad_lo));
  if (name == "sad") handler = for_integer(type, TERNARY(sad));
  if (name == "neg" || name == "abs") {
    sources = 1;
    const bool negate = name == "neg";
    handler = for_integer(type, [&]<class T>() -> Handler {
      return negate ? &unary_handler<T, T, &neg<T>> : &unary_handler<T, T, &abs_of<T>>;
    });
  }
  if (!handler) return false;
  set_operands(f, type, sources);
  set_handler(f, handler);
  return true;
}

}  // namespace stepc::emulator
