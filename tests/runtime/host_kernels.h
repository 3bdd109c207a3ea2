// Host kernels written by hand, for tests of devices and the executor without a compiler.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/host/host_device.h"

namespace stepc {

// c[i] = a[i] + b[i]; scalars: count, elements of a task.
inline void add_kernel(void* const* buffers, const int64_t* scalars, int64_t task, void*) {
  const auto* a = static_cast<const float*>(buffers[0]);
  const auto* b = static_cast<const float*>(buffers[1]);
  auto* c = static_cast<float*>(buffers[2]);
  for (int64_t i = task * scalars[1]; i < std::min(scalars[0], (task + 1) * scalars[1]); ++i) c[i] = a[i] + b[i];
}

// b[i] = s[] / a[i] by way of the task's scratch, one task an element.
inline void divide_kernel(void* const* buffers, const int64_t*, int64_t task, void* shared) {
  auto* scratch = static_cast<float*>(shared);
  scratch[15] = static_cast<const float*>(buffers[0])[task];
  static_cast<float*>(buffers[2])[task] = *static_cast<const float*>(buffers[1]) / scratch[15];
}

inline Result<void*> load_by_name(const std::string& object, const std::string& symbol) {
  if (object != "code of " + symbol) return user_error("not the object of {}", symbol);
  if (symbol == "add") return reinterpret_cast<void*>(&add_kernel);
  if (symbol == "divide") return reinterpret_cast<void*>(&divide_kernel);
  return user_error("no symbol {}", symbol);
}

}  // namespace stepc
