// Removes ops whose results nothing reads and that do nothing else. Templates emit scalars that turn out to
// be needed wide only. Requires a verified kernel; the result verifies and means the same.
#pragma once

#include "ir/kernel/kernel.h"

namespace stepc {

kernel::Kernel drop_unused(kernel::Kernel kernel);

}  // namespace stepc
