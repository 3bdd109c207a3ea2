// The least time each kernel of a program can take on a device: its arithmetic at the peak rate or its bytes at
// the memory's, whichever is longer. Kernels of one template, problem and operand types are one row.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "tools/stepc/peaks.h"

namespace stepc {

struct RooflineRow {
  std::string kernel;  // the first group's name
  std::string problem;
  int64_t count = 0;
  int64_t flops = 0;  // of all `count`
  int64_t bytes = 0;
  double flops_ms = 0;
  double bytes_ms = 0;
  double floor_ms = 0;
};

Result<std::vector<RooflineRow>> roofline(const Program& fused, const DevicePeaks& peaks);
std::string roofline_text(const std::vector<RooflineRow>& rows, const DevicePeaks& peaks);

}  // namespace stepc
