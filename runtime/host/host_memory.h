// How much memory this process can still get.
#pragma once

#include <string_view>

#include "ir/support/result.h"

namespace stepc {

// The smaller of what the machine has available and what the process's control group still allows.
Result<int64_t> available_host_bytes();

// "MemAvailable:   1234 kB" of the text of /proc/meminfo, in bytes.
Result<int64_t> parse_mem_available(std::string_view meminfo);

}  // namespace stepc
