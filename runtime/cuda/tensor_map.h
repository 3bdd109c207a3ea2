// Tensor maps of a launch: how the copy engine sees a buffer, made by the driver from the buffer's address.
#pragma once

#include "ir/kernel/launch.h"
#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace stepc {

// The error says which map of which kernel, and what was asked for.
Result<CUtensorMap> encode_tensor_map(const Driver& driver, const kernel::TensorMapSpec& spec, DeviceAddress address,
                                      const std::string& kernel);

}  // namespace stepc
