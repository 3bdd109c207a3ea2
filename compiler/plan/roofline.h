// The least time that a program's kernels can take on a device: each kernel's floor is the larger of its
// arithmetic at the device's peak and its operands and results at the memory's. Nothing is measured.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/graph/graph.h"

namespace stepc {

// Dense peaks, as the vendor states them.
struct DevicePeaks {
  std::string name;
  double matrix_flops_per_s = 0;  // bf16 products, f32 sums
  double vector_flops_per_s = 0;  // f32 outside of matrix units
  double bytes_per_s = 0;
  int64_t memory_bytes = 0;
};
std::optional<DevicePeaks> device_peaks(std::string_view arch);  // "sm_90a", "sm_89", "sm_80"

// The least time of one kernel: what its arithmetic takes and what its bytes take.
struct KernelFloor {
  double compute_ms = 0;
  double memory_ms = 0;
  double ms() const { return compute_ms > memory_ms ? compute_ms : memory_ms; }
};
KernelFloor kernel_floor(double flops, double matrix_flops, double bytes, const DevicePeaks& peaks);

struct RooflineRow {
  std::string kernels;  // "forward matmul(m=64, ...)": all groups of a phase with one problem
  int count = 0;
  double flops = 0;  // of all of them
  double bytes = 0;
  double compute_ms = 0;
  double memory_ms = 0;
  double floor_ms = 0;
};
// Largest floor first. Requires a fused program.
std::vector<RooflineRow> roofline(const Program& program, const DevicePeaks& peaks);
// The table as text, its `rows` largest rows, the rest and the total.
std::string roofline_report(const Program& program, const DevicePeaks& peaks, int rows = 25);

}  // namespace stepc
