#include "runtime/staging.h"

#include <algorithm>

namespace stepc {
namespace {

constexpr int64_t kLargestStaged = int64_t{4} << 20;
constexpr int64_t kGapBytes = 4096;  // between ports of one copy: moving them takes less than a second copy
constexpr int64_t kAlignment = 64;

int64_t distance(DeviceAddress from, DeviceAddress to) {
  return static_cast<int64_t>(static_cast<uint64_t>(to) - static_cast<uint64_t>(from));
}

}  // namespace

Staging plan_staging(const Plan& plan, const std::vector<PlanPort>& ports, const std::vector<DeviceAddress>& addresses,
                     bool join) {
  Staging staging;
  for (const PlanPort& port : ports) {
    const auto index = static_cast<size_t>(port.buffer);
    staging.ports.push_back({&port, &plan.buffers[index], addresses[index], -1});
  }
  std::vector<StagedPort*> order;
  for (StagedPort& port : staging.ports)
    if (port.buffer->bytes <= kLargestStaged) order.push_back(&port);
  if (join)
    std::stable_sort(order.begin(), order.end(),
                     [](const StagedPort* a, const StagedPort* b) { return a->address < b->address; });
  for (StagedPort* port : order) {
    const int64_t bytes = port->buffer->bytes;
    StagedPiece* last = staging.pieces.empty() ? nullptr : &staging.pieces.back();
    const int64_t offset = last ? distance(last->address, port->address) : 0;
    if (!(last && join && offset - last->bytes <= kGapBytes)) {
      staging.pieces.push_back({port->address, (staging.bytes + kAlignment - 1) / kAlignment * kAlignment, 0});
      last = &staging.pieces.back();
    }
    const int64_t at = distance(last->address, port->address);
    port->at = last->at + at;
    last->bytes = std::max(last->bytes, at + bytes);
    staging.bytes = last->at + last->bytes;
  }
  return staging;
}

}  // namespace stepc
