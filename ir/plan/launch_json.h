// How a kernel is launched on a GPU, to and from JSON. Internal to ir/plan.
#pragma once

#include "ir/kernel/launch.h"
#include "ir/text/json.h"

namespace stepc {

JsonValue gpu_launch_json(const kernel::GpuLaunch& launch);
Result<kernel::GpuLaunch> read_gpu_launch(const JsonCursor& cursor);

// Whether a device could launch it: sizes within what any GPU has, maps of buffers that there are.
Status verify_gpu_launch(const kernel::GpuLaunch& launch, int buffers);

}  // namespace stepc
