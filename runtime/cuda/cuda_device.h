// A GPU as a device, over any driver table: libcuda's or the emulator's. One stream, so that calls are in order;
// launches return before the kernel ends, and an error that it makes shows at a later call, which names the
// kernels launched since the last synchronisation. Kernels follow the GPU ABI of docs/kernel_abi.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace stepc {

struct CudaDeviceInfo {
  std::string name;
  std::string arch;        // of the device itself: "sm_90"
  std::string target;      // the best that stepc makes code for and the device runs: "sm_90a", "sm_89", "sm_80"
  int driver_version = 0;  // 12080 is CUDA 12.8
  int processors = 0;
  int64_t memory_bytes = 0;
  int64_t shared_bytes = 0;  // that a task can have
};

struct CudaOptions {
  int ordinal = 0;
  bool synchronous = false;  // wait after each launch, so that an error names its kernel
  std::string cache_folder;  // of cubins that the driver makes from PTX; empty: none
};

// What became of the kernels that were loaded.
struct CudaLoads {
  int compiled = 0;  // by the driver, from PTX
  int cached = 0;    // the same, at an earlier time
};

// To be used from the thread that made it.
class CudaDevice : public Device {
 public:
  virtual const CudaDeviceInfo& info() const = 0;
  virtual const CudaLoads& loads() const = 0;
};

Result<std::unique_ptr<CudaDevice>> make_cuda_device(Driver driver, const CudaOptions& options = {});

// Whether the device runs code made for this target, as "sm_90a" or "sm_80".
bool device_runs(const CudaDeviceInfo& device, std::string_view target);

// "12.8" of 12080.
std::string cuda_version_text(int version);

}  // namespace stepc
