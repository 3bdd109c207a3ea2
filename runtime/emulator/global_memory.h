// The emulated device's memory: allocations at addresses of their own (not the host's), with gaps between them, so
// that a stray pointer meets no live allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace stepc::emulator {

class GlobalMemory {
 public:
  explicit GlobalMemory(uint64_t capacity) : capacity_(capacity) {}
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;

  struct Allocation {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint8_t* host = nullptr;
    uint8_t* written = nullptr;  // a bit for each byte: written by the launch that runs (note_write)
  };

  // 0: not enough left. Fresh bytes are 0xff: NaN as bf16 and as f32.
  uint64_t allocate(uint64_t bytes);
  // The same at an address below all that allocate gives, and of zeros: a module's variable.
  bool place(uint64_t address, uint64_t bytes);
  bool free(uint64_t address);
  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return used_; }

  // What a launch has written, for kernels with loads that must not see it. Threads may note and ask at once.
  void forget_writes();
  static void note_write(const Allocation& allocation, uint64_t offset, uint32_t bytes);
  static bool was_written(const Allocation& allocation, uint64_t offset, uint32_t bytes);

  // The allocation that holds all of [address, address + bytes), or nullptr. Not to be called while another thread
  // allocates or frees: a launch holds the allocations as they are.
  const Allocation* find(uint64_t address, uint64_t bytes) const;
  // "the nearest allocation is 4096 bytes at 0x10000, 16 bytes below".
  std::string describe_miss(uint64_t address) const;

 private:
  uint64_t capacity_;
  uint64_t used_ = 0;
  uint64_t next_ = 0x0000'7000'0000'0000;
  std::vector<Allocation> allocations_;  // by address
};

}  // namespace stepc::emulator
