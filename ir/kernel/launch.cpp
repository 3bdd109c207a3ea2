#include "ir/kernel/launch.h"

namespace stepc::kernel {

GpuLaunch gpu_launch(const Kernel& kernel) {
  GpuLaunch launch;
  if (kernel.target == Target::host) return launch;
  for (const Role& role : kernel.roles) launch.threads += int64_t{32} * role.copies * role.warps;
  launch.cluster = kernel.cluster;
  for (const Buffer& map : kernel.buffers) {
    if (map.space != Space::map) continue;
    const Buffer& tensor = kernel.buffer(map.map_of);
    launch.maps.push_back({static_cast<int>(index_of(map.map_of)), tensor.dtype, tensor.shape,
                           tensor.strides.empty() ? row_major_strides(tensor.shape) : tensor.strides, map.box,
                           map.swizzle_bytes});
  }
  return launch;
}

}  // namespace stepc::kernel
