// Instructions in which the lanes of a warp exchange values: shuffles, votes, reductions, election.
#include <algorithm>

#include "runtime/emulator/instructions/execute.h"
#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

void set_members(Form& f, size_t operand) {
  f.out().converged = true;
  f.out().members = f.source(operand, Type::b32);
}

enum class Shuffle : uint8_t { up, down, butterfly, index };

// d|p = a of lane j; j and p as the PTX manual defines them by b and c.
template <Shuffle S>
void shuffle(Warp& w, const Instruction& i, Mask lanes) {
  uint32_t from[kLanes];
  std::copy_n(w.u32(i.a), kLanes, from);
  uint32_t* d = w.u32(i.d);
  const uint32_t *b = w.u32(i.b), *c = w.u32(i.c);
  Mask in_range = 0;
  each_lane(lanes, [&](int l) {
    const int shift = static_cast<int>(b[l] & 31), clamp = static_cast<int>(c[l] & 31);
    const int segment = static_cast<int>(c[l] >> 8 & 31);
    const int last = (l & segment) | (clamp & ~segment), first = l & segment;
    int j = S == Shuffle::up          ? l - shift
            : S == Shuffle::down      ? l + shift
            : S == Shuffle::butterfly ? l ^ shift
                                      : first | (shift & ~segment);
    const bool inside = S == Shuffle::up ? j >= last : j <= last;
    if (!inside) j = l;
    in_range |= static_cast<Mask>(inside) << l;
    if (!(lanes >> j & 1))
      w.cta().fault({FaultKind::bad_operand,
                     w.site(i, l),
                     fmt::format("shuffle from lane {}, which does not take part", j),
                     {},
                     {}});
    d[l] = from[j];
  });
  if (i.d2 != kNoPredicate) {
    Mask& p = w.predicate(i.d2);
    p = (p & ~lanes) | in_range;
  }
}

void decode_shfl(Form& f) {
  Handler handler = nullptr;
  if (f.take("up")) handler = &shuffle<Shuffle::up>;
  if (f.take("down")) handler = &shuffle<Shuffle::down>;
  if (f.take("bfly")) handler = &shuffle<Shuffle::butterfly>;
  if (f.take("idx")) handler = &shuffle<Shuffle::index>;
  if (!f.take("sync")) return f.fail("only the .sync form exists since sm_70");
  if (f.take_type() != Type::b32) return f.fail("no such form");
  const size_t first = f.count() == 6 ? 2 : 1;
  f.expect(first + 4);
  Instruction& i = f.out();
  i.d = f.target(0, Type::b32);
  if (first == 2) i.d2 = f.predicate_target(1);
  i.a = f.source(first, Type::b32);
  i.b = f.source(first + 1, Type::b32);
  i.c = f.source(first + 2, Type::b32);
  set_members(f, first + 3);
  set_handler(f, handler);
}

enum class Vote : uint8_t { all, any, uniform, ballot };
enum Flags : uint8_t { kNegated = 1 };

template <Vote V>
void vote(Warp& w, const Instruction& i, Mask lanes) {
  const Mask set = (i.flags & kNegated ? ~w.predicate(i.a) : w.predicate(i.a)) & lanes;
  if (V == Vote::ballot) {
    uint32_t* d = w.u32(i.d);
    return each_lane(lanes, [&](int l) { d[l] = set; });
  }
  const bool yes = V == Vote::all ? set == lanes : V == Vote::any ? set != 0 : set == 0 || set == lanes;
  Mask& d = w.predicate(i.d);
  d = (d & ~lanes) | (yes ? lanes : 0);
}

void decode_vote(Form& f) {
  Handler handler = nullptr;
  const bool ballot = f.take("ballot");
  if (ballot) handler = &vote<Vote::ballot>;
  if (f.take("all")) handler = &vote<Vote::all>;
  if (f.take("any")) handler = &vote<Vote::any>;
  if (f.take("uni")) handler = &vote<Vote::uniform>;
  if (!f.take("sync")) return f.fail("only the .sync form exists since sm_70");
  const Type type = f.take_type();
  f.expect(3);
  if (type != (ballot ? Type::b32 : Type::pred)) return f.fail("no such form");
  Instruction& i = f.out();
  i.d = ballot ? f.target(0, Type::b32) : f.predicate_target(0);
  const Operand& a = f.operand(1);
  if (a.kind != OperandKind::predicate) return f.fail(fmt::format("operand {} is not a predicate", a.text));
  i.a = a.predicate;
  if (a.negated) i.flags = kNegated;
  set_members(f, 2);
  set_handler(f, handler);
}

void active_mask(Warp& w, const Instruction& i, Mask lanes) {
  uint32_t* d = w.u32(i.d);
  each_lane(lanes, [&](int l) { d[l] = lanes; });
}

void decode_activemask(Form& f) {
  if (f.take_type() != Type::b32) return f.fail("no such form");
  f.expect(1);
  f.out().d = f.target(0, Type::b32);
  f.out().run = &active_mask;
}

template <class T, class F>
void reduce_lanes(Warp& w, const Instruction& i, Mask lanes, F&& combine) {
  const uint32_t* a = w.u32(i.a);
  bool first = true;
  T sum{};
  each_lane(lanes, [&](int l) {
    sum = first ? from_bits<T>(a[l]) : combine(sum, from_bits<T>(a[l]));
    first = false;
  });
  uint32_t* d = w.u32(i.d);
  each_lane(lanes, [&](int l) { d[l] = to_bits<T>(sum); });
}

enum class Reduce : uint8_t { add, min, max, conjunction, disjunction, parity };
template <Reduce R, class T>
void reduce(Warp& w, const Instruction& i, Mask lanes) {
  using U = std::make_unsigned_t<T>;
  reduce_lanes<T>(w, i, lanes, [](T x, T y) {
    return R == Reduce::add           ? static_cast<T>(static_cast<U>(x) + static_cast<U>(y))
           : R == Reduce::min         ? std::min(x, y)
           : R == Reduce::max         ? std::max(x, y)
           : R == Reduce::conjunction ? x & y
           : R == Reduce::disjunction ? x | y
                                      : x ^ y;
  });
}

template <class T>
Handler reduce_for(Form& f) {
  if (f.take("add")) return &reduce<Reduce::add, T>;
  if (f.take("min")) return &reduce<Reduce::min, T>;
  if (f.take("max")) return &reduce<Reduce::max, T>;
  if (f.take("and")) return &reduce<Reduce::conjunction, T>;
  if (f.take("or")) return &reduce<Reduce::disjunction, T>;
  if (f.take("xor")) return &reduce<Reduce::parity, T>;
  return nullptr;
}

void decode_redux(Form& f) {
  f.take("sync");
  const Type type = f.take_type();
  f.expect(3);
  if (bytes_of(type) != 4 || !is_integer(type)) return f.fail("no such form");
  Instruction& i = f.out();
  i.d = f.target(0, type);
  i.a = f.source(1, type);
  set_members(f, 2);
  set_handler(f, is_signed(type) ? reduce_for<int32_t>(f) : reduce_for<uint32_t>(f));
}

// match.any: the lanes with my value.
void match_any(Warp& w, const Instruction& i, Mask lanes) {
  uint32_t from[kLanes];
  std::copy_n(w.u32(i.a), kLanes, from);
  uint32_t* d = w.u32(i.d);
  each_lane(lanes, [&](int l) {
    Mask same = 0;
    each_lane(lanes, [&](int k) { same |= static_cast<Mask>(from[k] == from[l]) << k; });
    d[l] = same;
  });
}

void decode_match(Form& f) {
  f.take("sync");
  if (!f.take("any") || f.take_type() != Type::b32) return f.fail("no such form");
  f.expect(3);
  Instruction& i = f.out();
  i.d = f.target(0, Type::b32);
  i.a = f.source(1, Type::b32);
  set_members(f, 2);
  i.run = &match_any;
}

// PTX leaves open which lane leads, but it is always the same for one mask.
void elect(Warp& w, const Instruction& i, Mask lanes) {
  int leader = std::countr_zero(lanes);
  if (w.cta().stress()) {
    const int turn = static_cast<int>((w.cta().index() * 7u + static_cast<uint32_t>(w.index()) * 13u) % kLanes);
    const Mask rotated = std::rotr(lanes, turn);
    leader = (std::countr_zero(rotated) + turn) % kLanes;
  }
  if (i.d >= 0) {
    uint32_t* d = w.u32(i.d);
    each_lane(lanes, [&](int l) { d[l] = static_cast<uint32_t>(leader); });
  }
  if (i.d2 != kNoPredicate) {
    Mask& p = w.predicate(i.d2);
    p = (p & ~lanes) | Mask{1} << leader;
  }
}

void decode_elect(Form& f) {
  f.take("sync");
  f.expect(3);
  Instruction& i = f.out();
  if (f.operand(0).kind != OperandKind::sink) i.d = f.target(0, Type::b32);
  i.d2 = f.predicate_target(1);
  set_members(f, 2);
  i.run = &elect;
}

void warp_barrier(Warp& w, const Instruction&, Mask) { w.cta().units().on_warp_sync(w); }

void decode_bar_warp(Form& f) {
  f.take("warp");
  f.take("sync");
  f.expect(1);
  set_members(f, 0);
  f.out().run = &warp_barrier;
}

constexpr InstructionEntry kEntries[] = {
    {"shfl", &decode_shfl},   {"vote", &decode_vote},   {"activemask", &decode_activemask}, {"redux", &decode_redux},
    {"match", &decode_match}, {"elect", &decode_elect}, {"bar.warp", &decode_bar_warp},
};

}  // namespace

std::span<const InstructionEntry> warp_family() { return kEntries; }

}  // namespace stepc::emulator
