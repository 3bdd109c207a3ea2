// From a kernel group of a fused program to kernel IR: problem -> config -> build. Each template has a file
// of its own in the target's folder; this is the one entry the pipeline calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/kernel/kernel.h"

namespace stepc {

// What a template needs to know of the CPU that the code is for.
struct HostTarget {
  std::string cpu;            // LLVM's name, for the emitter
  std::string features;       // LLVM's feature string, for the emitter
  int64_t vector_bytes = 16;  // 64 with AVX-512, 32 with AVX2
  bool bf16_dot = false;      // vdpbf16ps
};

// A GPU by its architecture: "sm_80", "sm_89", "sm_90a".
struct GpuTarget {
  std::string arch;
  int64_t processors = 132;                           // multiprocessors: as many tasks as persistent kernels have
  bool has_sm90() const { return arch == "sm_90a"; }  // wgmma, TMA, mbarrier transactions
};

// A group's kernel. Its global buffers are the group's operands, then its results (fused.h's order), then,
// if workspace_bytes > 0, one buffer of workspace. The kernel's names come from positions, never from the
// graph, so equal groups give equal text: that text's hash is the kernel's key.
//
// A group that needs a pass over all of its data before another (attention's gradient) takes several kernels:
// `later` ones run after it, in order, on the same buffers, and find in the workspace what it left there.
struct LaterKernel {
  kernel::Kernel kernel;
  std::vector<int64_t> scalars;
  int64_t grid = 0;
};

struct ScheduledKernel {
  kernel::Kernel kernel;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  std::vector<int64_t> scalars;  // values of the kernel's launch scalars
  int64_t grid = 0;              // number of tasks
  int64_t workspace_bytes = 0;
  std::vector<LaterKernel> later;
  std::string problem;  // "matmul(m=64, n=128, k=32, batch=4)"
  std::string config;   // "tile 14x32, block 112x256, pack b"
};

Result<ScheduledKernel> schedule_host(const Program& program, const Group& group, const HostTarget& target);
// A group that no template takes is the user's error.
Result<ScheduledKernel> schedule_gpu(const Program& program, const Group& group, const GpuTarget& target);

}  // namespace stepc
