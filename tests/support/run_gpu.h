// Runs a group's kernels on the GPU of tests (gpu.h), as run_group.h runs them on the host. For areas that link the
// compiler and the runtime.
#pragma once

#include "compiler/emit/nvptx.h"
#include "tests/support/gpu.h"
#include "tests/support/run_group.h"

namespace stepc::test {

// From the first byte of the buffer to the last.
inline int64_t buffer_extent_bytes(const kernel::Buffer& buffer) {
  const std::vector<int64_t> strides = buffer.strides.empty() ? row_major_strides(buffer.shape) : buffer.strides;
  int64_t last = 0;
  for (size_t i = 0; i < buffer.shape.size(); ++i) {
    if (buffer.shape[i] == 0) return 0;
    last += (buffer.shape[i] - 1) * strides[i];
  }
  return (last + 1) * dtype_bytes(buffer.dtype);
}

inline std::vector<int64_t> global_buffer_bytes(const kernel::Kernel& kernel) {
  std::vector<int64_t> sizes;
  for (const kernel::Buffer& buffer : kernel.buffers)
    if (buffer.space == kernel::Space::global) sizes.push_back(buffer_extent_bytes(buffer));
  return sizes;
}

// Loads a kernel as a bundle would.
inline KernelHandle load_kernel(Device& device, const kernel::Kernel& kernel, const GpuTarget& target) {
  const auto code = emit_ptx(kernel, target);
  REQUIRE_MESSAGE(code.has_value(), code.error().text() << "\n" << kernel::print_kernel(kernel));
  const auto handle =
      device.load({kernel.name, code->ptx, kernel::shared_layout(kernel).total_bytes, kernel::gpu_launch(kernel)});
  REQUIRE_MESSAGE(handle.has_value(), handle.error().text() << "\n" << code->ptx);
  return *handle;
}

// Runs one kernel; an error says which fault the emulator found.
inline void launch_kernel(Device& device, const kernel::Kernel& kernel, const GpuTarget& target, int64_t grid,
                          std::span<const DeviceAddress> buffers, std::span<const int64_t> scalars) {
  const KernelHandle handle = load_kernel(device, kernel, target);
  Status status = device.launch(handle, grid, buffers, scalars);
  if (status) status = device.synchronize();
  REQUIRE_MESSAGE(status.has_value(), status.error().text() << "\n" << kernel::print_kernel(kernel));
}

// The Executor of run_group.h for emitted PTX. Every buffer is an allocation of its own, so that the emulator
// reports an access outside it.
inline Executor on_gpu(const GpuTarget& target, uint64_t seed = 1) {
  return [target, seed](const ScheduledKernel& scheduled, const std::vector<std::byte*>& buffers) {
    if (!gpu_runs(target.arch)) return;
    const auto device = open_gpu(seed);
    const std::vector<int64_t> sizes = global_buffer_bytes(scheduled.kernel);
    REQUIRE(sizes.size() == buffers.size());
    std::vector<DeviceAddress> addresses;
    for (size_t i = 0; i < buffers.size(); ++i) {
      addresses.push_back(device->allocate(sizes[i]).value());
      REQUIRE(device->copy_in(addresses[i], buffers[i], sizes[i]).has_value());
    }
    if (scheduled.grid > 0)
      launch_kernel(*device, scheduled.kernel, target, scheduled.grid, addresses, scheduled.scalars);
    for (const LaterKernel& later : scheduled.later)
      launch_kernel(*device, later.kernel, target, later.grid, addresses, later.scalars);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Status status = device->copy_out(buffers[i], addresses[i], sizes[i]);
      REQUIRE_MESSAGE(status.has_value(), status.error().text());
    }
  };
}

}  // namespace stepc::test
