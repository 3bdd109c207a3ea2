#include "runtime/emulator/warp.h"

#include "ir/support/check.h"
#include "runtime/emulator/cluster.h"
#include "runtime/emulator/cta.h"

namespace stepc::emulator {

Warp::Warp(Cta& cta, int index, int threads) : cta_(&cta), index_(index) {
  const int lanes = std::min(threads - index * kLanes, kLanes);
  live_ = lanes == kLanes ? kAllLanes : (Mask{1} << lanes) - 1;
  registers_ = cta.cluster().initial_;
  predicates_.resize(cta.kernel().predicates);
  if (cta.kernel().uses_wgmma) {
    in_flight_.resize(cta.kernel().rows);
    written_at_.resize(cta.kernel().rows);
  }
  groups_.push_back({0, live_, GroupState::ready, 0});
}

Site Warp::site(const Instruction& at, int lane) const {
  return {&cta_->kernel(), &at, cta_->index(), static_cast<int16_t>(index_), static_cast<int16_t>(lane)};
}

void Warp::set_in_flight(Row row, const Instruction& by, bool reading) {
  InFlight& f = in_flight_[row];
  in_flight_count_ += f.count == 0;
  ++f.count;
  f.by = &by;
  f.reading = reading && (f.count == 1 || f.reading);
}

void Warp::clear_in_flight(Row row) {
  InFlight& f = in_flight_[row];
  STEPC_CHECK(f.count > 0, "row {} is not in flight", row);
  if (--f.count > 0) return;
  f = {};
  --in_flight_count_;
}

}  // namespace stepc::emulator
