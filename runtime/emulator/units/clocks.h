// Who knows of whose doings: vector clocks, by warp and by mbarrier. A warp's *epoch* rises at each release (an
// arrival); a barrier's is the number of phases it has completed. `now(w).at(a) >= e` says that what agent a did up
// to its epoch e happened before what warp w does next. This is what finds a missing wait or arrive even in a
// schedule where it does no harm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stepc::emulator {

using Agent = uint16_t;
using Epoch = uint32_t;
inline constexpr Agent kNoAgent = 0xffff;

class VectorClock {
 public:
  Epoch at(Agent a) const { return a < epochs_.size() ? epochs_[a] : 0; }
  void raise(Agent a, Epoch e) {
    if (a >= epochs_.size()) epochs_.resize(a + size_t{1}, 0);
    epochs_[a] = std::max(epochs_[a], e);
  }
  void join(const VectorClock& other) {
    if (epochs_.size() < other.epochs_.size()) epochs_.resize(other.epochs_.size(), 0);
    for (size_t a = 0; a < other.epochs_.size(); ++a) epochs_[a] = std::max(epochs_[a], other.epochs_[a]);
  }
  void clear() { epochs_.clear(); }
  const Epoch* data() const { return epochs_.data(); }

 private:
  std::vector<Epoch> epochs_;
};

// The clocks of a cluster's warps: agents 0 .. warps - 1. Barriers become further agents.
class Clocks {
 public:
  explicit Clocks(int warps) : warps_(static_cast<size_t>(warps)), agents_(static_cast<Agent>(warps)) {
    for (int w = 0; w < warps; ++w) {
      warps_[w].raise(static_cast<Agent>(warps - 1), 0);  // data() then holds an entry for every warp
      warps_[w].raise(static_cast<Agent>(w), 1);
    }
  }

  Agent add_agent() { return agents_++; }
  int warps() const { return static_cast<int>(warps_.size()); }
  const VectorClock& now(Agent warp) const { return warps_[warp]; }
  Epoch epoch(Agent warp) const { return warps_[warp].at(warp); }
  bool seen(Agent warp, Agent by, Epoch e) const { return warps_[warp].at(by) >= e; }

  void release(Agent warp, VectorClock* into) {
    into->join(warps_[warp]);
    warps_[warp].raise(warp, epoch(warp) + 1);
  }
  void acquire(Agent warp, const VectorClock& from) { warps_[warp].join(from); }

 private:
  std::vector<VectorClock> warps_;
  Agent agents_;
};

}  // namespace stepc::emulator
