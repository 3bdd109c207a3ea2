// A program's inputs or outputs on their way between host and device. Small ones lie side by side in pinned memory of
// the host, so that few copies bring them all and nobody waits for these; large ones are copied by themselves.
#pragma once

#include <vector>

#include "ir/plan/plan.h"
#include "runtime/device.h"

namespace stepc {

struct StagedPort {
  const PlanPort* port = nullptr;
  const PlanBuffer* buffer = nullptr;
  DeviceAddress address = DeviceAddress::null;
  int64_t at = -1;  // in pinned memory; -1: copied by itself
};
struct StagedPiece {
  DeviceAddress address = DeviceAddress::null;
  int64_t at = 0;
  int64_t bytes = 0;
};
struct Staging {
  std::vector<StagedPort> ports;    // in the plan's order
  std::vector<StagedPiece> pieces;  // each one copy
  int64_t bytes = 0;                // of pinned memory
};

// `addresses` by buffer. With `join`, ports that lie near one another share a copy, which then brings what is between
// them too: right where that is memory of the same program's inputs and outputs.
Staging plan_staging(const Plan& plan, const std::vector<PlanPort>& ports, const std::vector<DeviceAddress>& addresses,
                     bool join);

}  // namespace stepc
