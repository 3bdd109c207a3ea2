// Routing by many threads; of the templates that the host has too, the one that a GPU makes in another way.
#pragma once

#include "compiler/schedule/host/templates.h"

namespace stepc::cuda {

// One CTA. `workspace_bytes` comes back in Built: the last buffer of the kernel.
Result<host::Draft> build_route(const host::Problem& problem);

}  // namespace stepc::cuda
