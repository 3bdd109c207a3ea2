// How a cluster ends: what is left over, and the report when nothing can move any more.
#include <fmt/format.h>

#include <bit>

#include "runtime/emulator/cluster.h"

namespace stepc::emulator {

std::string Cluster::warp_position(Warp& w) {
  std::string text;
  for (const LaneGroup& g : w.groups_) {
    // A failed wait has been passed already: it is one instruction back.
    const bool waits = g.state == GroupState::waiting_event && g.pc > 0;
    const Instruction* i = &launch_.kernel->code[g.pc];
    if (waits && launch_.kernel->code[g.pc - 1].async) i = &launch_.kernel->code[g.pc - 1];
    const int lane = std::countr_zero(g.lanes);
    if (g.state == GroupState::waiting_barrier) i = &launch_.kernel->code[g.pc - 1];
    std::string why = w.cta().units().explain_wait(w, *i, lane);
    if (g.state == GroupState::waiting_lanes)
      why = fmt::format("lanes {:#010x} wait here for {:#010x}", g.lanes, w.live_ & ~g.lanes);
    if (g.state == GroupState::waiting_barrier && i->opcode == Opcode::cluster_wait) why = "the cluster's barrier";
    if (g.state == GroupState::waiting_barrier && i->opcode == Opcode::barrier_sync) {
      const uint32_t id = w.u32(i->a)[lane];
      const Cta::NamedBarrier& b = w.cta().barriers_[id % 16];
      why = fmt::format("barrier {}: {} of {} threads have arrived", id, b.arrived, b.expected);
    }
    if (i->opcode == Opcode::setmaxnreg && waits)
      why = fmt::format("{} registers are free, it needs {}", w.cta().free_registers_,
                        (i->offset - w.register_budget_) * kLanes);
    const Site site = w.site(*i, g.lanes == w.live_ ? -1 : lane);
    text += fmt::format("\n  {}{}", describe(site), why.empty() ? "" : "\n    " + why);
  }
  return text;
}

// A barrier left incomplete whose last use was for another number of threads.
bool Cluster::report_mismatched_barrier(Cta& cta) {
  for (int id = 0; id < 16; ++id) {
    const Cta::NamedBarrier& b = cta.barriers_[id];
    if (b.arrived == 0 || b.previous == 0 || b.previous == b.expected) continue;
    raise(
        FaultKind::named_barrier, b.first,
        fmt::format("barrier {} for {} threads, of which {} have arrived when nothing can move any more; its last use "
                    "was for {}",
                    id, b.expected, b.arrived, b.previous));
    return true;
  }
  return false;
}

void Cluster::report_deadlock() {
  if (stopped_) return;
  for (auto& cta : ctas_)
    if (cta->units().report_stuck() || report_mismatched_barrier(*cta) || stopped_) return;
  const bool hangs = since_change_ > launch_.patience;
  std::string text = hangs ? fmt::format("{} instructions and nothing but registers has changed", launch_.patience)
                           : std::string("no warp can go on and nothing is under way");
  text += ". The warps:";
  for (Warp* w : running_) text += warp_position(*w);
  Warp& first = *running_.front();
  const LaneGroup& g = first.groups_[0];
  raise(FaultKind::deadlock, first.site(launch_.kernel->code[g.pc > 0 ? g.pc - 1 : 0]), std::move(text));
}

void Cluster::finish() {
  for (auto& cta : ctas_) {
    for (int id = 0; id < 16 && !stopped_; ++id) {
      const Cta::NamedBarrier& b = cta->barriers_[id];
      if (b.arrived == 0) continue;
      raise(FaultKind::named_barrier, b.first,
            fmt::format("the kernel ends with {} of {} threads at barrier {}", b.arrived, b.expected, id));
    }
    if (!stopped_) cta->units().finish();
  }
}

}  // namespace stepc::emulator
