// The scheduler: the warps of one cluster's CTAs take turns on one host thread. Which warp runs and for how long is
// random (launch.h), so that an order which nothing enforces does not look enforced.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/emulator/cta.h"
#include "runtime/emulator/launch.h"

namespace stepc::emulator {

// The registers of a fresh warp: constants in place, everything else a NaN that is no valid address either.
std::vector<uint32_t> initial_registers(const Kernel& kernel);

class Cluster {
 public:
  // `number` counts clusters through the grid, x fastest.
  Cluster(const Launch& launch, const std::vector<uint32_t>& registers, uint64_t number);

  void run();
  const std::optional<Fault>& fault() const { return fault_; }

 private:
  friend class Cta;
  friend class Warp;

  // ---- turns
  Warp* pick();
  bool runnable(const Warp& w) const;
  bool group_runnable(const LaneGroup& g) const;
  bool select_group(Warp& w);
  void turn(Warp& w);
  // Executes the instruction of group 0; false: the warp's turn ends.
  bool step(Warp& w);
  bool advance_units();

  // ---- one instruction
  bool gathered(Warp& w, const Instruction& i);
  bool whole(Warp& w, const Instruction& i, Mask lanes);
  void check_in_flight(Warp& w, const Instruction& i);
  void execute_units(Warp& w, const Instruction& i, Mask lanes);
  void execute_control(Warp& w, const Instruction& i, Mask lanes);
  void branch(Warp& w, const Instruction& i, Mask lanes);
  void exit_lanes(Warp& w, Mask lanes);
  void set_register_budget(Warp& w, const Instruction& i);
  void merge_groups(Warp& w);

  // ---- barriers
  void barrier(Warp& w, const Instruction& i, Mask lanes);
  bool uniform_value(Warp& w, const Instruction& i, Row row, Mask lanes, uint32_t* value);
  void release_barrier(Cta& cta, int id);
  void cluster_arrive(Warp& w, const Instruction& i);
  void cluster_wait(Warp& w, const Instruction& i);
  void check_cluster_barrier();
  void after_exit(Warp& w);

  // ---- the end
  void report_deadlock();
  bool report_mismatched_barrier(Cta& cta);
  std::string warp_position(Warp& w);
  void finish();
  void raise(FaultKind kind, const Site& at, std::string text);

  const Launch& launch_;
  const std::vector<uint32_t>& initial_;
  std::vector<std::unique_ptr<Cta>> ctas_;
  std::vector<Warp*> running_;
  Random random_;
  uint32_t next_ = 0;
  uint64_t events_ = 0;
  uint64_t since_change_ = 0;  // instructions since anything but registers changed
  std::optional<Fault> fault_;
  bool stopped_ = false;

  uint64_t cluster_phase_ = 1;
  size_t cluster_arrived_ = 0;  // warps
  std::vector<Warp*> cluster_waiting_;
};

}  // namespace stepc::emulator
