// The devices by the name that --device gives, opened together with what code for them is.
#pragma once

#include <memory>

#include "runtime/cuda/cuda_device.h"
#include "tools/stepc/target.h"

namespace stepc {

struct DeviceChoice {
  std::string name = "host";  // host, emulator, cuda or cuda:N
  std::string arch;           // what to compile for; empty: the device's own
  int threads = 1;            // that run host code or the emulator
  bool baseline = false;      // host code without AVX-512
  bool synchronous = false;   // wait after each launch of a GPU
  int64_t seed = 1;           // of the emulator's schedule
  std::string cache_folder;   // of what the driver compiles; empty: none
};

struct OpenDevice {
  std::unique_ptr<Device> device;
  const CudaDevice* gpu = nullptr;  // the same device, where its driver may have compiled something
  CodeTarget target;
  bool takes_cubins = false;
};

Result<OpenDevice> open_device(const DeviceChoice& choice);

}  // namespace stepc
