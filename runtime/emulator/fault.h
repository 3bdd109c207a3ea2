// A fault: something a kernel did that the hardware would punish, perhaps only sometimes. The first one stops the
// launch and becomes its error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stepc::emulator {

struct Instruction;
struct Kernel;

// Who, where. `lane` -1: the warp as a whole; `warp` -1: no warp (an asynchronous unit).
struct Site {
  const Kernel* kernel = nullptr;
  const Instruction* at = nullptr;
  uint32_t cta = 0;  // linear index in the grid
  int16_t warp = -1;
  int16_t lane = -1;
};

enum class FaultKind : uint8_t {
  // the core
  address,  // no live allocation, outside shared memory or the parameters
  misaligned,
  bad_operand,    // a value that the instruction does not allow
  named_barrier,  // mismatched counts, too many arrivals, arrivals left over
  divergence,     // a warp-wide instruction that its lanes never reach together
  deadlock,
  trap,
  // the asynchronous units
  mbarrier,     // used before init, over-arrival, bytes over or under, memory overwritten
  tensor_map,   // not a tensor map; box, coordinates or shared address that it does not allow
  early_read,   // data read before it landed
  overwrite,    // a buffer written while an asynchronous read or landing is pending
  proxy_fence,  // generic writes handed to the asynchronous proxy without its fence
  swizzle,      // a descriptor or map that disagrees with how the bytes were written
  accumulator,  // registers touched in flight, or wgmma.fence missing
  race,         // two warps, one writing, with nothing that orders them
  incomplete,   // asynchronous work left over at the end of the kernel
};
const char* fault_name(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::bad_operand;
  Site at;
  std::string text;           // one sentence, no full stop: "reads 16 bytes at ..."
  std::optional<Site> other;  // the other party
  std::string other_text;     // what it did: "written by"
};

// "kernel up_swiglu, op 14 (kernel line 14), PTX line 233, CTA 3, warp 2, lane 0: wgmma.mma_async..."
std::string describe(const Site& site);
// One paragraph.
std::string describe(const Fault& fault);

}  // namespace stepc::emulator
