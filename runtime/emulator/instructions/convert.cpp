// Moves and conversions. A source register may be wider than the type that an instruction reads from it, and a
// result wider than the type it makes (then extended): cvt and mov of PTX allow both.
#include "runtime/emulator/instructions/execute.h"
#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

enum class Round : uint8_t { none, nearest, zero, down, up };
// Instruction::flags of a conversion.
enum Flags : uint8_t { kWideSource = 1, kWideResult = 2, kFtz = 4, kSat = 8, kRelu = 16 };

uint64_t raw(Warp& w, Row r, bool wide, int lane) { return wide ? w.u64(r)[lane] : w.u32(r)[lane]; }

template <class T>
T read_as(Warp& w, const Instruction& i, int lane) {
  return from_bits<T>(static_cast<Bits<T>>(raw(w, i.a, i.flags & kWideSource, lane)));
}

// Extends to the result's register: signed types by their sign.
template <class T>
void write_as(Warp& w, const Instruction& i, int lane, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    row<T>(w, i.d)[lane] = to_bits(value);
  } else if (i.flags & kWideResult) {
    w.u64(i.d)[lane] = static_cast<uint64_t>(static_cast<int64_t>(value));
    if constexpr (!std::is_signed_v<T>) w.u64(i.d)[lane] = value;
  } else if constexpr (sizeof(T) < 4 && std::is_signed_v<T>) {
    // A 16-bit register holds 16 bits; a 32-bit one the sign extension. The type of `i` says which it is.
    w.u32(i.d)[lane] = i.type == Type::b16 ? static_cast<uint16_t>(value) : static_cast<uint32_t>(int32_t{value});
  } else {
    w.u32(i.d)[lane] = static_cast<uint32_t>(value);
  }
}

template <class D, class S>
D clamp_integer(S v) {
  using L = std::numeric_limits<D>;
  if (std::cmp_less(v, L::min())) return L::min();
  if (std::cmp_greater(v, L::max())) return L::max();
  return static_cast<D>(v);
}

template <class D, class S>
void integer_to_integer(Warp& w, const Instruction& i, Mask lanes) {
  const bool sat = i.flags & kSat;
  each_lane(lanes, [&](int l) {
    const S v = read_as<S>(w, i, l);
    write_as<D>(w, i, l, sat ? clamp_integer<D>(v) : static_cast<D>(v));
  });
}

template <class D, class S>
void integer_to_float(Warp& w, const Instruction& i, Mask lanes) {
  each_lane(lanes, [&](int l) { write_as<D>(w, i, l, static_cast<D>(read_as<S>(w, i, l))); });
}

template <class T, Round R>
T round_integral(T x) {
  if constexpr (R == Round::nearest) return std::nearbyint(x);  // the host's mode: nearest even
  if constexpr (R == Round::zero) return std::trunc(x);
  if constexpr (R == Round::down) return std::floor(x);
  if constexpr (R == Round::up) return std::ceil(x);
  return x;
}

// Out of range gives the nearest integer; NaN gives 0.
template <class D, class S, Round R>
void float_to_integer(Warp& w, const Instruction& i, Mask lanes) {
  each_lane(lanes, [&](int l) {
    S x = read_as<S>(w, i, l);
    if constexpr (sizeof(S) == 4)
      if (i.flags & kFtz) x = flush<true>(x);
    x = round_integral<S, R>(x);
    using L = std::numeric_limits<D>;
    D r = 0;
    if (x != x)
      r = 0;
    else if (x <= static_cast<S>(L::min()))
      r = L::min();
    else if (x >= std::ldexp(S{1}, L::digits))
      r = L::max();
    else
      r = static_cast<D>(x);
    write_as<D>(w, i, l, r);
  });
}

template <class D, class S, Round R>
void float_to_float(Warp& w, const Instruction& i, Mask lanes) {
  each_lane(lanes, [&](int l) {
    S x = read_as<S>(w, i, l);
    if constexpr (sizeof(S) == 4)
      if (i.flags & kFtz) x = flush<true>(x);
    D r = static_cast<D>(round_integral<S, R>(x));
    if constexpr (sizeof(D) == 4)
      if (i.flags & kFtz) r = flush<true>(r);
    if (i.flags & kSat) r = r != r ? D{0} : r < 0 ? D{0} : r > 1 ? D{1} : r;
    write_as<D>(w, i, l, one_nan(r));
  });
}

// ---- bf16 and tf32: bits of an f32
uint32_t round_bits(float x, uint32_t dropped, Round round, bool relu) {
  if (x != x) return 0x7fffffffu >> dropped;
  if (relu && x < 0) return 0;
  uint32_t bits = std::bit_cast<uint32_t>(x);
  if (round == Round::nearest) bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
  if (round == Round::up) bits += 1u << (dropped - 1);  // .rna: ties away from zero
  return bits >> dropped;
}

template <Round R>
void float_to_bf16(Warp& w, const Instruction& i, Mask lanes) {
  each_lane(lanes, [&](int l) { w.u32(i.d)[l] = round_bits(w.f32(i.a, l), 16, R, i.flags & kRelu); });
}
// d = {a, b}: a in the upper half.
template <Round R>
void floats_to_bf16x2(Warp& w, const Instruction& i, Mask lanes) {
  const bool relu = i.flags & kRelu;
  each_lane(lanes, [&](int l) {
    w.u32(i.d)[l] = round_bits(w.f32(i.a, l), 16, R, relu) << 16 | round_bits(w.f32(i.b, l), 16, R, relu);
  });
}
void bf16_to_float(Warp& w, const Instruction& i, Mask lanes) {
  each_lane(lanes, [&](int l) { w.u32(i.d)[l] = w.u32(i.a)[l] << 16; });
}
template <Round R>
void float_to_tf32(Warp& w, const Instruction& i, Mask lanes) {
  each_lane(lanes, [&](int l) { w.u32(i.d)[l] = round_bits(w.f32(i.a, l), 13, R, i.flags & kRelu) << 13; });
}

struct Rounding {
  Round round = Round::none;
  bool integral = false;
};

Rounding take_rounding(Form& f) {
  struct Name {
    const char* name;
    Round round;
    bool integral;
  };
  constexpr Name kNames[] = {{"rn", Round::nearest, false}, {"rz", Round::zero, false}, {"rm", Round::down, false},
                             {"rp", Round::up, false},      {"rna", Round::up, false},  {"rni", Round::nearest, true},
                             {"rzi", Round::zero, true},    {"rmi", Round::down, true}, {"rpi", Round::up, true}};
  for (const Name& n : kNames)
    if (f.take(n.name)) return {n.round, n.integral};
  return {};
}

// The register's width decides how many bits are read or written.
void set_convert_operands(Form& f, Type to, Type from) {
  Instruction& i = f.out();
  f.expect(2);
  const Operand &d = f.operand(0), &a = f.operand(1);
  if (d.wide) i.flags |= kWideResult;
  const bool wide_source = a.kind == OperandKind::immediate ? bytes_of(from) == 8 : a.wide;
  if (wide_source) i.flags |= kWideSource;
  if (bytes_of(to) == 8 && !d.wide) f.fail(fmt::format("result {} is too narrow for .{}", d.text, type_name(to)));
  if (bytes_of(from) == 8 && !wide_source)
    f.fail(fmt::format("operand {} is too narrow for .{}", a.text, type_name(from)));
  i.d = f.target(0, d.wide ? Type::b64 : Type::b32);
  i.a = f.source(1, wide_source ? Type::b64 : Type::b32);
}

template <class D>
Handler from_integer(Type from) {
  return for_integer(
      from,
      []<class S>() -> Handler {
        if constexpr (std::is_floating_point_v<D>)
          return &integer_to_float<D, S>;
        else
          return &integer_to_integer<D, S>;
      },
      true);
}

template <class D, class S>
Handler from_float(Rounding r) {
  if constexpr (std::is_floating_point_v<D>) {
    if (!r.integral)
      return r.round == Round::none || r.round == Round::nearest ? &float_to_float<D, S, Round::none> : nullptr;
    if (r.round == Round::nearest) return &float_to_float<D, S, Round::nearest>;
    if (r.round == Round::zero) return &float_to_float<D, S, Round::zero>;
    return r.round == Round::down ? &float_to_float<D, S, Round::down> : &float_to_float<D, S, Round::up>;
  } else {
    if (!r.integral) return nullptr;
    if (r.round == Round::nearest) return &float_to_integer<D, S, Round::nearest>;
    if (r.round == Round::zero) return &float_to_integer<D, S, Round::zero>;
    return r.round == Round::down ? &float_to_integer<D, S, Round::down> : &float_to_integer<D, S, Round::up>;
  }
}

template <class D>
Handler convert_to(Type from, Rounding r) {
  if (from == Type::f32) return from_float<D, float>(r);
  if (from == Type::f64) return from_float<D, double>(r);
  if (std::is_floating_point_v<D> && r.round != Round::nearest) return nullptr;
  if (!std::is_floating_point_v<D> && r.round != Round::none) return nullptr;
  return from_integer<D>(from);
}

Handler plain_conversion(Type to, Type from, Rounding r) {
  if (to == Type::f32) return convert_to<float>(from, r);
  if (to == Type::f64) return convert_to<double>(from, r);
  return for_integer(to, [&]<class D>() -> Handler { return convert_to<D>(from, r); }, true);
}

void small_float_conversion(Form& f, Type to, Type from, Rounding r) {
  Instruction& i = f.out();
  const bool nearest = r.round == Round::nearest;
  if (to == Type::bf16x2 && from == Type::f32 && !r.integral && r.round != Round::none) {
    f.expect(3);
    i.d = f.target(0, Type::b32);
    i.a = f.source(1, Type::f32);
    i.b = f.source(2, Type::f32);
    i.run = nearest ? &floats_to_bf16x2<Round::nearest> : &floats_to_bf16x2<Round::zero>;
    return;
  }
  f.expect(2);
  i.d = f.target(0, Type::b32);
  i.a = f.source(1, Type::b32);
  if (to == Type::bf16 && from == Type::f32 && (nearest || r.round == Round::zero))
    i.run = nearest ? &float_to_bf16<Round::nearest> : &float_to_bf16<Round::zero>;
  if (to == Type::f32 && from == Type::bf16) i.run = &bf16_to_float;
  if (to == Type::tf32 && from == Type::f32) {
    i.run = nearest                  ? &float_to_tf32<Round::nearest>
            : r.round == Round::up   ? &float_to_tf32<Round::up>
            : r.round == Round::zero ? &float_to_tf32<Round::zero>
                                     : nullptr;
  }
  if (!i.run) f.fail("no such form");
}

void decode_cvt(Form& f) {
  const Rounding r = take_rounding(f);
  Instruction& i = f.out();
  if (f.take("ftz")) i.flags |= kFtz;
  if (f.take("sat")) i.flags |= kSat;
  if (f.take("relu")) i.flags |= kRelu;
  const Type to = f.take_type();
  const Type from = f.take_type();
  const auto small = [](Type t) { return t == Type::bf16 || t == Type::bf16x2 || t == Type::tf32; };
  if (small(to) || small(from)) return small_float_conversion(f, to, from, r);
  set_convert_operands(f, to, from);
  i.type = bytes_of(to) == 2 ? Type::b16 : to;
  set_handler(f, plain_conversion(to, from, r));
}

// ---- mov
template <class T>
void move_handler(Warp& w, const Instruction& i, Mask lanes) {
  auto* d = row<T>(w, i.d);
  const auto* a = row<T>(w, i.a);
  each_lane(lanes, [&](int l) { d[l] = a[l]; });
}

void move_predicate(Warp& w, const Instruction& i, Mask lanes) {
  Mask& d = w.predicate(i.d);
  const Mask from = i.a >= 0 ? w.predicate(i.a) : i.offset != 0 ? kAllLanes : 0;
  d = (d & ~lanes) | (from & lanes);
}

// mov.b32 %r, {%rs0, %rs1} and mov.b64 %rd, {%r0, %r1}, four 16-bit parts too: the first part is the lowest.
void pack_handler(Warp& w, const Instruction& i, Mask lanes) {
  const auto bits = static_cast<int>(i.offset);
  const uint64_t part = bits == 32 ? 0xffffffffu : 0xffff;
  each_lane(lanes, [&](int l) {
    uint64_t value = 0;
    for (size_t k = 0; k < i.list.size(); ++k) value |= (w.u32(i.list[k])[l] & part) << (bits * static_cast<int>(k));
    if (i.flags & kWideResult)
      w.u64(i.d)[l] = value;
    else
      w.u32(i.d)[l] = static_cast<uint32_t>(value);
  });
}

void unpack_handler(Warp& w, const Instruction& i, Mask lanes) {
  const auto bits = static_cast<int>(i.offset);
  const uint64_t part = bits == 32 ? 0xffffffffu : 0xffff;
  each_lane(lanes, [&](int l) {
    const uint64_t value = raw(w, i.a, i.flags & kWideSource, l);
    for (size_t k = 0; k < i.list.size(); ++k)
      if (i.list[k] >= 0) w.u32(i.list[k])[l] = static_cast<uint32_t>(value >> (bits * static_cast<int>(k)) & part);
  });
}

void decode_move_vector(Form& f, Type type, bool pack) {
  Instruction& i = f.out();
  const std::vector<Operand>& parts = f.parts(pack ? 1 : 0);
  i.offset = 8 * bytes_of(type) / static_cast<int64_t>(std::max<size_t>(parts.size(), 1));
  if (i.offset != 16 && i.offset != 32) return f.fail("no such form");
  const bool wide = bytes_of(type) == 8;
  for (const Operand& p : parts) {
    const bool sink = !pack && p.kind == OperandKind::sink;
    i.list.push_back(sink ? kNoRow : pack ? f.source(p, Type::b32) : f.target(p, Type::b32));
  }
  if (pack)
    i.d = f.target(0, type);
  else
    i.a = f.source(1, type);
  if (wide) i.flags = pack ? kWideResult : kWideSource;
  i.run = pack ? &pack_handler : &unpack_handler;
}

void decode_mov(Form& f) {
  const Type type = f.take_type();
  f.expect(2);
  Instruction& i = f.out();
  i.moves = true;
  if (type == Type::pred) {
    i.d = f.predicate_target(0);
    if (f.operand(1).kind == OperandKind::immediate)
      i.offset = *f.immediate(1);
    else
      i.a = f.predicate_source(1);
    i.run = &move_predicate;
    return;
  }
  if (bytes_of(type) < 2 || bytes_of(type) > 8) return f.fail("no such form");
  if (f.operand(0).kind == OperandKind::vector) return decode_move_vector(f, type, false);
  if (f.operand(1).kind == OperandKind::vector) return decode_move_vector(f, type, true);
  i.d = f.target(0, type);
  i.a = f.source(1, type);
  i.run = bytes_of(type) == 8 ? &move_handler<uint64_t> : &move_handler<uint32_t>;
}

// ---- cvta: windows of the generic address space
void add_window(Warp& w, const Instruction& i, Mask lanes) {
  each_lane(lanes, [&](int l) {
    const uint64_t value = raw(w, i.a, i.flags & kWideSource, l) + static_cast<uint64_t>(i.offset);
    if (i.flags & kWideResult)
      w.u64(i.d)[l] = value;
    else
      w.u32(i.d)[l] = static_cast<uint32_t>(value);
  });
}

void decode_cvta(Form& f) {
  const bool to = f.take("to");
  Instruction& i = f.out();
  const bool shared = f.take_any({"shared", "shared::cta", "shared::cluster"});
  if (!shared && !f.take_any({"global", "param", "const"})) return f.fail("no such form");
  const Type type = f.take_type();
  set_convert_operands(f, type, type);
  if (shared) i.offset = to ? -static_cast<int64_t>(kSharedWindow) : static_cast<int64_t>(kSharedWindow);
  i.run = &add_window;
}

constexpr InstructionEntry kEntries[] = {{"cvt", &decode_cvt}, {"mov", &decode_mov}, {"cvta", &decode_cvta}};

}  // namespace

std::span<const InstructionEntry> convert_family() { return kEntries; }

}  // namespace stepc::emulator
