#include "runtime/emulator/units/units.h"

#include <fmt/format.h>

#include <bit>

#include "ir/support/check.h"

namespace stepc::emulator {
namespace {

template <class Each>
void for_lanes(Mask lanes, Each&& each) {
  for (; lanes != 0; lanes &= lanes - 1) each(std::countr_zero(lanes));
}

}  // namespace

bool has_exited(Cta& cta) {
  for (const auto& warp : cta.warps())
    if (warp->live() != 0) return false;
  return true;
}

std::unique_ptr<Units> make_async_units(Cta& cta) { return std::make_unique<AsyncUnits>(cta); }

AsyncUnits::AsyncUnits(Cta& cta)
    : cta_(cta),
      cluster_(cta.rank() == 0 ? std::make_shared<ClusterState>(cta) : peer(0).cluster_),
      shadow_(cta, *cluster_),
      mbarriers_(cta, *cluster_, shadow_),
      copies_(*this, cta, *cluster_),
      warpgroups_((cta.warps().size() + 3) / 4),
      barriers_(16) {
  for (size_t w = 0; w < cta.warps().size(); ++w) wgmma_.emplace_back(cta, *cluster_, shadow_, warpgroups_[w / 4]);
  if (cta.kernel().bulk_loads)
    for (const auto& warp : cta.warps()) open_loads_.emplace_back(cluster_->agent(*warp), cta.kernel().rows);
}

AsyncUnits::~AsyncUnits() = default;

AsyncUnits& AsyncUnits::peer(int rank) { return static_cast<AsyncUnits&>(cta_.peer(rank).units()); }

// ---- instructions

Outcome AsyncUnits::execute(Warp& warp, const Instruction& i, Mask lanes) {
  switch (i.opcode) {
    case Opcode::mbarrier_init:
    case Opcode::mbarrier_inval:
    case Opcode::mbarrier_arrive:
    case Opcode::mbarrier_expect_tx:
    case Opcode::cp_async_mbarrier_arrive: for_lanes(lanes, [&](int lane) { execute_mbarrier(warp, i, lane); }); break;
    case Opcode::mbarrier_test_wait:
    case Opcode::mbarrier_try_wait: wait_mbarrier(warp, i, lanes); break;
    case Opcode::bulk_tensor_load:
    case Opcode::bulk_tensor_store:
    case Opcode::bulk_tensor_reduce:
    case Opcode::bulk_load:
    case Opcode::bulk_store:
    case Opcode::bulk_reduce:
    case Opcode::bulk_commit:
    case Opcode::bulk_wait: for_lanes(lanes, [&](int lane) { execute_copy(warp, i, lane); }); break;
    case Opcode::bulk_prefetch: break;
    case Opcode::fence_proxy_async:
    case Opcode::fence_mbarrier_init: for_lanes(lanes, [&](int lane) { execute_fence(warp, i, lane); }); break;
    case Opcode::wgmma_mma:
    case Opcode::wgmma_fence:
    case Opcode::wgmma_commit:
    case Opcode::wgmma_wait: execute_wgmma(warp, i); break;
    default: STEPC_UNREACHABLE("opcode {} is not one of the asynchronous units'", static_cast<int>(i.opcode));
  }
  return Outcome::done;
}

AsyncUnits* AsyncUnits::owner(Warp& warp, const Instruction& i, int lane, uint32_t* local) {
  const uint64_t address = warp.address(i.async->barrier, lane);
  Cta* cta = cta_.locate_shared(address, local);
  if (cta != nullptr) return static_cast<AsyncUnits*>(&cta->units());
  cta_.fault({FaultKind::address,
              warp.site(i, lane),
              fmt::format("names an mbarrier at {:#x}, which is no shared memory of the cluster", address),
              {},
              {}});
  return nullptr;
}

void AsyncUnits::execute_mbarrier(Warp& warp, const Instruction& i, int lane) {
  const AsyncOperands& o = *i.async;
  uint32_t address = 0;
  AsyncUnits* units = owner(warp, i, lane, &address);
  if (units == nullptr) return;
  Mbarriers& barriers = units->mbarriers_;
  const Party by = cluster_->party(warp.site(i, lane));
  const uint32_t count = o.count == kNoRow ? 1 : warp.u32(o.count)[lane];
  const uint32_t bytes = o.bytes == kNoRow ? 0 : warp.u32(o.bytes)[lane];
  switch (i.opcode) {
    case Opcode::mbarrier_init: barriers.init(by, address, count); break;
    case Opcode::mbarrier_inval: barriers.invalidate(by, address); break;
    case Opcode::mbarrier_expect_tx: barriers.expect(by, address, bytes); break;
    case Opcode::mbarrier_arrive: {
      const uint64_t phase = barriers.arrive(by, address, count, o.expect_tx ? bytes : 0);
      if (o.state != kNoRow) warp.u64(o.state)[lane] = phase;
      break;
    }
    // cp.async has copied when it was issued, so the arrival it triggers is due; the counting form adds the arrival
    // that it then makes.
    case Opcode::cp_async_mbarrier_arrive:
      if (o.noinc) barriers.arrive(by, address, 1, 0);
      break;
    default: STEPC_UNREACHABLE("not an mbarrier instruction");
  }
}

void AsyncUnits::wait_mbarrier(Warp& warp, const Instruction& i, Mask lanes) {
  const AsyncOperands& o = *i.async;
  bool failed = false;
  for_lanes(lanes, [&](int lane) {
    uint32_t address = 0;
    AsyncUnits* units = owner(warp, i, lane, &address);
    if (units == nullptr) return;
    const Party by = cluster_->party(warp.site(i, lane));
    const bool done = o.parity != kNoRow ? units->mbarriers_.test_parity(by, address, warp.u32(o.parity)[lane])
                                         : units->mbarriers_.test_phase(by, address, warp.u64(o.state)[lane]);
    Mask& result = warp.predicate(o.done);
    result = done ? result | 1u << lane : result & ~(1u << lane);
    failed = failed || !done;
  });
  if (!failed) return;
  // What polls with test_wait may have other things to do meanwhile.
  if (i.opcode == Opcode::mbarrier_try_wait)
    warp.wait_for_event();
  else
    warp.yield();
}

void AsyncUnits::execute_copy(Warp& warp, const Instruction& i, int lane) {
  const Party by = cluster_->party(warp.site(i, lane));
  switch (i.opcode) {
    case Opcode::bulk_tensor_load: copies_.load_tensor(warp, i, lane); break;
    case Opcode::bulk_load: copies_.load_bytes(warp, i, lane); break;
    case Opcode::bulk_tensor_store:
    case Opcode::bulk_tensor_reduce: copies_.store_tensor(warp, i, lane); break;
    case Opcode::bulk_store:
    case Opcode::bulk_reduce: copies_.store_bytes(warp, i, lane); break;
    case Opcode::bulk_commit: copies_.commit(by); break;
    case Opcode::bulk_wait: copies_.wait(by, i.async->groups, i.async->read); break;
    default: STEPC_UNREACHABLE("not a bulk copy");
  }
}

void AsyncUnits::execute_fence(Warp& warp, const Instruction& i, int lane) {
  const Party by = cluster_->party(warp.site(i, lane));
  if (i.opcode == Opcode::fence_proxy_async && i.async->space != Space::global) {
    cluster_->fence(by);
    if (warp.has_open_loads()) open_loads_[static_cast<size_t>(warp.index())].fence(lane);
  }
  if (i.opcode == Opcode::fence_mbarrier_init || i.async->space != Space::global) mbarriers_.fence(by);
}

void AsyncUnits::execute_wgmma(Warp& warp, const Instruction& i) {
  Wgmma& unit = wgmma_[static_cast<size_t>(warp.index())];
  switch (i.opcode) {
    case Opcode::wgmma_mma: unit.issue(warp, i); break;
    case Opcode::wgmma_fence: unit.fence(warp); break;
    case Opcode::wgmma_commit: unit.commit(); break;
    case Opcode::wgmma_wait: unit.wait(warp, i.async->groups); break;
    default: STEPC_UNREACHABLE("not wgmma");
  }
}

// ---- the scheduler's calls

bool AsyncUnits::advance() { return copies_.advance(cta_.random()); }

void AsyncUnits::finish() {
  copies_.finish();
  for (const Warpgroup& group : warpgroups_)
    if (const Warpgroup::Entry* left = group.unmatched())
      cta_.fault({FaultKind::incomplete, left->first, "is executed by only some warps of its warpgroup", {}, {}});
  if (!cta_.stopped()) mbarriers_.report_unbalanced(FaultKind::incomplete, "at the end of the kernel");
}

void AsyncUnits::on_shared_read(uint32_t address, uint32_t bytes, const Site& by) {
  shadow_.read(cluster_->party(by), address, bytes);
  if (open_loads_.empty()) return;
  AsyncUnits& loader = peer(cta_.rank() + static_cast<int>(by.cta - cta_.index()));
  loader.open_loads_[static_cast<size_t>(by.warp)].add_bytes(shadow_, address, bytes);
}

void AsyncUnits::on_shared_loads(Warp& warp, const Instruction& i, Mask lanes) {
  if (open_loads_.empty()) return;
  OpenLoads& loads = open_loads_[static_cast<size_t>(warp.index())];
  loads.open(i, lanes);
  warp.set_open_loads(!loads.empty());
}

void AsyncUnits::on_registers(Warp& warp, const Instruction& i) {
  OpenLoads& loads = open_loads_[static_cast<size_t>(warp.index())];
  loads.use(i);
  warp.set_open_loads(!loads.empty());
}

void AsyncUnits::on_shared_write(uint32_t address, uint32_t bytes, const Site& by) {
  shadow_.write(cluster_->party(by), address, bytes);
}

void AsyncUnits::on_shared_atomic(uint32_t address, uint32_t bytes, const Site& by) {
  shadow_.read(cluster_->party(by), address, bytes, true);
  shadow_.write(cluster_->party(by), address, bytes, true);
}

void AsyncUnits::on_copy_issued(uint32_t address, const Site& by) { shadow_.begin_copy(cluster_->party(by), address); }

void AsyncUnits::on_copy_complete(uint32_t address, const Site& by) {
  shadow_.complete_copy(cluster_->party(by), address);
}

void AsyncUnits::on_barrier_arrive(Warp& warp, int id) {
  cluster_->clocks.release(cluster_->agent(warp), id < 0 ? &cluster_->barrier : &barriers_[static_cast<size_t>(id)]);
}

void AsyncUnits::on_barrier_release(Warp& warp, int id) {
  cluster_->clocks.acquire(cluster_->agent(warp), id < 0 ? cluster_->barrier : barriers_[static_cast<size_t>(id)]);
}

// Lanes of a warp count as ordered anyway.
void AsyncUnits::on_warp_sync(Warp&) {}

void AsyncUnits::on_exit(Warp& warp, Mask lanes) {
  if ((warp.live() & ~lanes) != 0) return;
  wgmma_[static_cast<size_t>(warp.index())].finish(warp);
  if (!open_loads_.empty()) open_loads_[static_cast<size_t>(warp.index())].close_all();
}

std::string AsyncUnits::explain_wait(Warp& warp, const Instruction& i, int lane) {
  if (i.opcode != Opcode::mbarrier_test_wait && i.opcode != Opcode::mbarrier_try_wait) return "";
  uint32_t local = 0;
  Cta* cta = cta_.locate_shared(warp.address(i.async->barrier, lane), &local);
  return cta == nullptr ? "" : static_cast<AsyncUnits&>(cta->units()).mbarriers_.explain(local);
}

bool AsyncUnits::report_stuck() {
  return mbarriers_.report_unbalanced(FaultKind::mbarrier, "nothing can move any more");
}

}  // namespace stepc::emulator
