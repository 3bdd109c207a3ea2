// A CTA as the handlers and the asynchronous units see it, and the seam between the two: `Units` is implemented in
// units/, everything else by the core. A CTA and its cluster run on one host thread; only global memory is shared
// between threads.
//
// The scheduler's contract: a handler or unit that cannot go on calls warp.wait_for_event() and leaves the registers
// as they must be (a failed try_wait: predicate false); the lanes run again after the next Cta::event(). When no
// warp of the cluster can run, and at random moments in between, the scheduler calls Units::advance(); when nothing
// is pending there either, the launch stops with a deadlock report. That try_wait may fail although its phase is
// complete is the core's doing, not the units'.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/emulator/fault.h"
#include "runtime/emulator/global_memory.h"
#include "runtime/emulator/instruction.h"
#include "runtime/emulator/warp.h"

namespace stepc::emulator {

class Cluster;
class Cta;

// Shared addresses are 32-bit. A CTA's own window starts at kSharedBase; an address in .shared::cluster of the CTA
// with rank r is the same offset plus (r + 1) * kClusterStride. Generic addresses have these windows too.
inline constexpr uint32_t kSharedBase = 1024;
inline constexpr uint32_t kClusterStride = 0x01000000;
inline constexpr uint64_t kSharedWindow = 0x0000'0001'0000'0000;  // generic = window + shared address
inline constexpr uint64_t kParamWindow = 0x0000'0002'0000'0000;   // generic = window + offset

// What a warp does after an instruction of the units.
enum class Outcome : uint8_t { done, wait };  // wait: execute it again after the next event (the pc stays)

// The asynchronous state of one CTA. Addresses are offsets from the start of the CTA's shared bytes + kSharedBase,
// that is, as programs see them.
class Units {
 public:
  virtual ~Units() = default;

  // Executes an instruction whose opcode is one of the units'. `lanes` is not empty.
  virtual Outcome execute(Warp& warp, const Instruction& i, Mask lanes) = 0;
  // Lands some pending work; false: nothing is pending.
  virtual bool advance() = 0;
  // All threads of the CTA have exited: what is left pending is completed or reported.
  virtual void finish() = 0;

  // Ordinary accesses to this CTA's shared memory, before the bytes are read or written. `by` may belong to another
  // CTA of the cluster.
  virtual void on_shared_read(uint32_t address, uint32_t bytes, const Site& by) = 0;
  virtual void on_shared_write(uint32_t address, uint32_t bytes, const Site& by) = 0;
  virtual void on_shared_atomic(uint32_t address, uint32_t bytes, const Site& by) = 0;
  // The reads since the last such call were all those of this load, which has just been executed. While a warp has
  // open loads (warp.h), each of its instructions is shown before it is executed.
  virtual void on_shared_loads(Warp& warp, const Instruction& i, Mask lanes) = 0;
  virtual void on_registers(Warp& warp, const Instruction& i) = 0;
  // A cp.async of 16 bytes: issued; and complete, which its thread knows by a wait.
  virtual void on_copy_issued(uint32_t address, const Site& by) = 0;
  virtual void on_copy_complete(uint32_t address, const Site& by) = 0;
  // What orders warps: a barrier's arrival (id 0..15; -1 the cluster's), and its release to this warp.
  virtual void on_barrier_arrive(Warp& warp, int id) = 0;
  virtual void on_barrier_release(Warp& warp, int id) = 0;
  // bar.warp.sync, and warp-wide instructions that order the lanes of a warp.
  virtual void on_warp_sync(Warp& warp) = 0;
  virtual void on_exit(Warp& warp, Mask lanes) = 0;

  // For the report of a deadlock: what the lane's failed wait lacks ("mbarrier at +196608, phase 3: 1 of 8 arrivals
  // missing ..."); "" if `i` is no wait of the units'.
  virtual std::string explain_wait(Warp& warp, const Instruction& i, int lane) = 0;
  // Nothing can move any more. If the units see why (byte counts that cannot come out), they report that fault,
  // which is better than a deadlock's, and return true. Asked of every CTA of the cluster.
  virtual bool report_stuck() = 0;
};

using UnitsFactory = std::unique_ptr<Units> (*)(Cta& cta);

class Cta {
 public:
  const Kernel& kernel() const { return *kernel_; }
  uint32_t index() const { return index_; }  // linear, in the grid
  int rank() const { return rank_; }         // in the cluster
  int cluster_size() const;
  Cta& peer(int rank);  // of the cluster; peer(rank()) is this one
  Cluster& cluster() { return *cluster_; }
  Units& units() { return *units_; }
  std::vector<std::unique_ptr<Warp>>& warps() { return warps_; }
  int threads() const { return threads_; }
  Random& random() { return random_; }     // of this CTA; its seed comes from the launch's
  bool stress() const { return stress_; }  // adversarial timing; off: everything lands at once

  // ---- shared memory: `address` as programs see it (kSharedBase and up)
  uint32_t shared_bytes() const { return static_cast<uint32_t>(shared_.size()); }
  bool shared_contains(uint32_t address, uint32_t bytes) const {
    return address >= kSharedBase && uint64_t{address} - kSharedBase + bytes <= shared_.size();
  }
  uint8_t* shared(uint32_t address) { return shared_.data() + (address - kSharedBase); }
  // Splits an address of .shared or .shared::cluster into CTA and address there; nullptr: no such CTA.
  Cta* locate_shared(uint64_t address, uint32_t* local);

  // ---- global memory and parameters: the bytes behind a generic or global address, or nullptr after a fault
  uint8_t* global(uint64_t address, uint32_t bytes, uint32_t alignment, const Site& by);
  // A store to bytes that `global` has just given; and whether this launch has written any of such bytes. Both only
  // matter in kernels with loads that promise it has not (ld.global.nc).
  void note_global_write(uint64_t address, uint32_t bytes);
  bool written_by_launch(uint64_t address, uint32_t bytes) const;
  // Bytes that a launch cannot change: parameters, or global memory. For tensor maps.
  const uint8_t* constant(uint64_t address, uint32_t bytes, uint32_t alignment, const Site& by);

  // ---- events and faults
  // Something that a waiting warp may wait for has happened: a phase flipped, bytes landed.
  void event();
  // Ordinary memory has changed; only says that the cluster is alive.
  void note_store();
  // Records a fault and stops the cluster after the current instruction. The first one counts.
  void fault(Fault fault);
  bool stopped() const;

 private:
  friend class Cluster;
  friend class Warp;

  const Kernel* kernel_ = nullptr;
  Cluster* cluster_ = nullptr;
  uint32_t index_ = 0;
  int rank_ = 0;
  int threads_ = 0;
  bool stress_ = true;
  Random random_;
  std::vector<uint8_t> shared_;
  int free_registers_ = 0;  // of the SM's, for setmaxnreg
  const GlobalMemory::Allocation* last_allocation_ = nullptr;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::unique_ptr<Units> units_;

  struct NamedBarrier {
    uint32_t expected = 0;  // threads, when somebody has arrived
    uint32_t arrived = 0;
    bool everybody = false;  // no count given: all warps that have not exited
    std::vector<Warp*> waiting;
    Site first;
    uint32_t previous = 0;  // threads of its last use; 0: none yet
  };
  NamedBarrier barriers_[16];
};

}  // namespace stepc::emulator
