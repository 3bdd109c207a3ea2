#include "runtime/emulator/global_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace stepc::emulator {
namespace {

constexpr uint64_t kAlignment = 512;
constexpr uint64_t kGap = 1 << 16;

auto first_above(const std::vector<GlobalMemory::Allocation>& allocations, uint64_t address) {
  return std::upper_bound(allocations.begin(), allocations.end(), address,
                          [](uint64_t a, const GlobalMemory::Allocation& x) { return a < x.address; });
}

}  // namespace

GlobalMemory::~GlobalMemory() {
  for (const Allocation& a : allocations_) munmap(a.host, a.bytes);
}

uint64_t GlobalMemory::allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > capacity_ - used_) return 0;
  void* host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) return 0;
  std::memset(host, 0xff, bytes);
  const uint64_t address = next_;
  next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
  allocations_.push_back({address, bytes, static_cast<uint8_t*>(host)});
  used_ += bytes;
  return address;
}

bool GlobalMemory::free(uint64_t address) {
  const auto it =
      std::find_if(allocations_.begin(), allocations_.end(), [&](const Allocation& a) { return a.address == address; });
  if (it == allocations_.end()) return false;
  munmap(it->host, it->bytes);
  used_ -= it->bytes;
  allocations_.erase(it);
  return true;
}

const GlobalMemory::Allocation* GlobalMemory::find(uint64_t address, uint64_t bytes) const {
  const auto above = first_above(allocations_, address);
  if (above == allocations_.begin()) return nullptr;
  const Allocation& a = *std::prev(above);
  const uint64_t offset = address - a.address;
  return offset < a.bytes && bytes <= a.bytes - offset ? &a : nullptr;
}

std::string GlobalMemory::describe_miss(uint64_t address) const {
  const auto above = first_above(allocations_, address);
  if (above != allocations_.begin()) {
    const Allocation& a = *std::prev(above);
    const uint64_t past = address - a.address;
    if (past < a.bytes)
      return fmt::format("the allocation of {} bytes at {:#x} ends {} bytes further on", a.bytes, a.address,
                         a.bytes - past);
    if (past - a.bytes < kGap)
      return fmt::format("{} bytes past the end of the allocation of {} bytes at {:#x}", past - a.bytes, a.bytes,
                         a.address);
  }
  if (above != allocations_.end() && above->address - address < kGap)
    return fmt::format("{} bytes before the allocation of {} bytes at {:#x}", above->address - address, above->bytes,
                       above->address);
  return "no allocation is near";
}

}  // namespace stepc::emulator
