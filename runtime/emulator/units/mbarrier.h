// The mbarriers of a CTA. A phase completes when its arrivals are all in and the bytes that copies brought equal the
// bytes that were expected. Beside the counts, a barrier knows the copies under way to it, who arrived, and what its
// completed phases order; so wrong counts are reported when they happen, not when something hangs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/emulator/units/shadow.h"

namespace stepc::emulator {

struct Mbarrier {
  uint32_t count = 0;
  uint32_t pending = 0;  // arrivals that the phase still lacks
  int64_t tx = 0;        // bytes expected less bytes brought
  int64_t landing = 0;   // bytes of copies issued in this phase and still under way
  uint64_t phase = 0;    // phases completed
  Agent agent = kNoAgent;
  VectorClock gathering;  // of this phase's arrivals
  VectorClock completed;

  Party init;  // who initialised it, when, and when that was fenced (0: not yet)
  Epoch init_epoch = 0;
  Epoch fence_epoch = 0;
  std::vector<Party> arrivals;  // of this phase
  std::vector<Party> previous;
};

class Mbarriers {
 public:
  Mbarriers(Cta& cta, ClusterState& cluster, Shadow& shadow) : cta_(cta), cluster_(cluster), shadow_(shadow) {}

  void init(const Party& by, uint32_t address, uint32_t count);
  void invalidate(const Party& by, uint32_t address);
  // fence.mbarrier_init, or a proxy fence: what the thread has initialised may now be handed on.
  void fence(const Party& by);

  // Returns the phase arrived at. `expected` bytes are added first.
  uint64_t arrive(const Party& by, uint32_t address, uint32_t count, uint32_t expected);
  void expect(const Party& by, uint32_t address, uint32_t bytes);
  bool test_parity(const Party& by, uint32_t address, uint32_t parity);
  bool test_phase(const Party& by, uint32_t address, uint64_t phase);

  // A copy that will bring so many bytes has been issued; the barrier (nullptr after a fault).
  Mbarrier* copy_issued(const Party& by, uint32_t address, uint32_t bytes);
  void copy_landed(const Party& by, uint32_t address, uint32_t bytes);
  const Mbarrier* find(uint32_t address) const {
    const auto found = barriers_.find(address);
    return found == barriers_.end() ? nullptr : &found->second;
  }

  // "mbarrier at +196608, phase 3: 1 of 8 arrivals missing ...".
  std::string explain(uint32_t address) const;
  // A barrier whose bytes will never complete, now that nothing is under way; false: none.
  bool report_unbalanced(FaultKind kind, const char* when);

 private:
  // The barrier, if `by` may use it; else a fault and nullptr. `by_others`: by a copy, or from another CTA.
  Mbarrier* use(const Party& by, uint32_t address, bool by_others);
  void check_balance(const Party& by, uint32_t address, Mbarrier& b);
  void complete_if_due(const Party& by, uint32_t address, Mbarrier& b);
  bool from_peer(const Party& by) const;
  void fault(const Party& by, std::string text);
  void fault(FaultKind kind, const Party& by, std::string text, const Party& other, std::string other_text);
  std::string parties(const std::vector<Party>& list) const;

  Cta& cta_;
  ClusterState& cluster_;
  Shadow& shadow_;
  std::map<uint32_t, Mbarrier> barriers_;  // by address; some tens of them
};

}  // namespace stepc::emulator
