// Atomics on ordinary memory. The lanes of a warp go one after another, from a random one on.
#include <algorithm>

#include "runtime/emulator/instructions/families.h"
#include "runtime/emulator/instructions/memory.h"

namespace stepc::emulator {
namespace {

// Instruction::flags
enum Flags : uint8_t { kReturns = 1, kWideAddress = 2 };

template <class T>
T add(T old, T a, T) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(a));
  else
    return one_nan(old + a);
}
template <class T>
T min_of(T old, T a, T) {
  return std::min(old, a);
}
template <class T>
T max_of(T old, T a, T) {
  return std::max(old, a);
}
template <class T>
T and_of(T old, T a, T) {
  return old & a;
}
template <class T>
T or_of(T old, T a, T) {
  return old | a;
}
template <class T>
T xor_of(T old, T a, T) {
  return old ^ a;
}
template <class T>
T exchange(T, T a, T) {
  return a;
}
template <class T>
T compare_and_swap(T old, T expected, T desired) {
  return old == expected ? desired : old;
}
uint32_t increment(uint32_t old, uint32_t limit, uint32_t) { return old >= limit ? 0 : old + 1; }
uint32_t decrement(uint32_t old, uint32_t limit, uint32_t) { return old == 0 || old > limit ? limit : old - 1; }

float from_bf16(uint32_t bits) { return std::bit_cast<float>(bits << 16); }
uint32_t to_bf16(float x) {
  if (x != x) return 0x7fff;
  uint32_t bits = std::bit_cast<uint32_t>(x);
  bits += 0x7fff + (bits >> 16 & 1);
  return bits >> 16;
}
uint32_t add_bf16x2(uint32_t old, uint32_t a, uint32_t) {
  return to_bf16(from_bf16(old & 0xffff) + from_bf16(a & 0xffff)) | to_bf16(from_bf16(old >> 16) + from_bf16(a >> 16))
                                                                        << 16;
}

// The space is kept in Instruction::e.
template <class T, auto F>
void atomic_handler(Warp& w, const Instruction& i, Mask lanes) {
  const Address address{i.a, (i.flags & kWideAddress) != 0, i.offset};
  const uint32_t first = w.cta().stress() ? w.cta().random().below(kLanes) : 0;
  for (uint32_t k = 0; k < kLanes; ++k) {
    const auto l = static_cast<int>((k + first) % kLanes);
    if (!(lanes >> l & 1)) continue;
    uint8_t* at = access(w, i, l, static_cast<Space>(i.e), w.address(address, l), sizeof(T), Access::atomic);
    if (!at) return;
    T old;
    std::memcpy(&old, at, sizeof(T));
    const T b = from_bits<T>(row<T>(w, i.b)[l]);
    const T c = i.c >= 0 ? from_bits<T>(row<T>(w, i.c)[l]) : T{};
    const T fresh = F(old, b, c);
    std::memcpy(at, &fresh, sizeof(T));
    if (i.flags & kReturns && i.d >= 0) row<T>(w, i.d)[l] = to_bits<T>(old);
  }
  w.cta().note_store();
}

// red of a vector: its elements are added one by one; their rows are in Instruction::list.
void add_vector(Warp& w, const Instruction& i, Mask lanes) {
  const Address address{i.a, (i.flags & kWideAddress) != 0, i.offset};
  const auto bytes = static_cast<uint32_t>(i.list.size() * sizeof(float));
  const uint32_t first = w.cta().stress() ? w.cta().random().below(kLanes) : 0;
  for (uint32_t k = 0; k < kLanes; ++k) {
    const auto l = static_cast<int>((k + first) % kLanes);
    if (!(lanes >> l & 1)) continue;
    uint8_t* at = access(w, i, l, static_cast<Space>(i.e), w.address(address, l), bytes, Access::atomic);
    if (!at) return;
    for (const Row element : i.list) {
      float old;
      std::memcpy(&old, at, sizeof(float));
      const float fresh = one_nan(old + from_bits<float>(row<float>(w, element)[l]));
      std::memcpy(at, &fresh, sizeof(float));
      at += sizeof(float);
    }
  }
  w.cta().note_store();
}

template <class T>
Handler integer_atomic(Form& f) {
  if (f.take("add")) return &atomic_handler<T, &add<T>>;
  if (f.take("min")) return &atomic_handler<T, &min_of<T>>;
  if (f.take("max")) return &atomic_handler<T, &max_of<T>>;
  if (f.take("and")) return &atomic_handler<T, &and_of<T>>;
  if (f.take("or")) return &atomic_handler<T, &or_of<T>>;
  if (f.take("xor")) return &atomic_handler<T, &xor_of<T>>;
  if (f.take("exch")) return &atomic_handler<T, &exchange<T>>;
  if constexpr (std::is_same_v<T, uint32_t>) {
    if (f.take("inc")) return &atomic_handler<T, &increment>;
    if (f.take("dec")) return &atomic_handler<T, &decrement>;
  }
  return nullptr;
}

Handler atomic_for(Form& f, Type type) {
  if (type == Type::u32 || type == Type::b32) return integer_atomic<uint32_t>(f);
  if (type == Type::s32) return integer_atomic<int32_t>(f);
  if (type == Type::u64 || type == Type::b64) return integer_atomic<uint64_t>(f);
  if (type == Type::s64) return integer_atomic<int64_t>(f);
  if (!f.take("add")) return nullptr;
  if (type == Type::f32) return &atomic_handler<float, &add<float>>;
  if (type == Type::f64) return &atomic_handler<double, &add<double>>;
  if (type == Type::bf16x2 && f.take("noftz")) return &atomic_handler<uint32_t, &add_bf16x2>;
  return nullptr;
}

// atom d, [a], b {, c}; red [a], b.
template <bool Returns>
void decode_atomic(Form& f) {
  Instruction& i = f.out();
  i.e = static_cast<int32_t>(take_space(f));
  const bool swap = Returns && f.take("cas");
  f.ignore_memory_hints();
  const size_t vector = Returns ? 1 : f.take("v2") ? 2 : f.take("v4") ? 4 : 1;
  const Type type = f.take_type();
  const size_t first = Returns ? 1 : 0;
  f.expect(first + (swap ? 3 : 2));
  if (bytes_of(type) < 4) return f.fail("no such form");
  const Type held = bytes_of(type) == 8 ? Type::b64 : Type::b32;
  if (Returns) {
    i.flags |= kReturns;
    if (f.operand(0).kind != OperandKind::sink) i.d = f.target(0, held);
  }
  const Address a = f.address(first);
  i.a = a.base;
  i.offset = a.offset;
  if (a.wide) i.flags |= kWideAddress;
  if (vector > 1) {
    if (type != Type::f32 || !f.take("add")) return f.fail("no such form");
    if (f.parts(1).size() != vector) return f.fail(fmt::format("a vector of {} registers expected", vector));
    for (const Operand& o : f.parts(1)) i.list.push_back(f.source(o, held));
    return set_handler(f, &add_vector);
  }
  i.b = f.source(first + 1, held);
  if (swap) {
    i.c = f.source(first + 2, held);
    return set_handler(f, type == Type::b64 || type == Type::u64
                              ? &atomic_handler<uint64_t, &compare_and_swap<uint64_t>>
                              : &atomic_handler<uint32_t, &compare_and_swap<uint32_t>>);
  }
  set_handler(f, atomic_for(f, type));
}

constexpr InstructionEntry kEntries[] = {{"atom", &decode_atomic<true>}, {"red", &decode_atomic<false>}};

}  // namespace

std::span<const InstructionEntry> atomic_family() { return kEntries; }

}  // namespace stepc::emulator
