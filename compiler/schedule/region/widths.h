// What the templates of core ops are told of the machine, beside the group: how wide to work and how much a task takes.
// With it the same template serves the host, where a task is a thread with vectors, and GPUs, where a task is a CTA and
// every thread holds a part of each fragment.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compiler/schedule/schedule.h"
#include "ir/kernel/kernel.h"

namespace stepc::schedule {

constexpr int64_t kHeldElements = 32;      // of a row, that a thread may hold of each value
constexpr int64_t kMultiprocessors = 132;  // for which work is cut where a kernel has few tasks

struct Widths {
  kernel::Target target = kernel::Target::host;
  int warps = 0;                   // of the one role; 0 on the host
  int64_t native = 4;              // f32 lanes of one register of a task, on a GPU one a thread
  int64_t most_registers = 4;      // worth of lanes to work on at once; a template may take fewer on the host
  int64_t task_elements = 24576;   // that a task goes through
  int64_t shared_bytes = 1 << 20;  // scratch that a task may have
  bool is_gpu() const { return target != kernel::Target::host; }
  // A template that has many values in flight asks for fewer; on a GPU the compiler sees to that.
  int64_t registers(int64_t wanted) const { return is_gpu() ? most_registers : std::min(wanted, most_registers); }
};

inline Widths host_widths(const HostTarget& target) { return {.native = target.vector_bytes / 4}; }

}  // namespace stepc::schedule
