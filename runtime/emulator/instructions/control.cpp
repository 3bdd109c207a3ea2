// Branches, exits, barriers and fences. What the warps' loop does itself has an opcode (cluster.cpp); what changes
// nothing on the emulator has a handler that does nothing.
#include "runtime/emulator/instructions/execute.h"
#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

void nothing(Warp&, const Instruction&, Mask) {}

void decode_bra(Form& f) {
  f.take("uni");
  f.expect(1);
  if (f.operand(0).kind != OperandKind::label) f.fail(fmt::format("{} is no label", f.operand(0).text));
  f.out().opcode = Opcode::branch;
}

// brx.idx index, table: the label of the table at that place.
void decode_brx(Form& f) {
  f.take("idx");
  f.take("uni");
  f.expect(2);
  if (f.operand(1).kind != OperandKind::label) f.fail(fmt::format("{} is no branch table", f.operand(1).text));
  f.out().opcode = Opcode::branch;
  f.out().a = f.source(0, Type::u32);
}

template <Opcode O>
void decode_bare(Form& f) {
  f.take("uni");
  f.expect(0);
  f.out().opcode = O;
}

// bar.sync id {, threads}; bar.arrive id, threads; also as barrier{.cta}.
void decode_bar(Form& f) {
  f.take_any({"cta", "aligned"});
  const bool sync = f.take("sync"), arrive = f.take("arrive");
  if (sync == arrive) return f.fail("no such form");
  f.expect(arrive ? 2 : 1, 2);
  Instruction& i = f.out();
  i.opcode = sync ? Opcode::barrier_sync : Opcode::barrier_arrive;
  i.converged = true;
  i.a = f.source(0, Type::u32);
  if (f.count() == 2) i.b = f.source(1, Type::u32);
}

void decode_cluster_barrier(Form& f) {
  f.take("cluster");
  f.take_any({"release", "acquire", "relaxed", "aligned"});
  const bool arrive = f.take("arrive"), wait = f.take("wait");
  f.expect(0);
  if (arrive == wait) return f.fail("no such form");
  f.out().opcode = arrive ? Opcode::cluster_arrive : Opcode::cluster_wait;
  f.out().converged = true;
}

// Global and shared memory change in the order in which instructions execute, so these order nothing more.
void decode_fence(Form& f) {
  f.take_any({"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys", "gl"});
  f.take_any({"sync_restrict::shared::cta", "sync_restrict::shared::cluster"});
  f.expect(0);
  f.out().run = &nothing;
}

void decode_griddepcontrol(Form& f) {
  if (!f.take_any({"wait", "launch_dependents"})) return f.fail("no such form");
  f.expect(0);
  f.out().run = &nothing;
}

void decode_setmaxnreg(Form& f) {
  Instruction& i = f.out();
  const bool inc = f.take("inc"), dec = f.take("dec");
  if (inc == dec || !f.take("sync") || !f.take("aligned") || f.take_type() != Type::u32) return f.fail("no such form");
  f.expect(1);
  i.opcode = Opcode::setmaxnreg;
  i.converged = true;
  i.flags = inc;
  i.offset = f.immediate(0).value_or(0);
  if (i.offset < 24 || i.offset > 256 || i.offset % 8 != 0)
    f.fail(fmt::format("{} registers, expected a multiple of 8 from 24 to 256", i.offset));
}

void decode_nanosleep(Form& f) {
  if (f.take_type() != Type::u32) return f.fail("no such form");
  f.expect(1);
  f.source(0, Type::u32);
  f.out().opcode = Opcode::nanosleep;
}

// mapa d, a, rank: the address of a in the CTA with that rank.
void map_address(Warp& w, const Instruction& i, Mask lanes) {
  uint32_t* d = w.u32(i.d);
  const uint32_t *a = w.u32(i.a), *rank = w.u32(i.b);
  each_lane(lanes, [&](int l) {
    if (rank[l] >= static_cast<uint32_t>(w.cta().cluster_size()))
      w.cta().fault({FaultKind::bad_operand,
                     w.site(i, l),
                     fmt::format("rank {} in a cluster of {}", rank[l], w.cta().cluster_size()),
                     {},
                     {}});
    d[l] = a[l] % kClusterStride + (rank[l] + 1) * kClusterStride;
  });
}

void decode_mapa(Form& f) {
  if (!f.take("shared::cluster") || f.take_type() != Type::u32) return f.fail("no such form");
  f.expect(3);
  Instruction& i = f.out();
  i.d = f.target(0, Type::u32);
  i.a = f.source(1, Type::u32);
  i.b = f.source(2, Type::u32);
  i.run = &map_address;
}

void rank_of_address(Warp& w, const Instruction& i, Mask lanes) {
  uint32_t* d = w.u32(i.d);
  const uint32_t* a = w.u32(i.a);
  each_lane(lanes, [&](int l) {
    d[l] = a[l] < kClusterStride ? static_cast<uint32_t>(w.cta().rank()) : a[l] / kClusterStride - 1;
  });
}

void decode_getctarank(Form& f) {
  if (!f.take("shared::cluster") || f.take_type() != Type::u32) return f.fail("no such form");
  set_operands(f, Type::u32, 1);
  f.out().run = &rank_of_address;
}

constexpr InstructionEntry kEntries[] = {
    {"bra", &decode_bra},
    {"brx", &decode_brx},
    {"ret", &decode_bare<Opcode::ret>},
    {"exit", &decode_bare<Opcode::ret>},
    {"trap", &decode_bare<Opcode::trap>},
    {"bar", &decode_bar},
    {"barrier", &decode_bar},
    {"barrier.cluster", &decode_cluster_barrier},
    {"fence", &decode_fence},
    {"membar", &decode_fence},
    {"griddepcontrol", &decode_griddepcontrol},
    {"setmaxnreg", &decode_setmaxnreg},
    {"nanosleep", &decode_nanosleep},
    {"mapa", &decode_mapa},
    {"getctarank", &decode_getctarank},
};

}  // namespace

std::span<const InstructionEntry> control_family() { return kEntries; }

}  // namespace stepc::emulator
