// One launch of a kernel: its clusters over the threads of a pool. The same seed gives the same bits, however many
// threads there are: each cluster draws from its own random numbers, and a kernel with atomics on global memory runs
// its clusters one after another, in an order that the seed chooses.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/support/thread_pool.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/global_memory.h"
#include "runtime/emulator/instruction.h"

namespace stepc::emulator {

// Of one CTA, static and dynamic: what sm_90 has less what it keeps.
inline constexpr int kMaxSharedBytes = 227 * 1024;

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Launch {
  const Kernel* kernel = nullptr;
  Dim3 grid, block, cluster;
  uint32_t dynamic_shared_bytes = 0;
  std::vector<uint8_t> parameters;  // kernel->parameter_bytes
  GlobalMemory* memory = nullptr;
  uint64_t seed = 1;
  bool stress = true;  // adversarial timing; false: warps take long turns and nothing is late
  uint32_t sm_count = 4;
  // A cluster that executes this many instructions without a store, an arrival or a landing hangs.
  uint64_t patience = 50'000'000;
};

// Runs it to the end, or to a fault: that of the first cluster (in the launch's order) that has one.
std::optional<Fault> run_launch(const Launch& launch, ThreadPool& pool);

}  // namespace stepc::emulator
