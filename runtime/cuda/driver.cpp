#include "runtime/cuda/driver.h"

#include <dlfcn.h>

namespace stepc {
namespace {

template <class Function>
Status find_call(void* library, const std::string& file, const char* symbol, std::function<Function>& call) {
  void* const address = ::dlsym(library, symbol);
  if (!address)
    return system_error("{} has no {}: the NVIDIA driver is too old; stepc needs one of CUDA 12.0 or later", file,
                        symbol);
  call = reinterpret_cast<Function*>(address);
  return {};
}

}  // namespace

Result<Driver> open_driver(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* const why = ::dlerror();
    return system_error("there is no NVIDIA driver to open: {}", why ? why : library);
  }
  Driver driver;
  driver.origin = library;
  driver.owner = std::shared_ptr<void>(handle, [](void* open) { ::dlclose(open); });
#define DRIVER_CALL(name, symbol, parameters) STEPC_TRY(find_call(handle, library, symbol, driver.name));
#include "runtime/cuda/driver_calls.def"
#undef DRIVER_CALL
  return driver;
}

std::string driver_error_text(const Driver& driver, CUresult error) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName(error, &name) != CUDA_SUCCESS || !name) return fmt::format("error {}", int{error});
  if (driver.cuGetErrorString(error, &text) != CUDA_SUCCESS || !text) return name;
  return fmt::format("{} ({})", name, text);
}

}  // namespace stepc
