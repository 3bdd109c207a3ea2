// The asynchronous units of a CTA behind the core's seam (cta.h): hands each instruction to the unit it concerns and
// keeps what orders warps. A cluster's CTAs reach one another's units through peer().
#pragma once

#include <memory>
#include <vector>

#include "runtime/emulator/units/copies.h"
#include "runtime/emulator/units/mbarrier.h"
#include "runtime/emulator/units/open_loads.h"
#include "runtime/emulator/units/wgmma.h"

namespace stepc::emulator {

std::unique_ptr<Units> make_async_units(Cta& cta);
// Whether all threads of the CTA have exited; its shared memory must then be left alone.
bool has_exited(Cta& cta);

class AsyncUnits final : public Units {
 public:
  explicit AsyncUnits(Cta& cta);
  ~AsyncUnits() override;

  Outcome execute(Warp& warp, const Instruction& i, Mask lanes) override;
  bool advance() override;
  void finish() override;
  void on_shared_read(uint32_t address, uint32_t bytes, const Site& by) override;
  void on_shared_write(uint32_t address, uint32_t bytes, const Site& by) override;
  void on_shared_atomic(uint32_t address, uint32_t bytes, const Site& by) override;
  void on_shared_loads(Warp& warp, const Instruction& i, Mask lanes) override;
  void on_registers(Warp& warp, const Instruction& i) override;
  void on_copy_issued(uint32_t address, const Site& by) override;
  void on_copy_complete(uint32_t address, const Site& by) override;
  void on_barrier_arrive(Warp& warp, int id) override;
  void on_barrier_release(Warp& warp, int id) override;
  void on_warp_sync(Warp& warp) override;
  void on_exit(Warp& warp, Mask lanes) override;
  std::string explain_wait(Warp& warp, const Instruction& i, int lane) override;
  bool report_stuck() override;

  Cta& cta() { return cta_; }
  AsyncUnits& peer(int rank);
  Mbarriers& mbarriers() { return mbarriers_; }
  Shadow& shadow() { return shadow_; }

 private:
  void execute_mbarrier(Warp& warp, const Instruction& i, int lane);
  void wait_mbarrier(Warp& warp, const Instruction& i, Mask lanes);
  void execute_copy(Warp& warp, const Instruction& i, int lane);
  void execute_fence(Warp& warp, const Instruction& i, int lane);
  void execute_wgmma(Warp& warp, const Instruction& i);
  // The units that own the address of an mbarrier operand, and its address there; nullptr after a fault.
  AsyncUnits* owner(Warp& warp, const Instruction& i, int lane, uint32_t* local);

  Cta& cta_;
  std::shared_ptr<ClusterState> cluster_;
  Shadow shadow_;
  Mbarriers mbarriers_;
  Copies copies_;
  std::vector<Warpgroup> warpgroups_;
  std::vector<Wgmma> wgmma_;           // by warp
  std::vector<OpenLoads> open_loads_;  // by warp; empty in kernels without bulk loads
  std::vector<VectorClock> barriers_;  // of bar.sync ids
};

}  // namespace stepc::emulator
