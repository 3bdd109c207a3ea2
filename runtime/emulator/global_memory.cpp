#include "runtime/emulator/global_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace stepc::emulator {
namespace {

constexpr uint64_t kAlignment = 512;
constexpr uint64_t kGap = 1 << 16;

uint64_t bitmap_bytes(uint64_t bytes) { return bytes / 8 + 8; }

// Pages appear when they are touched.
uint8_t* map(uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
}

void unmap(const GlobalMemory::Allocation& a) {
  munmap(a.host, a.bytes);
  if (a.written) munmap(a.written, bitmap_bytes(a.bytes));
}

// Calls f(byte of the bitmap, mask) for the bits of bytes [offset, offset + bytes).
template <class F>
bool any_mask(const GlobalMemory::Allocation& a, uint64_t offset, uint32_t bytes, F&& f) {
  for (uint64_t at = offset; at < offset + bytes;) {
    const uint64_t in_byte = at % 8, count = std::min<uint64_t>(8 - in_byte, offset + bytes - at);
    if (f(std::atomic_ref<uint8_t>(a.written[at / 8]), static_cast<uint8_t>(((1u << count) - 1) << in_byte)))
      return true;
    at += count;
  }
  return false;
}

auto first_above(const std::vector<GlobalMemory::Allocation>& allocations, uint64_t address) {
  return std::upper_bound(allocations.begin(), allocations.end(), address,
                          [](uint64_t a, const GlobalMemory::Allocation& x) { return a < x.address; });
}

}  // namespace

GlobalMemory::~GlobalMemory() {
  for (const Allocation& a : allocations_) unmap(a);
}

bool GlobalMemory::place(uint64_t address, uint64_t bytes) {
  if (bytes == 0 || bytes > capacity_ - used_) return false;
  const Allocation fresh{address, bytes, map(bytes), map(bitmap_bytes(bytes))};
  if (!fresh.host || !fresh.written) {
    if (fresh.host) unmap(fresh);
    return false;
  }
  allocations_.insert(first_above(allocations_, address), fresh);
  used_ += bytes;
  return true;
}

uint64_t GlobalMemory::allocate(uint64_t bytes) {
  const uint64_t address = next_;
  if (!place(address, bytes)) return 0;
  std::memset(find(address, bytes)->host, 0xff, bytes);
  next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
  return address;
}

bool GlobalMemory::free(uint64_t address) {
  const auto it =
      std::find_if(allocations_.begin(), allocations_.end(), [&](const Allocation& a) { return a.address == address; });
  if (it == allocations_.end()) return false;
  unmap(*it);
  used_ -= it->bytes;
  allocations_.erase(it);
  return true;
}

void GlobalMemory::forget_writes() {
  for (const Allocation& a : allocations_) madvise(a.written, bitmap_bytes(a.bytes), MADV_DONTNEED);
}

void GlobalMemory::note_write(const Allocation& a, uint64_t offset, uint32_t bytes) {
  any_mask(a, offset, bytes, [](std::atomic_ref<uint8_t> bits, uint8_t mask) {
    if (mask == 0xff)
      bits.store(mask, std::memory_order_relaxed);
    else
      bits.fetch_or(mask, std::memory_order_relaxed);
    return false;
  });
}

bool GlobalMemory::was_written(const Allocation& a, uint64_t offset, uint32_t bytes) {
  return any_mask(a, offset, bytes, [](std::atomic_ref<uint8_t> bits, uint8_t mask) {
    return (bits.load(std::memory_order_relaxed) & mask) != 0;
  });
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
