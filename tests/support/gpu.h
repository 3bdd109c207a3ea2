// The GPU that tests run on: the emulator, or with STEPC_DEVICE=cuda this machine's card, with the same tests and
// the same results. For areas that link the runtime.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/driver.h"

namespace stepc::test {

inline bool on_card() {
  const char* const device = std::getenv("STEPC_DEVICE");
  return device && std::string(device) == "cuda";
}

// The card's driver, with its context kept until the end: making one takes longer than most tests.
inline Driver card_driver() {
  static const Result<Driver> driver = [] {
    Result<Driver> opened = open_driver();
    CUdevice device = 0;
    CUcontext context = nullptr;
    if (opened && opened->cuInit(0) == CUDA_SUCCESS && opened->cuDeviceGet(&device, 0) == CUDA_SUCCESS)
      opened->cuDevicePrimaryCtxRetain(&context, device);
    return opened;
  }();
  REQUIRE_MESSAGE(driver.has_value(), driver.error().text());
  return *driver;
}

// `seed` chooses the order in which the emulator lets things happen.
inline std::unique_ptr<CudaDevice> open_gpu(uint64_t seed = 1) {
  EmulatorOptions options;
  options.seed = seed;
  auto device = make_cuda_device(on_card() ? card_driver() : emulated_driver(options), {.synchronous = true});
  REQUIRE_MESSAGE(device.has_value(), device.error().text());
  return std::move(*device);
}

// Whether the card at hand can run code for `arch`; the emulator runs all of them.
inline bool gpu_runs(const std::string& arch) {
  if (!on_card()) return true;
  return device_runs(open_gpu()->info(), arch);
}

}  // namespace stepc::test
