// From a module of graph IR to a bundle for a GPU: as lower.h, with PTX for every distinct kernel, and cubins with
// what ptxas says of them where it is there.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/lower.h"
#include "compiler/ptxas/ptxas.h"

namespace stepc {

// The architectures that there are templates for, oldest first.
std::span<const std::string_view> gpu_architectures();
// The error suggests a name near to the wrong one and lists all.
Result<GpuTarget> gpu_target(std::string_view arch);

struct GpuLowerOptions {
  LowerOptions common;
  std::optional<Ptxas> ptxas;  // assembles every kernel, for the reports
  bool cubin = false;          // the bundle holds cubins instead of PTX; needs ptxas
};
struct GpuLowered {
  Bundle bundle;
  std::vector<PtxasReport> reports;  // by kernel; empty without ptxas
};
Result<GpuLowered> lower_gpu(Module module, const GpuTarget& target, const GpuLowerOptions& options = {});

// Of a fused module, which must outlive the result.
Result<std::vector<ScheduledProgram>> schedule_module_gpu(const Module& module, const GpuTarget& target);

// Where buffers of a GPU's plan start: whole lines of its caches.
constexpr int64_t kGpuAlignmentBytes = 256;

// "cuda sm_90a": bundles carry it.
std::string gpu_target_text(const GpuTarget& target);

}  // namespace stepc
