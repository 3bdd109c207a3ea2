// A kernel in the driver: PTX or a cubin loaded as a module of its own.
#pragma once

#include "runtime/cuda/cuda_device.h"

namespace stepc {

// Owns its module; the driver must outlive it.
class CudaModule {
 public:
  // With a cache folder the driver's cubins are taken from there and kept there. Counts what it did.
  static Result<CudaModule> load(const Driver& driver, const CudaDeviceInfo& device, const KernelCode& kernel,
                                 const std::string& cache_folder, CudaLoads& loads);
  CudaModule(CudaModule&& other) noexcept { *this = std::move(other); }
  CudaModule& operator=(CudaModule&& other) noexcept;
  ~CudaModule();

  CUfunction function() const { return function_; }

 private:
  explicit CudaModule(const Driver& driver) : driver_(&driver) {}
  Status prepare(const CudaDeviceInfo& device, const KernelCode& kernel);

  const Driver* driver_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

bool is_cubin(std::string_view code);
// What follows a directive of PTX, as ".target" or ".version", up to the end of its line; "" where it has none.
std::string_view ptx_directive(std::string_view ptx, std::string_view directive);

}  // namespace stepc
