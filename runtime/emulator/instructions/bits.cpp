// Logic, shifts and bit fields, on registers and on predicates.
#include <algorithm>

#include "runtime/emulator/instructions/execute.h"
#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

template <class T>
T and_of(T a, T b) {
  return a & b;
}
template <class T>
T or_of(T a, T b) {
  return a | b;
}
template <class T>
T xor_of(T a, T b) {
  return a ^ b;
}
template <class T>
T not_of(T a) {
  return static_cast<T>(~a);
}
template <class T>
T is_zero(T a) {
  return a == 0;
}

// Shifts by the width or more give zero, or the sign.
template <class T>
T shift_left(T a, uint32_t n) {
  return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n);
}
template <class T>
T shift_right(T a, uint32_t n) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  if (n >= kBits) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> n);
}

template <class T, auto F>
void shift_handler(Warp& w, const Instruction& i, Mask lanes) {
  auto* d = row<T>(w, i.d);
  const auto* a = row<T>(w, i.a);
  const uint32_t* b = w.u32(i.b);
  each_lane(lanes, [&](int l) { d[l] = to_bits<T>(F(from_bits<T>(a[l]), b[l])); });
}

void decode_shift(Form& f) {
  const Type type = f.take_type();
  const bool left = f.name() == "shl";
  f.expect(3);
  Instruction& i = f.out();
  i.d = f.target(0, type);
  i.a = f.source(1, type);
  i.b = f.source(2, Type::u32);
  set_handler(f, for_integer(type, [&]<class T>() -> Handler {
                return left ? &shift_handler<T, &shift_left<T>> : &shift_handler<T, &shift_right<T>>;
              }));
}

enum class Logic : uint8_t { kAnd, kOr, kXor, kNot, kZero };

// p = F(q, r) on whole warps of predicates; r may be a number, the same for all lanes.
template <Logic L>
void predicate_logic(Warp& w, const Instruction& i, Mask lanes) {
  const Mask a = w.predicate(i.a);
  const Mask b = i.b >= 0 ? w.predicate(i.b) : static_cast<Mask>(i.offset);
  const Mask r = L == Logic::kAnd ? a & b : L == Logic::kOr ? a | b : L == Logic::kXor ? a ^ b : ~a;
  Mask& d = w.predicate(i.d);
  d = (d & ~lanes) | (r & lanes);
}

template <Logic L, class T>
Handler logic_handler() {
  if constexpr (L == Logic::kAnd) return &binary_handler<T, T, &and_of<T>>;
  if constexpr (L == Logic::kOr) return &binary_handler<T, T, &or_of<T>>;
  if constexpr (L == Logic::kXor) return &binary_handler<T, T, &xor_of<T>>;
  if constexpr (L == Logic::kNot) return &unary_handler<T, T, &not_of<T>>;
  return &unary_handler<T, T, &is_zero<T>>;
}

template <Logic L>
void decode_logic(Form& f) {
  const Type type = f.take_type();
  constexpr int kSources = L == Logic::kNot || L == Logic::kZero ? 1 : 2;
  if (type == Type::pred) {
    f.expect(kSources + 1);
    Instruction& i = f.out();
    i.d = f.predicate_target(0);
    i.a = f.predicate_source(1);
    if (kSources == 2) {
      const bool is_number = f.operand(2).kind == OperandKind::immediate;
      i.b = is_number ? kNoPredicate : f.predicate_source(2);
      i.offset = is_number && *f.immediate(2) != 0 ? -1 : 0;
    }
    return set_handler(f, L == Logic::kZero ? nullptr : &predicate_logic<L>);
  }
  set_operands(f, type, kSources);
  set_handler(f, for_integer(type, []<class T>() -> Handler { return logic_handler<L, T>(); }));
}

// d = any function of three bits, by its truth table.
void lop3(Warp& w, const Instruction& i, Mask lanes) {
  uint32_t* d = w.u32(i.d);
  const uint32_t *a = w.u32(i.a), *b = w.u32(i.b), *c = w.u32(i.c);
  const auto table = static_cast<uint32_t>(i.offset);
  each_lane(lanes, [&](int l) {
    uint32_t r = 0;
    for (uint32_t k = 0; k < 8; ++k)
      if (table >> k & 1) r |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
    d[l] = r;
  });
}

void decode_lop3(Form& f) {
  const Type type = f.take_type();
  f.expect(5);
  Instruction& i = f.out();
  i.d = f.target(0, type);
  i.a = f.source(1, type);
  i.b = f.source(2, type);
  i.c = f.source(3, type);
  i.offset = f.immediate(4).value_or(0);
  set_handler(f, type == Type::b32 ? &lop3 : nullptr);
}

// The funnel shift of c:a (c the high word).
uint32_t funnel(uint32_t low, uint32_t high, uint32_t n, bool left, bool clamp) {
  n = clamp ? std::min(n, 32u) : n & 31;
  const uint64_t both = uint64_t{high} << 32 | low;
  return static_cast<uint32_t>(left ? both << n >> 32 : both >> n);
}

template <bool Left, bool Clamp>
uint32_t funnel_shift(uint32_t a, uint32_t b, uint32_t n) {
  return funnel(a, b, n, Left, Clamp);
}

void decode_shf(Form& f) {
  const bool left = f.take("l");
  if (!left) f.take("r");
  const bool clamp = f.take("clamp");
  if (!clamp) f.take("wrap");
  const Type type = f.take_type();
  if (type != Type::b32) return f.fail("no such form");
  set_operands(f, type, 3);
  using U = uint32_t;
  f.out().run = left ? (clamp ? &ternary_handler<U, U, &funnel_shift<true, true>>
                              : &ternary_handler<U, U, &funnel_shift<true, false>>)
                     : (clamp ? &ternary_handler<U, U, &funnel_shift<false, true>>
                              : &ternary_handler<U, U, &funnel_shift<false, false>>);
}

// prmt: each selector nibble picks a byte of b:a; its top bit replicates the byte's sign.
uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t r = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t s = selector >> (4 * k) & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (s & 7)) & 0xff);
    if (s & 8) byte = byte & 0x80 ? 0xff : 0;
    r |= byte << (8 * k);
  }
  return r;
}

void decode_prmt(Form& f) {
  const Type type = f.take_type();
  if (type != Type::b32) return f.fail("no such form");
  set_operands(f, type, 3);
  f.out().run = &ternary_handler<uint32_t, uint32_t, &permute>;
}

template <class T>
T extract(T a, uint32_t position, uint32_t length) {
  using U = std::make_unsigned_t<T>;
  constexpr uint32_t kBits = 8 * sizeof(T);
  position &= 0xff;
  length &= 0xff;
  if (length == 0) return 0;
  const uint32_t top = std::min(position + length - 1, kBits - 1);
  const bool sign = std::is_signed_v<T> && (static_cast<U>(a) >> top & 1);
  U r = position >= kBits ? U{0} : static_cast<U>(static_cast<U>(a) >> position);
  const uint32_t kept = std::min(length, position >= kBits ? 0 : kBits - position);
  const U mask = kept >= kBits ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << kept) - 1);
  r &= mask;
  return static_cast<T>(sign ? r | ~mask : r);
}

template <class T>
void extract_handler(Warp& w, const Instruction& i, Mask lanes) {
  auto* d = row<T>(w, i.d);
  const auto* a = row<T>(w, i.a);
  const uint32_t *b = w.u32(i.b), *c = w.u32(i.c);
  each_lane(lanes, [&](int l) { d[l] = to_bits<T>(extract(from_bits<T>(a[l]), b[l], c[l])); });
}

void decode_bfe(Form& f) {
  const Type type = f.take_type();
  f.expect(4);
  Instruction& i = f.out();
  i.d = f.target(0, type);
  i.a = f.source(1, type);
  i.b = f.source(2, Type::u32);
  i.c = f.source(3, Type::u32);
  set_handler(
      f, bytes_of(type) < 4 ? nullptr : for_integer(type, []<class T>() -> Handler { return &extract_handler<T>; }));
}

template <class T>
void insert_handler(Warp& w, const Instruction& i, Mask lanes) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  auto* d = row<T>(w, i.d);
  const auto *a = row<T>(w, i.a), *b = row<T>(w, i.b);
  const uint32_t *position = w.u32(i.c), *length = w.u32(i.e);
  each_lane(lanes, [&](int l) {
    const uint32_t p = position[l] & 0xff, n = length[l] & 0xff;
    const T field = n >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << n) - 1);
    const T mask = p >= kBits ? T{0} : static_cast<T>(field << p);
    d[l] = static_cast<T>((b[l] & ~mask) | ((p >= kBits ? T{0} : static_cast<T>(a[l] << p)) & mask));
  });
}

void decode_bfi(Form& f) {
  const Type type = f.take_type();
  f.expect(5);
  Instruction& i = f.out();
  i.d = f.target(0, type);
  i.a = f.source(1, type);
  i.b = f.source(2, type);
  i.c = f.source(3, Type::u32);
  i.e = f.source(4, Type::u32);
  set_handler(f, type == Type::b32   ? &insert_handler<uint32_t>
                 : type == Type::b64 ? &insert_handler<uint64_t>
                                     : nullptr);
}

template <class T>
uint32_t count_ones(T a) {
  return static_cast<uint32_t>(std::popcount(a));
}
template <class T>
uint32_t leading_zeros(T a) {
  return static_cast<uint32_t>(std::countl_zero(a));
}
template <class T>
T reversed(T a) {
  T r = 0;
  for (uint32_t k = 0; k < 8 * sizeof(T); ++k) r |= (a >> k & 1) << (8 * sizeof(T) - 1 - k);
  return r;
}
// The place of the highest bit that differs from the sign; all ones where there is none.
template <class T>
uint32_t highest_bit(T a) {
  using U = std::make_unsigned_t<T>;
  const U bits = static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a);
  return bits == 0 ? 0xffffffffu : static_cast<uint32_t>(8 * sizeof(T) - 1 - std::countl_zero(bits));
}

template <auto F32, auto F64>
void decode_count(Form& f) {
  const Type type = f.take_type();
  f.expect(2);
  Instruction& i = f.out();
  i.d = f.target(0, Type::u32);
  i.a = f.source(1, type);
  set_handler(f, type == Type::b32   ? &unary_handler<uint32_t, uint32_t, F32>
                 : type == Type::b64 ? &unary_handler<uint32_t, uint64_t, F64>
                                     : nullptr);
}

void decode_brev(Form& f) {
  const Type type = f.take_type();
  set_operands(f, type, 1);
  set_handler(f, type == Type::b32   ? &unary_handler<uint32_t, uint32_t, &reversed<uint32_t>>
                 : type == Type::b64 ? &unary_handler<uint64_t, uint64_t, &reversed<uint64_t>>
                                     : nullptr);
}

void decode_bfind(Form& f) {
  const Type type = f.take_type();
  f.expect(2);
  Instruction& i = f.out();
  i.d = f.target(0, Type::u32);
  i.a = f.source(1, type);
  set_handler(f, bytes_of(type) < 4 ? nullptr : for_integer(type, []<class T>() -> Handler {
                return &unary_handler<uint32_t, T, &highest_bit<T>>;
              }));
}

constexpr InstructionEntry kEntries[] = {
    {"and", &decode_logic<Logic::kAnd>},
    {"or", &decode_logic<Logic::kOr>},
    {"xor", &decode_logic<Logic::kXor>},
    {"not", &decode_logic<Logic::kNot>},
    {"cnot", &decode_logic<Logic::kZero>},
    {"shl", &decode_shift},
    {"shr", &decode_shift},
    {"lop3", &decode_lop3},
    {"shf", &decode_shf},
    {"prmt", &decode_prmt},
    {"bfe", &decode_bfe},
    {"bfi", &decode_bfi},
    {"popc", &decode_count<&count_ones<uint32_t>, &count_ones<uint64_t>>},
    {"clz", &decode_count<&leading_zeros<uint32_t>, &leading_zeros<uint64_t>>},
    {"brev", &decode_brev},
    {"bfind", &decode_bfind},
};

}  // namespace

std::span<const InstructionEntry> bits_family() { return kEntries; }

}  // namespace stepc::emulator
