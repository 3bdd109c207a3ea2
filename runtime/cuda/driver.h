// The CUDA driver as a table of calls: libcuda, opened when the program runs, or the emulator
// (runtime/emulator), which fills the same table with functions of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ir/support/result.h"
#include "runtime/cuda/driver_types.h"

namespace stepc {

struct Driver {
#define DRIVER_CALL(name, symbol, parameters) std::function<CUresult parameters> name;
#include "runtime/cuda/driver_calls.def"
#undef DRIVER_CALL

  // What the driver can say about the last failed launch beyond its error code, then forgotten; "" if nothing.
  // Unset on libcuda; the emulator's reports of faults come through it.
  std::function<std::string()> fault_report;
  // Where it comes from: "libcuda.so.1", "emulator".
  std::string origin;
  // Keeps alive what the calls need.
  std::shared_ptr<void> owner;
};

// Opens libcuda.so.1 and finds every call; does not initialise it. The error says what is missing.
Result<Driver> open_driver(const std::string& library = "libcuda.so.1");

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string driver_error_text(const Driver& driver, CUresult error);

}  // namespace stepc
