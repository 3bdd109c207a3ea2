// Comparisons and selections.
#include "runtime/emulator/instructions/execute.h"
#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

enum class Compare : uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
struct CompareName {
  std::string_view name;
  Compare compare;
  bool floats_only;
};
constexpr CompareName kCompares[] = {
    {"eq", Compare::eq, false},  {"ne", Compare::ne, false},  {"lt", Compare::lt, false},  {"le", Compare::le, false},
    {"gt", Compare::gt, false},  {"ge", Compare::ge, false},  {"lo", Compare::lt, false},  {"ls", Compare::le, false},
    {"hi", Compare::gt, false},  {"hs", Compare::ge, false},  {"equ", Compare::equ, true}, {"neu", Compare::neu, true},
    {"ltu", Compare::ltu, true}, {"leu", Compare::leu, true}, {"gtu", Compare::gtu, true}, {"geu", Compare::geu, true},
    {"num", Compare::num, true}, {"nan", Compare::nan, true},
};

enum Flags : uint8_t { kAnd = 1, kOr = 2, kXor = 4, kCombineNot = 8, kFloatResult = 16 };

template <Compare C, class T>
bool compare(T a, T b) {
  bool unordered = false;
  if constexpr (std::is_floating_point_v<T>) unordered = a != a || b != b;
  switch (C) {
    case Compare::eq: return a == b;
    case Compare::ne: return !unordered && a != b;
    case Compare::lt: return a < b;
    case Compare::le: return a <= b;
    case Compare::gt: return a > b;
    case Compare::ge: return a >= b;
    case Compare::equ: return unordered || a == b;
    case Compare::neu: return unordered || a != b;
    case Compare::ltu: return unordered || a < b;
    case Compare::leu: return unordered || a <= b;
    case Compare::gtu: return unordered || a > b;
    case Compare::geu: return unordered || a >= b;
    case Compare::num: return !unordered;
    case Compare::nan: return unordered;
  }
}

template <Compare C, class T, bool Ftz>
Mask compare_lanes(Warp& w, const Instruction& i, Mask lanes) {
  const auto *a = row<T>(w, i.a), *b = row<T>(w, i.b);
  Mask r = 0;
  each_lane(lanes, [&](int l) {
    T x = from_bits<T>(a[l]), y = from_bits<T>(b[l]);
    if constexpr (Ftz) x = flush<true>(x), y = flush<true>(y);
    r |= static_cast<Mask>(compare<C, T>(x, y)) << l;
  });
  return r;
}

// setp p|q, a, b {, c}: p = (a ? b) op c, q = !(a ? b) op c.
template <Compare C, class T, bool Ftz>
void setp_handler(Warp& w, const Instruction& i, Mask lanes) {
  Mask p = compare_lanes<C, T, Ftz>(w, i, lanes);
  Mask q = ~p;
  if (i.flags & (kAnd | kOr | kXor)) {
    const Mask c = i.flags & kCombineNot ? ~w.predicate(i.c) : w.predicate(i.c);
    const auto combine = [&](Mask x) { return i.flags & kAnd ? x & c : i.flags & kOr ? x | c : x ^ c; };
    p = combine(p);
    q = combine(q);
  }
  const auto put = [&](Predicate to, Mask value) {
    Mask& d = w.predicate(to);
    d = (d & ~lanes) | (value & lanes);
  };
  if (i.d != kNoPredicate) put(i.d, p);
  if (i.d2 != kNoPredicate) put(i.d2, q);
}

// set d, a, b: all ones or 1.0f where true.
template <Compare C, class T, bool Ftz>
void set_row_handler(Warp& w, const Instruction& i, Mask lanes) {
  const Mask r = compare_lanes<C, T, Ftz>(w, i, lanes);
  uint32_t* d = w.u32(i.d);
  const uint32_t yes = i.flags & kFloatResult ? std::bit_cast<uint32_t>(1.0f) : 0xffffffffu;
  each_lane(lanes, [&](int l) { d[l] = r >> l & 1 ? yes : 0; });
}

template <Compare C, bool ToRow>
Handler handler_for_type(Type type, bool ftz, bool floats_only) {
  if (type == Type::f32) {
    if (ToRow) return ftz ? &set_row_handler<C, float, true> : &set_row_handler<C, float, false>;
    return ftz ? &setp_handler<C, float, true> : &setp_handler<C, float, false>;
  }
  if (type == Type::f64) return ToRow ? &set_row_handler<C, double, false> : &setp_handler<C, double, false>;
  if (floats_only) return nullptr;
  return for_integer(
      type, []<class T>() -> Handler { return ToRow ? &set_row_handler<C, T, false> : &setp_handler<C, T, false>; });
}

template <bool ToRow>
Handler handler_for(const CompareName& c, Type type, bool ftz) {
#define CASE(name) \
  case Compare::name: return handler_for_type<Compare::name, ToRow>(type, ftz, c.floats_only)
  switch (c.compare) {
    CASE(eq);
    CASE(ne);
    CASE(lt);
    CASE(le);
    CASE(gt);
    CASE(ge);
    CASE(equ);
    CASE(neu);
    CASE(ltu);
    CASE(leu);
    CASE(gtu);
    CASE(geu);
    CASE(num);
    CASE(nan);
  }
#undef CASE
  return nullptr;
}

const CompareName* take_compare(Form& f) {
  for (const CompareName& c : kCompares)
    if (f.take(c.name)) return &c;
  f.fail("no comparison");
  return nullptr;
}

void take_combination(Form& f, size_t operand) {
  Instruction& i = f.out();
  if (f.take("and")) i.flags |= kAnd;
  if (f.take("or")) i.flags |= kOr;
  if (f.take("xor")) i.flags |= kXor;
  const bool combines = i.flags & (kAnd | kOr | kXor);
  f.expect(combines ? operand + 1 : operand);
  if (!combines) return;
  const Operand& c = f.operand(operand);
  if (c.kind != OperandKind::predicate) return f.fail(fmt::format("operand {} is not a predicate", c.text));
  i.c = c.predicate;
  if (c.negated) i.flags |= kCombineNot;
}

void decode_setp(Form& f) {
  const CompareName* c = take_compare(f);
  const bool ftz = f.take("ftz");
  const Type type = f.take_type();
  if (!c) return;
  // p|q are two operands; whether the second is q shows in its kind.
  f.expect(3, 5);
  const bool two = f.operand(1).kind == OperandKind::predicate || f.operand(1).kind == OperandKind::sink;
  const size_t first = two ? 2 : 1;
  take_combination(f, first + 2);
  Instruction& i = f.out();
  i.d = f.predicate_target(0);
  if (two) i.d2 = f.predicate_target(1);
  i.a = f.source(first, type);
  i.b = f.source(first + 1, type);
  set_handler(f, handler_for<false>(*c, type, ftz));
}

void decode_set(Form& f) {
  const CompareName* c = take_compare(f);
  const bool ftz = f.take("ftz");
  const Type result = f.take_type();
  const Type type = f.take_type();
  f.expect(3);
  if (!c) return;
  if (bytes_of(result) != 4) return f.fail("no such form");
  Instruction& i = f.out();
  if (result == Type::f32) i.flags = kFloatResult;
  i.d = f.target(0, result);
  i.a = f.source(1, type);
  i.b = f.source(2, type);
  set_handler(f, handler_for<true>(*c, type, ftz));
}

template <class T>
void select_handler(Warp& w, const Instruction& i, Mask lanes) {
  auto* d = row<T>(w, i.d);
  const auto *a = row<T>(w, i.a), *b = row<T>(w, i.b);
  const Mask p = w.predicate(i.c);
  each_lane(lanes, [&](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}

void decode_selp(Form& f) {
  const Type type = f.take_type();
  f.expect(4);
  if (bytes_of(type) < 2 || bytes_of(type) > 8) return f.fail("no such form");
  Instruction& i = f.out();
  i.d = f.target(0, type);
  i.a = f.source(1, type);
  i.b = f.source(2, type);
  i.c = f.predicate_source(3);
  i.run = bytes_of(type) == 8 ? &select_handler<uint64_t> : &select_handler<uint32_t>;
}

// slct d, a, b, c: a where c >= 0.
template <class T, bool Float>
void slct_handler(Warp& w, const Instruction& i, Mask lanes) {
  auto* d = row<T>(w, i.d);
  const auto *a = row<T>(w, i.a), *b = row<T>(w, i.b);
  const uint32_t* c = w.u32(i.c);
  each_lane(lanes, [&](int l) {
    const bool first = Float ? std::bit_cast<float>(c[l]) >= 0 : static_cast<int32_t>(c[l]) >= 0;
    d[l] = first ? a[l] : b[l];
  });
}

void decode_slct(Form& f) {
  f.take("ftz");
  const Type type = f.take_type();
  const Type by = f.take_type();
  f.expect(4);
  if (bytes_of(type) < 2 || (by != Type::s32 && by != Type::f32)) return f.fail("no such form");
  Instruction& i = f.out();
  i.d = f.target(0, type);
  i.a = f.source(1, type);
  i.b = f.source(2, type);
  i.c = f.source(3, by);
  if (bytes_of(type) == 8)
    i.run = by == Type::f32 ? &slct_handler<uint64_t, true> : &slct_handler<uint64_t, false>;
  else
    i.run = by == Type::f32 ? &slct_handler<uint32_t, true> : &slct_handler<uint32_t, false>;
}

enum class Class : uint8_t { finite, infinite, number, notanumber, normal, subnormal };

template <class T, Class C>
void testp_handler(Warp& w, const Instruction& i, Mask lanes) {
  const auto* a = row<T>(w, i.a);
  Mask r = 0;
  each_lane(lanes, [&](int l) {
    const T x = from_bits<T>(a[l]);
    const bool yes = C == Class::finite       ? std::isfinite(x)
                     : C == Class::infinite   ? std::isinf(x)
                     : C == Class::number     ? !std::isnan(x)
                     : C == Class::notanumber ? std::isnan(x)
                     : C == Class::normal     ? std::isnormal(x)
                                              : std::fpclassify(x) == FP_SUBNORMAL;
    r |= static_cast<Mask>(yes) << l;
  });
  Mask& d = w.predicate(i.d);
  d = (d & ~lanes) | r;
}

template <Class C>
Handler testp_for(Type type) {
  return type == Type::f32 ? &testp_handler<float, C> : type == Type::f64 ? &testp_handler<double, C> : nullptr;
}

void decode_testp(Form& f) {
  const Type type = f.take_type();
  f.expect(2);
  Instruction& i = f.out();
  i.d = f.predicate_target(0);
  i.a = f.source(1, type);
  Handler handler = nullptr;
  if (f.take("finite")) handler = testp_for<Class::finite>(type);
  if (f.take("infinite")) handler = testp_for<Class::infinite>(type);
  if (f.take("number")) handler = testp_for<Class::number>(type);
  if (f.take("notanumber")) handler = testp_for<Class::notanumber>(type);
  if (f.take("normal")) handler = testp_for<Class::normal>(type);
  if (f.take("subnormal")) handler = testp_for<Class::subnormal>(type);
  set_handler(f, handler);
}

constexpr InstructionEntry kEntries[] = {
    {"setp", &decode_setp}, {"set", &decode_set},     {"selp", &decode_selp},
    {"slct", &decode_slct}, {"testp", &decode_testp},
};

}  // namespace

std::span<const InstructionEntry> compare_family() { return kEntries; }

}  // namespace stepc::emulator
