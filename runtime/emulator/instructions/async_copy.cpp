// cp.async (sm_80): copies of 4, 8 or 16 bytes from global to shared memory. The bytes move at the latest when the
// wait that covers them runs, and sometimes at once; they count as under way until that wait, so both a missing wait
// and a buffer reused too early show.
#include <algorithm>

#include "runtime/emulator/instructions/families.h"
#include "runtime/emulator/instructions/memory.h"

namespace stepc::emulator {
namespace {

// Instruction fields: a + offset the shared address, b the global one (list: its offset), c the source bytes or none,
// e the bytes; flags: which addresses are wide.
enum Flags : uint8_t { kWideShared = 1, kWideGlobal = 2, kAll = 4 };

// Copies of 16 bytes have the units watch their target; of smaller ones only the write is seen, when they complete.
constexpr uint32_t kWatched = 16;

void move_bytes(Warp& w, const SimpleCopy& c, uint8_t* to) {
  if (c.source_bytes > 0) {
    const uint8_t* from = w.cta().global(c.global, c.source_bytes, c.bytes, w.site(*c.by, c.lane));
    if (!from) return;
    std::memcpy(to, from, c.source_bytes);
  }
  std::memset(to + c.source_bytes, 0, c.bytes - c.source_bytes);
}

uint8_t* target(Warp& w, const SimpleCopy& c) {
  return access(w, *c.by, c.lane, Space::shared, c.shared, c.bytes,
                c.bytes == kWatched ? Access::unseen : Access::write);
}

void begin(Warp& w, SimpleCopy* c) {
  if (c->bytes != kWatched) return;
  uint8_t* to = target(w, *c);
  if (!to) return;
  w.cta().units().on_copy_issued(c->shared, w.site(*c->by, c->lane));
  c->moved = !w.cta().stress() || w.cta().random().one_in(4);
  if (c->moved) move_bytes(w, *c, to);
}

void copy(Warp& w, const Instruction& i, Mask lanes) {
  const Address to{i.a, (i.flags & kWideShared) != 0, i.offset};
  const Address from{i.b, (i.flags & kWideGlobal) != 0, i.list[0]};
  const auto bytes = static_cast<uint32_t>(i.e);
  each_lane(lanes, [&](int l) {
    SimpleCopy c{
        static_cast<uint32_t>(w.address(to, l)), w.address(from, l), bytes, bytes, &i, static_cast<int16_t>(l)};
    if (i.c >= 0) c.source_bytes = std::min(w.u32(i.c)[l], bytes);
    begin(w, &c);
    w.pending_copies(l).open.push_back(c);
  });
}

void commit(Warp& w, const Instruction&, Mask lanes) {
  each_lane(lanes, [&](int l) {
    PendingCopies& p = w.pending_copies(l);
    p.groups.push_back(std::move(p.open));
    p.open.clear();
  });
}

void wait_for(Warp& w, const Instruction& i, Mask lanes) {
  each_lane(lanes, [&](int l) {
    PendingCopies& p = w.pending_copies(l);
    if (i.flags & kAll) {
      p.groups.push_back(std::move(p.open));
      p.open.clear();
    }
    while (static_cast<int64_t>(p.groups.size()) > i.offset) {
      for (const SimpleCopy& c : p.groups.front()) complete(w, c);
      p.groups.pop_front();
    }
  });
}

// cp.async.ca.shared.global [dst], [src], bytes {, source bytes};
void decode_copy(Form& f) {
  f.take("async");
  f.take_any({"ca", "cg"});
  const bool spaces = f.take_any({"shared", "shared::cta"}) && f.take("global");
  while (f.take_prefixed("L2::")) {
  }
  f.expect(3, 4);
  const bool partial = f.count() == 4;
  Instruction& i = f.out();
  const Address to = f.address(0), from = f.address(1);
  i.a = to.base;
  i.offset = to.offset;
  i.b = from.base;
  i.list.push_back(static_cast<int32_t>(from.offset));
  i.e = static_cast<int32_t>(f.immediate(2).value_or(0));
  if (partial) i.c = f.source(3, Type::u32);
  i.flags = static_cast<uint8_t>((to.wide ? kWideShared : 0) | (from.wide ? kWideGlobal : 0));
  if (!spaces || (i.e != 4 && i.e != 8 && i.e != 16)) return f.fail("no such form");
  i.run = &copy;
}

void decode_commit(Form& f) {
  f.take_any({"async", "commit_group"});
  f.expect(0);
  f.out().run = &commit;
}

void decode_wait(Form& f) {
  f.take("async");
  Instruction& i = f.out();
  if (f.take("wait_all")) {
    f.expect(0);
    i.flags = kAll;
  } else {
    f.take("wait_group");
    f.expect(1);
    i.offset = f.immediate(0).value_or(0);
  }
  i.run = &wait_for;
}

constexpr InstructionEntry kEntries[] = {
    {"cp.async.ca", &decode_copy},
    {"cp.async.cg", &decode_copy},
    {"cp.async.commit_group", &decode_commit},
    {"cp.async.wait_group", &decode_wait},
    {"cp.async.wait_all", &decode_wait},
};

}  // namespace

void complete(Warp& w, const SimpleCopy& c) {
  uint8_t* to = target(w, c);
  if (!to) return;
  if (!c.moved) move_bytes(w, c, to);
  if (c.bytes == kWatched) w.cta().units().on_copy_complete(c.shared, w.site(*c.by, c.lane));
  w.cta().note_store();
}

void land_copies(Warp& w, Mask lanes) {
  if (!w.has_copies()) return;
  each_lane(lanes, [&](int l) {
    PendingCopies& p = w.pending_copies(l);
    for (const auto& group : p.groups)
      for (const SimpleCopy& c : group) complete(w, c);
    for (const SimpleCopy& c : p.open) complete(w, c);
    p.open.clear();
    p.groups.clear();
  });
}

std::span<const InstructionEntry> async_copy_family() { return kEntries; }

}  // namespace stepc::emulator
