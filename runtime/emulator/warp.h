// The state of a warp: registers, predicates, and its groups of lanes. Lanes that stand at the same instruction
// form a group; a divergent branch splits one, and groups that meet at one place merge. Handlers get the warp, the
// instruction and the lanes to execute for.
#pragma once

#include <bit>
#include <cstring>
#include <deque>
#include <vector>

#include "runtime/emulator/fault.h"
#include "runtime/emulator/instruction.h"

namespace stepc::emulator {

class Cta;

// splitmix64: every choice of the schedule comes from one of these.
class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
  bool one_in(uint32_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

enum class GroupState : uint8_t {
  ready,
  waiting_lanes,    // at an instruction that needs lanes of other groups
  waiting_event,    // a wait failed: nothing changes before the next event of the cluster
  waiting_barrier,  // bar.sync, barrier.cluster.wait
};

struct LaneGroup {
  uint32_t pc = 0;
  Mask lanes = 0;
  GroupState state = GroupState::ready;
  uint64_t event = 0;  // the cluster's event count when the wait failed
};

// A cp.async on its way.
struct SimpleCopy {
  uint32_t shared = 0;
  uint64_t global = 0;
  uint32_t bytes = 0;
  uint32_t source_bytes = 0;  // the rest becomes zero
  const Instruction* by = nullptr;
  int16_t lane = 0;
  bool moved = false;  // the bytes are there; their thread does not know it yet
};
struct PendingCopies {
  std::vector<SimpleCopy> open;
  std::deque<std::vector<SimpleCopy>> groups;  // committed
};
void complete(Warp& warp, const SimpleCopy& copy);
void land_copies(Warp& warp, Mask lanes);  // all that these lanes have on the way

class Warp {
 public:
  Warp(Cta& cta, int index, int threads);

  Cta& cta() { return *cta_; }
  const Cta& cta() const { return *cta_; }
  int index() const { return index_; }  // in the CTA
  Mask live() const { return live_; }   // lanes that have not exited
  Site site(const Instruction& at, int lane = -1) const;

  // ---- registers: 32 values, one a lane
  uint32_t* u32(Row row) { return registers_.data() + static_cast<size_t>(row) * kLanes; }
  uint64_t* u64(Row row) { return reinterpret_cast<uint64_t*>(u32(row)); }
  float f32(Row row, int lane) { return std::bit_cast<float>(u32(row)[lane]); }
  Mask& predicate(Predicate p) { return predicates_[p]; }
  uint64_t address(const Address& a, int lane) {
    return (a.wide ? u64(a.base)[lane] : u32(a.base)[lane]) + static_cast<uint64_t>(a.offset);
  }

  // ---- rows owned by an asynchronous operation (wgmma): an ordinary instruction that reads or writes a row in
  // flight is a fault. `reading` rows (A operands) may be read.
  void set_in_flight(Row row, const Instruction& by, bool reading);
  void clear_in_flight(Row row);
  bool any_in_flight() const { return in_flight_count_ != 0; }
  const Instruction* in_flight_by(Row row) const { return in_flight_[row].by; }
  // Whether an ordinary instruction wrote the row since the last wgmma.fence of this warp.
  bool written_since_fence(Row row) const { return written_at_[row] == fence_epoch_; }
  void fence_registers() { ++fence_epoch_; }
  void mark_written(Row row) { written_at_[row] = fence_epoch_; }

  // ---- loads from shared memory that may still be under way: the units want to know what uses their registers
  bool has_open_loads() const { return open_loads_; }
  void set_open_loads(bool any) { open_loads_ = any; }

  // ---- cp.async
  bool has_copies() const { return !copies_.empty(); }
  PendingCopies& pending_copies(int lane) {
    if (copies_.empty()) copies_.resize(kLanes);
    return copies_[lane];
  }

  // ---- what a handler can ask of the scheduler
  // The lanes now executing failed to get what they wait for: nothing to do before the next event.
  void wait_for_event() { wait_failed_ = true; }
  // Ends the warp's turn.
  void yield() { yield_ = true; }

 private:
  friend class Cluster;
  friend class Cta;

  struct InFlight {
    const Instruction* by = nullptr;
    bool reading = false;
    uint16_t count = 0;
  };

  Cta* cta_;
  int index_;
  Mask live_;
  std::vector<uint32_t> registers_;
  std::vector<Mask> predicates_;
  std::vector<InFlight> in_flight_;
  int in_flight_count_ = 0;
  std::vector<uint32_t> written_at_;
  uint32_t fence_epoch_ = 1;

  std::vector<PendingCopies> copies_;
  std::vector<LaneGroup> groups_;  // [0] runs
  int register_budget_ = 0;        // a thread's, moved by setmaxnreg; 0: not stated at entry
  uint64_t cluster_phase_ = 0;     // of the cluster barrier, at this warp's arrival; 0: not arrived
  bool open_loads_ = false;
  bool wait_failed_ = false;
  bool yield_ = false;
};

}  // namespace stepc::emulator
