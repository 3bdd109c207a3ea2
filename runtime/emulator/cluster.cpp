#include "runtime/emulator/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/support/check.h"
#include "runtime/emulator/special.h"
#include "runtime/emulator/units/units.h"

namespace stepc::emulator {
namespace {

uint64_t mix(uint64_t a, uint64_t b) { return Random(a ^ (b * 0x9e3779b97f4a7c15ull)).next(); }

// What ptxas gives each thread at entry where the kernel states its size; 0 where it does not.
constexpr int kRegistersOfSm = 65536;
int entry_registers(const Kernel& kernel) {
  if (kernel.max_registers > 0) return kernel.max_registers;
  const uint32_t required = kernel.required_threads[0] * kernel.required_threads[1] * kernel.required_threads[2];
  const uint32_t threads = required > 0 ? required : kernel.max_threads;
  return threads == 0 ? 0 : std::min(255, kRegistersOfSm / static_cast<int>(threads)) / 8 * 8;
}

}  // namespace

std::vector<uint32_t> initial_registers(const Kernel& kernel) {
  constexpr uint32_t kPoison = 0xffffdeadu;
  std::vector<uint32_t> registers((static_cast<size_t>(kernel.rows) + 1) * kLanes, kPoison);
  for (const Kernel::Constant& c : kernel.constants) {
    uint32_t* row = registers.data() + static_cast<size_t>(c.row) * kLanes;
    for (int l = 0; l < kLanes; ++l) {
      if (c.wide)
        std::memcpy(row + 2 * l, &c.value, 8);
      else
        row[l] = static_cast<uint32_t>(c.value);
    }
  }
  return registers;
}

Cluster::Cluster(const Launch& launch, const std::vector<uint32_t>& registers, uint64_t number)
    : launch_(launch), initial_(registers), random_(mix(launch.seed, number)) {
  const Kernel& kernel = *launch.kernel;
  const auto threads = static_cast<int>(launch.block.count());
  const uint32_t align = kernel.dynamic_shared_align;
  const uint32_t statics = (kernel.static_shared_bytes + align - 1) / align * align;
  const size_t size = launch.cluster.count();
  const int warps = (threads + kLanes - 1) / kLanes;
  for (size_t rank = 0; rank < size; ++rank) {
    auto cta = std::make_unique<Cta>();
    cta->kernel_ = &kernel;
    cta->cluster_ = this;
    cta->rank_ = static_cast<int>(rank);
    cta->threads_ = threads;
    cta->stress_ = launch.stress;
    cta->random_ = Random(random_.next());
    cta->free_registers_ = kRegistersOfSm - entry_registers(kernel) * warps * kLanes;
    cta->shared_.assign(statics + launch.dynamic_shared_bytes, 0xff);
    ctas_.push_back(std::move(cta));
  }
  for (auto& cta : ctas_) {
    const Place place = place_of(launch, number, static_cast<uint32_t>(cta->rank_));
    cta->index_ = place.linear;
    for (int w = 0; w * kLanes < threads; ++w) {
      cta->warps_.push_back(std::make_unique<Warp>(*cta, w, threads));
      cta->warps_.back()->register_budget_ = entry_registers(kernel);
      fill_specials(*cta->warps_.back(), launch, place);
      running_.push_back(cta->warps_.back().get());
    }
  }
  for (auto& cta : ctas_) cta->units_ = make_async_units(*cta);
}

void Cluster::run() {
  while (!stopped_ && !running_.empty()) {
    if (Warp* w = pick()) {
      turn(*w);
      if (launch_.stress && random_.one_in(4)) advance_units();
    } else if (!advance_units()) {
      report_deadlock();
    }
  }
  if (!stopped_) finish();
}

bool Cluster::advance_units() {
  const size_t n = ctas_.size();
  const uint32_t first = n > 1 ? random_.below(static_cast<uint32_t>(n)) : 0;
  for (size_t k = 0; k < n; ++k)
    if (ctas_[(first + k) % n]->units().advance()) return true;
  return false;
}

bool Cluster::group_runnable(const LaneGroup& g) const {
  return g.state == GroupState::ready || (g.state == GroupState::waiting_event && g.event != events_);
}

bool Cluster::runnable(const Warp& w) const {
  return std::any_of(w.groups_.begin(), w.groups_.end(), [&](const LaneGroup& g) { return group_runnable(g); });
}

Warp* Cluster::pick() {
  const auto n = static_cast<uint32_t>(running_.size());
  const uint32_t first = launch_.stress ? random_.below(n) : next_++ % n;
  for (uint32_t k = 0; k < n; ++k) {
    Warp* w = running_[(first + k) % n];
    if (runnable(*w)) return w;
  }
  return nullptr;
}

// The lowest place first: lanes that run ahead wait where the others come along. Now and then another group, since
// nothing promises that order.
bool Cluster::select_group(Warp& w) {
  int best = -1;
  const bool any = launch_.stress && random_.one_in(16);
  for (size_t k = 0; k < w.groups_.size(); ++k) {
    const LaneGroup& g = w.groups_[k];
    if (!group_runnable(g)) continue;
    if (best < 0 || (any ? random_.one_in(2) : g.pc < w.groups_[best].pc)) best = static_cast<int>(k);
  }
  if (best < 0) return false;
  std::swap(w.groups_[0], w.groups_[best]);
  w.groups_[0].state = GroupState::ready;
  return true;
}

void Cluster::turn(Warp& w) {
  if (!select_group(w)) return;
  uint32_t budget = 1000;
  if (launch_.stress) budget = 1 + random_.below(random_.one_in(8) ? 3 : 200);
  while (budget-- > 0 && !stopped_ && step(w)) {
  }
}

bool Cluster::step(Warp& w) {
  const size_t groups = w.groups_.size();
  LaneGroup& g = w.groups_[0];
  const Instruction& i = launch_.kernel->code[g.pc];
  if (i.converged && g.lanes != kAllLanes && !gathered(w, i)) {
    g.state = GroupState::waiting_lanes;
    return select_group(w);
  }
  Mask lanes = g.lanes;
  if (i.guard != kNoPredicate) lanes &= i.guard_not ? ~w.predicates_[i.guard] : w.predicates_[i.guard];
  if (++since_change_ > launch_.patience) {
    report_deadlock();
    return false;
  }
  if (lanes == 0) {
    ++g.pc;
  } else if (i.converged && lanes != g.lanes && !whole(w, i, lanes)) {
    return false;
  } else if (i.opcode == Opcode::ordinary) {
    if (w.in_flight_count_ != 0) check_in_flight(w, i);
    if (w.open_loads_) w.cta().units().on_registers(w, i);
    i.run(w, i, lanes);
    if (!w.written_at_.empty())
      for (const Row r : i.writes) w.written_at_[r] = w.fence_epoch_;
    ++g.pc;
  } else if (i.async) {
    execute_units(w, i, lanes);
  } else {
    execute_control(w, i, lanes);
  }
  if (w.groups_.empty() || stopped_) return false;
  if (groups > 1 || w.groups_.size() > 1) merge_groups(w);
  const bool yields = w.yield_;
  w.yield_ = false;
  if (w.groups_[0].state != GroupState::ready || w.groups_.size() > 1) return select_group(w) && !yields;
  return !yields;
}

// Whether all lanes that `i` needs stand here. Lanes that it names but that have exited never come.
bool Cluster::gathered(Warp& w, const Instruction& i) {
  const LaneGroup& g = w.groups_[0];
  Mask members = w.live_;
  if (i.members != kNoRow) {
    members = w.u32(i.members)[std::countr_zero(g.lanes)];
    if (members & ~w.live_) {
      raise(FaultKind::divergence, w.site(i),
            fmt::format("needs lanes {:#010x}, of which {:#010x} have exited", members, members & ~w.live_));
      return true;
    }
  }
  return (members & ~g.lanes) == 0;
}

// Where a guard keeps lanes from an instruction that needs them.
bool Cluster::whole(Warp& w, const Instruction& i, Mask lanes) {
  const Mask members = i.members == kNoRow ? w.live_ : w.u32(i.members)[std::countr_zero(lanes)];
  if ((members & ~lanes) == 0) return true;
  raise(FaultKind::divergence, w.site(i),
        fmt::format("only lanes {:#010x} execute it, of {:#010x} that it needs", lanes, members));
  return false;
}

void Cluster::check_in_flight(Warp& w, const Instruction& i) {
  const auto complain = [&](Row r, const char* what) {
    if (stopped_) return;
    Fault f{FaultKind::accumulator, w.site(i), std::string(what) + " a register that belongs to a wgmma in flight",
            w.site(*w.in_flight_[r].by), "issued by"};
    ctas_[0]->fault(std::move(f));
  };
  for (const Row r : i.reads)
    if (w.in_flight_[r].by && !w.in_flight_[r].reading) complain(r, "reads");
  for (const Row r : i.writes)
    if (w.in_flight_[r].by) complain(r, "writes");
}

void Cluster::execute_units(Warp& w, const Instruction& i, Mask lanes) {
  LaneGroup& g = w.groups_[0];
  if (i.opcode == Opcode::cp_async_mbarrier_arrive) land_copies(w, lanes);
  if (w.in_flight_count_ != 0) check_in_flight(w, i);
  if (w.open_loads_) w.cta().units().on_registers(w, i);
  const Outcome outcome = w.cta().units().execute(w, i, lanes);
  if (outcome == Outcome::wait) {
    g.state = GroupState::waiting_event;
    g.event = events_;
    return;
  }
  if (!w.written_at_.empty())
    for (const Row r : i.writes) w.written_at_[r] = w.fence_epoch_;
  ++g.pc;
  if (w.wait_failed_) {
    w.wait_failed_ = false;
    g.state = GroupState::waiting_event;
    g.event = events_;
  } else if (i.opcode == Opcode::mbarrier_try_wait && launch_.stress && random_.one_in(8)) {
    w.predicates_[i.async->done] &= ~lanes;  // the hardware may give up early
    w.yield_ = true;
  }
}

void Cluster::execute_control(Warp& w, const Instruction& i, Mask lanes) {
  LaneGroup& g = w.groups_[0];
  if (w.open_loads_) w.cta().units().on_registers(w, i);
  switch (i.opcode) {
    case Opcode::branch: return branch(w, i, lanes);
    case Opcode::ret: return exit_lanes(w, lanes);
    case Opcode::trap: return raise(FaultKind::trap, w.site(i, std::countr_zero(lanes)), "the kernel trapped");
    case Opcode::barrier_sync:
    case Opcode::barrier_arrive: return barrier(w, i, lanes);
    case Opcode::cluster_arrive: return cluster_arrive(w, i);
    case Opcode::cluster_wait: return cluster_wait(w, i);
    case Opcode::setmaxnreg: return set_register_budget(w, i);
    case Opcode::nanosleep:
      w.yield_ = true;
      ++g.pc;
      return;
    case Opcode::ordinary:
    case Opcode::mbarrier_init:
    case Opcode::mbarrier_inval:
    case Opcode::mbarrier_arrive:
    case Opcode::mbarrier_expect_tx:
    case Opcode::mbarrier_test_wait:
    case Opcode::mbarrier_try_wait:
    case Opcode::cp_async_mbarrier_arrive:
    case Opcode::bulk_tensor_load:
    case Opcode::bulk_tensor_store:
    case Opcode::bulk_tensor_reduce:
    case Opcode::bulk_load:
    case Opcode::bulk_store:
    case Opcode::bulk_reduce:
    case Opcode::bulk_commit:
    case Opcode::bulk_wait:
    case Opcode::bulk_prefetch:
    case Opcode::wgmma_mma:
    case Opcode::wgmma_fence:
    case Opcode::wgmma_commit:
    case Opcode::wgmma_wait:
    case Opcode::fence_proxy_async:
    case Opcode::fence_mbarrier_init: STEPC_UNREACHABLE("opcode {} is not the scheduler's", static_cast<int>(i.opcode));
  }
}

void Cluster::branch(Warp& w, const Instruction& i, Mask lanes) {
  if (i.a < 0) {
    LaneGroup& g = w.groups_[0];
    const auto target = static_cast<uint32_t>(i.list[0]);
    if (lanes == g.lanes) {
      g.pc = target;
      return;
    }
    ++g.pc;
    g.lanes &= ~lanes;
    w.groups_.push_back({target, lanes, GroupState::ready, 0});
    return;
  }
  // brx.idx: a group for each target.
  const uint32_t* index = w.u32(i.a);
  const Mask staying = w.groups_[0].lanes & ~lanes;
  const uint32_t pc = w.groups_[0].pc;
  w.groups_.erase(w.groups_.begin());
  if (staying) w.groups_.insert(w.groups_.begin(), {pc + 1, staying, GroupState::ready, 0});
  while (lanes) {
    const uint32_t chosen = index[std::countr_zero(lanes)];
    Mask same = 0;
    for (int l = 0; l < kLanes; ++l)
      if (lanes >> l & 1 && index[l] == chosen) same |= Mask{1} << l;
    lanes &= ~same;
    if (chosen >= i.list.size())
      return raise(FaultKind::bad_operand, w.site(i, std::countr_zero(same)),
                   fmt::format("index {} in a table of {} labels", chosen, i.list.size()));
    w.groups_.push_back({static_cast<uint32_t>(i.list[chosen]), same, GroupState::ready, 0});
  }
}

void Cluster::merge_groups(Warp& w) {
  for (size_t a = 0; a < w.groups_.size(); ++a)
    for (size_t b = w.groups_.size() - 1; b > a; --b) {
      if (w.groups_[a].pc != w.groups_[b].pc) continue;
      w.groups_[a].lanes |= w.groups_[b].lanes;
      w.groups_[a].state = GroupState::ready;
      w.groups_.erase(w.groups_.begin() + static_cast<std::ptrdiff_t>(b));
    }
}

void Cluster::exit_lanes(Warp& w, Mask lanes) {
  w.cta().units().on_exit(w, lanes);
  land_copies(w, lanes);
  w.live_ &= ~lanes;
  LaneGroup& g = w.groups_[0];
  g.lanes &= ~lanes;
  ++g.pc;
  if (g.lanes == 0) w.groups_.erase(w.groups_.begin());
  for (LaneGroup& other : w.groups_)
    if (other.state == GroupState::waiting_lanes) other.state = GroupState::ready;  // may wait for fewer now
  since_change_ = 0;
  if (w.live_ == 0) after_exit(w);
}

// Taking registers waits until others have given back enough.
void Cluster::set_register_budget(Warp& w, const Instruction& i) {
  const int wanted = static_cast<int>(i.offset), change = (wanted - w.register_budget_) * kLanes;
  if (w.register_budget_ == 0)
    return raise(FaultKind::bad_operand, w.site(i), "needs a kernel that states .maxntid, .reqntid or .maxnreg");
  if ((i.flags != 0) != (change >= 0))
    return raise(FaultKind::bad_operand, w.site(i),
                 fmt::format("{} registers, while the warp has {}", wanted, w.register_budget_));
  LaneGroup& g = w.groups_[0];
  if (change > w.cta().free_registers_) {
    g.state = GroupState::waiting_event;
    g.event = events_;
    return;
  }
  w.cta().free_registers_ -= change;
  w.register_budget_ = wanted;
  ++g.pc;
  if (change < 0) w.cta().event();
}

void Cluster::raise(FaultKind kind, const Site& at, std::string text) {
  ctas_[0]->fault({kind, at, std::move(text), {}, {}});
}

}  // namespace stepc::emulator
