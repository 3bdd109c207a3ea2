// The scheduler's part for barriers: bar.sync and bar.arrive with ids and counts, the cluster's barrier, and what an
// exiting warp changes for both.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/emulator/cluster.h"

namespace stepc::emulator {

bool Cluster::uniform_value(Warp& w, const Instruction& i, Row row, Mask lanes, uint32_t* value) {
  const uint32_t* values = w.u32(row);
  *value = values[std::countr_zero(lanes)];
  for (int l = 0; l < kLanes; ++l) {
    if (!(lanes >> l & 1) || values[l] == *value) continue;
    raise(FaultKind::bad_operand, w.site(i, l),
          fmt::format("barrier operand {} in one lane, {} in another", *value, values[l]));
    return false;
  }
  return true;
}

void Cluster::barrier(Warp& w, const Instruction& i, Mask lanes) {
  Cta& cta = w.cta();
  uint32_t id = 0, count = 0;
  if (!uniform_value(w, i, i.a, lanes, &id)) return;
  if (i.b >= 0 && !uniform_value(w, i, i.b, lanes, &count)) return;
  if (id >= 16) return raise(FaultKind::bad_operand, w.site(i), fmt::format("barrier {}; there are 16", id));
  if (count % kLanes != 0)
    return raise(FaultKind::bad_operand, w.site(i), fmt::format("{} threads is no number of whole warps", count));
  Cta::NamedBarrier& b = cta.barriers_[id];
  const bool everybody = count == 0;
  if (everybody)
    for (const auto& other : cta.warps_) count += other->live_ ? kLanes : 0;
  if (b.arrived == 0) {
    b.expected = count;
    b.everybody = everybody;
    b.first = w.site(i);
  } else if (b.expected != count) {
    return cta.fault(
        {FaultKind::named_barrier, w.site(i),
         fmt::format("barrier {} for {} threads, while {} are there for one of {}", id, count, b.arrived, b.expected),
         b.first, "first to arrive:"});
  }
  b.arrived += kLanes;
  cta.units().on_barrier_arrive(w, static_cast<int>(id));
  since_change_ = 0;
  LaneGroup& g = w.groups_[0];
  ++g.pc;
  if (i.opcode == Opcode::barrier_sync) {
    g.state = GroupState::waiting_barrier;
    b.waiting.push_back(&w);
  }
  if (b.arrived > b.expected)
    return cta.fault({FaultKind::named_barrier, w.site(i),
                      fmt::format("{} threads at barrier {} for {}", b.arrived, id, b.expected), b.first,
                      "first to arrive:"});
  if (b.arrived == b.expected) release_barrier(cta, static_cast<int>(id));
}

void Cluster::release_barrier(Cta& cta, int id) {
  Cta::NamedBarrier& b = cta.barriers_[id];
  for (Warp* w : b.waiting) {
    w->groups_[0].state = GroupState::ready;
    cta.units().on_barrier_release(*w, id);
  }
  const uint32_t expected = b.expected;
  b = {};
  b.previous = expected;
}

void Cluster::cluster_arrive(Warp& w, const Instruction& i) {
  if (w.cluster_phase_ != 0)
    return raise(FaultKind::named_barrier, w.site(i), "arrives twice at the cluster's barrier with no wait between");
  w.cluster_phase_ = cluster_phase_;
  ++cluster_arrived_;
  w.cta().units().on_barrier_arrive(w, -1);
  since_change_ = 0;
  ++w.groups_[0].pc;
  check_cluster_barrier();
}

void Cluster::cluster_wait(Warp& w, const Instruction& i) {
  if (w.cluster_phase_ == 0)
    return raise(FaultKind::named_barrier, w.site(i), "waits at the cluster's barrier without having arrived");
  LaneGroup& g = w.groups_[0];
  ++g.pc;
  if (w.cluster_phase_ == cluster_phase_) {
    g.state = GroupState::waiting_barrier;
    cluster_waiting_.push_back(&w);
    return;
  }
  w.cluster_phase_ = 0;
  w.cta().units().on_barrier_release(w, -1);
}

void Cluster::check_cluster_barrier() {
  if (cluster_arrived_ == 0 || cluster_arrived_ < running_.size()) return;
  ++cluster_phase_;
  cluster_arrived_ = 0;
  for (Warp* w : cluster_waiting_) {
    w->cluster_phase_ = 0;
    w->groups_[0].state = GroupState::ready;
    w->cta().units().on_barrier_release(*w, -1);
  }
  cluster_waiting_.clear();
}

void Cluster::after_exit(Warp& w) {
  std::erase(running_, &w);
  if (w.cluster_phase_ == cluster_phase_) --cluster_arrived_;
  check_cluster_barrier();
  for (int id = 0; id < 16; ++id) {
    Cta::NamedBarrier& b = w.cta().barriers_[id];
    if (b.arrived == 0 || !b.everybody) continue;
    b.expected -= kLanes;
    if (b.arrived == b.expected) release_barrier(w.cta(), id);
  }
}

}  // namespace stepc::emulator
