// What a GPU has to be told to launch a kernel, beside its code: part of the bundle, so that the runtime needs
// no kernel IR. The calling convention is in docs/kernel_abi.md.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel/kernel.h"

namespace stepc::kernel {

// A tensor map over one of the launch's buffers; dimensions as in kernel IR, the last one contiguous.
struct TensorMapSpec {
  int buffer = -1;  // position among the launch's buffers
  Dtype dtype = Dtype::bf16;
  Shape shape;
  std::vector<int64_t> strides;  // elements
  Shape box;
  int64_t swizzle_bytes = 0;
  bool operator==(const TensorMapSpec&) const = default;
};

struct GpuLaunch {
  int64_t threads = 0;              // of a task; 0: the kernel is not for a GPU
  int64_t cluster = 1;              // tasks
  std::vector<TensorMapSpec> maps;  // passed after buffers and scalars, in this order
  bool operator==(const GpuLaunch&) const = default;
};

GpuLaunch gpu_launch(const Kernel& kernel);

}  // namespace stepc::kernel
