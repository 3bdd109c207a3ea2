// Turns the driver's error codes into errors that name the call and what it was for.
#pragma once

#include <string>

#include "runtime/cuda/driver.h"

namespace stepc {

// "cuMemFree: CUDA_ERROR_INVALID_VALUE (invalid argument)", with the emulator's report of a fault, if it has one.
Error driver_error(const Driver& driver, const char* call, CUresult result, const std::string& purpose = "");

}  // namespace stepc

// Calls the driver; returns the error from the enclosing function if it fails. `purpose` is text, "" for none.
#define STEPC_DRIVER(driver, call, purpose, ...)                                    \
  do {                                                                              \
    if (const CUresult driver_result = (driver).call(__VA_ARGS__); driver_result)   \
      return tl::unexpected(driver_error((driver), #call, driver_result, purpose)); \
  } while (false)
