// Looks for NaN in a tensor's bytes.
#pragma once

#include <optional>
#include <span>

#include "ir/dtype.h"

namespace stepc {

// The first element that is NaN; none for dtypes that have no NaN.
std::optional<int64_t> find_nan(Dtype dtype, std::span<const char> bytes);

}  // namespace stepc
