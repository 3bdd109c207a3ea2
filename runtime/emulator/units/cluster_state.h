// What the units of a cluster's CTAs share: clocks, and the log of proxy fences.
#pragma once

#include <vector>

#include "runtime/emulator/cta.h"
#include "runtime/emulator/units/clocks.h"

namespace stepc::emulator {

// A Site in 8 bytes, for shadow cells: a warp of the cluster, a lane, an index into the kernel's code.
struct Party {
  uint32_t instruction = 0;
  Agent agent = kNoAgent;
  int16_t lane = -1;
};

class ClusterState {
 public:
  explicit ClusterState(Cta& first)
      : clocks(first.cluster_size() * static_cast<int>(first.warps().size())),
        kernel_(&first.kernel()),
        first_cta_(first.index()),
        warps_per_cta_(static_cast<int>(first.warps().size())),
        fences_(static_cast<size_t>(clocks.warps()) * kLanes) {}

  Clocks clocks;
  VectorClock barrier;  // of barrier.cluster

  Agent agent(const Warp& warp) const { return static_cast<Agent>(warp.cta().rank() * warps_per_cta_ + warp.index()); }
  Party party(const Site& site) const {
    const int rank = static_cast<int>(site.cta - first_cta_);
    return {static_cast<uint32_t>(site.at - kernel_->code.data()),
            static_cast<Agent>(rank * warps_per_cta_ + site.warp), site.lane};
  }
  Site site(const Party& party) const {
    return {kernel_, &kernel_->code[party.instruction],
            first_cta_ + static_cast<uint32_t>(party.agent / warps_per_cta_),
            static_cast<int16_t>(party.agent % warps_per_cta_), party.lane};
  }

  // ---- fence.proxy.async, by thread of the cluster. A write remembers how many fences its thread had executed;
  // it is handed to the asynchronous proxy by the next one.
  static uint32_t thread(const Party& p) { return static_cast<uint32_t>(p.agent) * kLanes + (p.lane < 0 ? 0 : p.lane); }
  void fence(const Party& by) { fences_[thread(by)].push_back(clocks.epoch(by.agent)); }
  uint32_t fences(uint32_t thread) const { return static_cast<uint32_t>(fences_[thread].size()); }
  // Whether `reader` comes after the first fence that `writer` (a thread) executed after its first `before` ones.
  bool fence_seen(Agent reader, uint32_t writer, uint32_t before) const {
    if (fences_[writer].size() <= before) return false;
    const Agent by = static_cast<Agent>(writer / kLanes);
    return by == reader || clocks.seen(reader, by, fences_[writer][before]);
  }

 private:
  const Kernel* kernel_;
  uint32_t first_cta_;
  int warps_per_cta_;
  std::vector<std::vector<Epoch>> fences_;
};

}  // namespace stepc::emulator
