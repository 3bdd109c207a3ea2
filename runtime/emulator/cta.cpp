#include "runtime/emulator/cta.h"

#include <fmt/format.h>

#include "runtime/emulator/cluster.h"

namespace stepc::emulator {

int Cta::cluster_size() const { return static_cast<int>(cluster_->ctas_.size()); }

Cta& Cta::peer(int rank) { return *cluster_->ctas_[rank]; }

Cta* Cta::locate_shared(uint64_t address, uint32_t* local) {
  *local = static_cast<uint32_t>(address % kClusterStride);
  const uint64_t window = address / kClusterStride;
  if (window == 0) return this;
  return window <= cluster_->ctas_.size() ? cluster_->ctas_[window - 1].get() : nullptr;
}

uint8_t* Cta::global(uint64_t address, uint32_t bytes, uint32_t alignment, const Site& by) {
  const GlobalMemory& memory = *cluster_->launch_.memory;
  if (!last_allocation_ || address - last_allocation_->address >= last_allocation_->bytes ||
      bytes > last_allocation_->bytes - (address - last_allocation_->address))
    last_allocation_ = memory.find(address, bytes);
  if (!last_allocation_) {
    fault({FaultKind::address,
           by,
           fmt::format("{} bytes at global address {:#x}: {}", bytes, address, memory.describe_miss(address)),
           {},
           {}});
    return nullptr;
  }
  if (address % alignment != 0) {
    fault({FaultKind::misaligned,
           by,
           fmt::format("{} bytes at global address {:#x}, which is no multiple of {}", bytes, address, alignment),
           {},
           {}});
    return nullptr;
  }
  return last_allocation_->host + (address - last_allocation_->address);
}

void Cta::note_global_write(uint64_t address, uint32_t bytes) {
  if (kernel_->noncoherent_loads)
    GlobalMemory::note_write(*last_allocation_, address - last_allocation_->address, bytes);
}

bool Cta::written_by_launch(uint64_t address, uint32_t bytes) const {
  return GlobalMemory::was_written(*last_allocation_, address - last_allocation_->address, bytes);
}

const uint8_t* Cta::constant(uint64_t address, uint32_t bytes, uint32_t alignment, const Site& by) {
  if (address >> 32 != kParamWindow >> 32) return global(address, bytes, alignment, by);
  const uint64_t offset = address - kParamWindow;
  const std::vector<uint8_t>& parameters = cluster_->launch_.parameters;
  if (offset + bytes > parameters.size()) {
    fault({FaultKind::address,
           by,
           fmt::format("{} bytes at offset {} of {} bytes of parameters", bytes, offset, parameters.size()),
           {},
           {}});
    return nullptr;
  }
  if (offset % alignment != 0) {
    fault({FaultKind::misaligned,
           by,
           fmt::format("{} bytes at offset {} of the parameters, which is no multiple of {}", bytes, offset, alignment),
           {},
           {}});
    return nullptr;
  }
  return parameters.data() + offset;
}

void Cta::event() {
  ++cluster_->events_;
  cluster_->since_change_ = 0;
}

void Cta::note_store() { cluster_->since_change_ = 0; }

void Cta::fault(Fault fault) {
  if (!cluster_->fault_) cluster_->fault_ = std::move(fault);
  cluster_->stopped_ = true;
}

bool Cta::stopped() const { return cluster_->stopped_; }

}  // namespace stepc::emulator
