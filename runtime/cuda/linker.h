// PTX to a cubin by the driver's own compiler, for machines without ptxas: kept in a cache, so that a second start
// compiles nothing. The driver compiles one kernel at a time, a third of a second each.
#pragma once

#include <string>

#include "runtime/cuda/cuda_device.h"

namespace stepc {

// What went wrong, and the compiler's messages, if there are any.
struct LinkFailure {
  const char* call = "";
  CUresult result = CUDA_SUCCESS;
  std::string log;
};

tl::expected<std::string, LinkFailure> link_ptx(const Driver& driver, const std::string& ptx,
                                                const std::string& symbol);

// What a cubin that the driver makes depends on.
std::string driver_cubin_key(const CudaDeviceInfo& device, const std::string& ptx);

}  // namespace stepc
