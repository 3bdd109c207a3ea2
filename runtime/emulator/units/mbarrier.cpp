#include "runtime/emulator/units/mbarrier.h"

#include <fmt/format.h>

namespace stepc::emulator {
namespace {

constexpr uint32_t kMaxCount = (1u << 20) - 1;  // of arrivals, and of bytes

std::string name(uint32_t address) { return fmt::format("mbarrier at +{}", address - kSharedBase); }

}  // namespace

void Mbarriers::fault(const Party& by, std::string text) {
  cta_.fault({FaultKind::mbarrier, cluster_.site(by), std::move(text), {}, {}});
}

void Mbarriers::fault(FaultKind kind, const Party& by, std::string text, const Party& other, std::string other_text) {
  cta_.fault({kind, cluster_.site(by), std::move(text), cluster_.site(other), std::move(other_text)});
}

bool Mbarriers::from_peer(const Party& by) const { return cluster_.site(by).cta != cta_.index(); }

// ---- life

void Mbarriers::init(const Party& by, uint32_t address, uint32_t count) {
  if (address % 8 != 0 || !cta_.shared_contains(address, 8))
    return fault(by, fmt::format("{}: not 8 aligned bytes of shared memory", name(address)));
  if (count < 1 || count > kMaxCount)
    return fault(by, fmt::format("{} initialised with {} arrivals", name(address), count));
  if (const auto old = barriers_.find(address); old != barriers_.end())
    return fault(FaultKind::mbarrier, by, fmt::format("{} initialised twice", name(address)), old->second.init,
                 "first initialised by");
  shadow_.write(by, address, 8);
  shadow_.set_barrier(address, true);
  Mbarrier& b = barriers_[address];
  b.count = b.pending = count;
  b.agent = cluster_.clocks.add_agent();
  b.init = by;
  b.init_epoch = cluster_.clocks.epoch(by.agent);
}

void Mbarriers::invalidate(const Party& by, uint32_t address) {
  if (use(by, address, false) == nullptr) return;
  barriers_.erase(address);
  shadow_.set_barrier(address, false);
  shadow_.write(by, address, 8);
}

void Mbarriers::fence(const Party& by) {
  for (auto& [address, b] : barriers_)
    if (b.fence_epoch == 0 && ClusterState::thread(b.init) == ClusterState::thread(by))
      b.fence_epoch = cluster_.clocks.epoch(by.agent);
}

Mbarrier* Mbarriers::use(const Party& by, uint32_t address, bool by_others) {
  const auto found = barriers_.find(address);
  if (found == barriers_.end()) {
    fault(by, fmt::format("uses {}, which is not initialised", name(address)));
    return nullptr;
  }
  Mbarrier& b = found->second;
  const Agent owner = b.init.agent;
  if (owner != by.agent && !cluster_.clocks.seen(by.agent, owner, b.init_epoch)) {
    fault(FaultKind::mbarrier, by,
          fmt::format("uses {}, and no barrier orders that after its initialisation", name(address)), b.init,
          "initialised by");
    return nullptr;
  }
  const bool fenced = b.fence_epoch != 0 && (owner == by.agent || cluster_.clocks.seen(by.agent, owner, b.fence_epoch));
  if (by_others && !fenced) {
    fault(FaultKind::proxy_fence, by,
          fmt::format("hands {} to {}, and the initialising thread did not execute fence.mbarrier_init (or "
                      "fence.proxy.async) before the barrier between the two",
                      name(address), from_peer(by) ? "another CTA" : "a copy"),
          b.init, "initialised by");
    return nullptr;
  }
  return &b;
}

// ---- counting

// With all arrivals in, nobody can expect more bytes: copies must not bring more than are expected.
void Mbarriers::check_balance(const Party& by, uint32_t address, Mbarrier& b) {
  if (b.pending == 0 && b.landing > b.tx)
    fault(by, fmt::format("{}, phase {}: wrong byte count: copies under way bring {} bytes, and only {} are expected "
                          "before the phase completes",
                          name(address), b.phase, b.landing, b.tx));
}

void Mbarriers::complete_if_due(const Party& by, uint32_t address, Mbarrier& b) {
  check_balance(by, address, b);
  if (b.pending != 0 || b.tx != 0) return;
  ++b.phase;
  b.pending = b.count;
  b.completed.join(b.gathering);
  b.completed.raise(b.agent, static_cast<Epoch>(b.phase));
  b.gathering.clear();
  b.previous = std::move(b.arrivals);
  b.arrivals.clear();
  cta_.event();
}

uint64_t Mbarriers::arrive(const Party& by, uint32_t address, uint32_t count, uint32_t expected) {
  if (expected != 0) expect(by, address, expected);
  Mbarrier* b = use(by, address, from_peer(by));
  if (b == nullptr) return 0;
  if (count == 0 || count > b->pending) {
    const Party other = b->arrivals.empty() ? b->init : b->arrivals.back();
    fault(FaultKind::mbarrier, by,
          fmt::format("{}, phase {}: over-arrival: {} more arrivals, and {} of {} are still due ({} bytes outstanding)",
                      name(address), b->phase, count, b->pending, b->count, b->tx),
          other, "the last arrival was");
    return b->phase;
  }
  const uint64_t phase = b->phase;
  cluster_.clocks.release(by.agent, &b->gathering);
  b->pending -= count;
  b->arrivals.push_back(by);
  complete_if_due(by, address, *b);
  return phase;
}

void Mbarriers::expect(const Party& by, uint32_t address, uint32_t bytes) {
  Mbarrier* b = use(by, address, from_peer(by));
  if (b == nullptr) return;
  b->tx += bytes;
  if (b->tx > int64_t{kMaxCount})
    fault(by, fmt::format("{}, phase {}: {} bytes expected, more than 2^20 - 1", name(address), b->phase, b->tx));
}

Mbarrier* Mbarriers::copy_issued(const Party& by, uint32_t address, uint32_t bytes) {
  Mbarrier* b = use(by, address, true);
  if (b == nullptr) return nullptr;
  b->landing += bytes;
  check_balance(by, address, *b);
  return b;
}

void Mbarriers::copy_landed(const Party& by, uint32_t address, uint32_t bytes) {
  const auto found = barriers_.find(address);
  if (found == barriers_.end())
    return fault(by, fmt::format("{} was invalidated while a copy to it was under way", name(address)));
  Mbarrier& b = found->second;
  b.tx -= bytes;
  b.landing -= bytes;
  complete_if_due(by, address, b);
}

// ---- waiting

bool Mbarriers::test_parity(const Party& by, uint32_t address, uint32_t parity) {
  Mbarrier* b = use(by, address, false);
  if (b == nullptr || (b->phase & 1) == (parity & 1)) return false;
  cluster_.clocks.acquire(by.agent, b->completed);
  return true;
}

bool Mbarriers::test_phase(const Party& by, uint32_t address, uint64_t phase) {
  Mbarrier* b = use(by, address, false);
  if (b == nullptr || b->phase <= phase) return false;
  cluster_.clocks.acquire(by.agent, b->completed);
  return true;
}

// ---- reports

std::string Mbarriers::parties(const std::vector<Party>& list) const {
  std::string text;
  for (const Party& p : list) {
    const Site site = cluster_.site(p);
    if (!text.empty()) text += ", ";
    text += site.cta == cta_.index() ? fmt::format("warp {}", site.warp)
                                     : fmt::format("CTA {} warp {}", site.cta, site.warp);
  }
  return text.empty() ? "nobody" : text;
}

std::string Mbarriers::explain(uint32_t address) const {
  const auto found = barriers_.find(address);
  if (found == barriers_.end()) return fmt::format("{}: not initialised", name(address));
  const Mbarrier& b = found->second;
  std::string text = fmt::format("{}, phase {}: {} of {} arrivals missing", name(address), b.phase, b.pending, b.count);
  if (b.tx > 0)
    text += fmt::format(", {} bytes expected that {} copies", b.tx, b.landing > 0 ? "wait for" : "never came by");
  if (b.tx < 0) text += fmt::format(", {} bytes more than expected", -b.tx);
  text += fmt::format("; arrived: {}", parties(b.arrivals));
  if (b.phase > 0) text += fmt::format("; in the phase before: {}", parties(b.previous));
  return text;
}

bool Mbarriers::report_unbalanced(FaultKind kind, const char* when) {
  for (const auto& [address, b] : barriers_) {
    if (b.tx == 0) continue;
    const Party by = b.arrivals.empty() ? b.init : b.arrivals.back();
    cta_.fault({kind,
                cluster_.site(by),
                fmt::format("{}, phase {}: wrong byte count: {}, {} bytes {}", name(address), b.phase, when,
                            b.tx > 0 ? b.tx : -b.tx,
                            b.tx > 0 ? "are expected and no copy brings them" : "more than expected have come"),
                {},
                {}});
    return true;
  }
  return false;
}

}  // namespace stepc::emulator
