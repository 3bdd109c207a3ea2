// The registers that the threads of a multiprocessor share.
#pragma once

#include <cstdint>

namespace stepc::emit {

constexpr int64_t kRegistersOfSm = 65536;

}  // namespace stepc::emit
