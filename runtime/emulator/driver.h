// The CUDA driver's calls, answered by the emulator: the CUDA device (runtime/cuda) runs on it unchanged.
#pragma once

#include <cstdint>

#include "runtime/cuda/driver.h"

namespace stepc {

struct EmulatorOptions {
  uint64_t seed = 1;   // of every choice the hardware would make; the same seed gives the same bits
  bool stress = true;  // adversarial timing (docs/emulator.md); off: faster, everything happens at once
  int threads = 0;     // host threads; 0: one per processor
  uint32_t sm_count = 4;
  uint64_t memory_bytes = uint64_t{4} << 30;
  int capability_major = 9;
  int capability_minor = 0;
  // Instructions of one cluster without any effect before it counts as hanging.
  uint64_t patience = 50'000'000;
};

// A table over a fresh device. A fault in a kernel makes the call that waits for it, and every later one, return
// CUDA_ERROR_LAUNCH_FAILED; its report comes once from Driver::fault_report.
Driver emulated_driver(const EmulatorOptions& options = {});

}  // namespace stepc
