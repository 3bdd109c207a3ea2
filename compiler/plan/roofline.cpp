#include "compiler/plan/roofline.h"

#include <algorithm>
#include <map>

#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

void add_group(const Program& program, const Group& group, const DevicePeaks& peaks, RooflineRow& row) {
  const auto flops = static_cast<double>(group_flops(program, group));
  const auto bytes = static_cast<double>(group_bytes(program, group));
  const KernelFloor floor = kernel_floor(flops, static_cast<double>(group_matrix_flops(program, group)), bytes, peaks);
  row.count += 1;
  row.flops += flops;
  row.bytes += bytes;
  row.compute_ms += floor.compute_ms;
  row.memory_ms += floor.memory_ms;
  row.floor_ms += floor.ms();
}

std::string row_text(const RooflineRow& row) {
  const char* bound = row.compute_ms >= row.memory_ms ? "compute" : "memory";
  return fmt::format("  {:>5} {:>10.3f} {:>10.3f} {:>10.3f} {:>12.1f} {:>9.2f}  {:<7}  {}\n", row.count, row.floor_ms,
                     row.compute_ms, row.memory_ms, row.flops / 1e9, row.bytes / 1e9, bound, row.kernels);
}

void add(RooflineRow& sum, const RooflineRow& row) {
  sum.count += row.count;
  sum.flops += row.flops;
  sum.bytes += row.bytes;
  sum.compute_ms += row.compute_ms;
  sum.memory_ms += row.memory_ms;
  sum.floor_ms += row.floor_ms;
}

}  // namespace

// Sources: NVIDIA's data sheets (dense figures); memory is what the driver reports.
std::optional<DevicePeaks> device_peaks(std::string_view arch) {
  if (arch == "sm_90a") return DevicePeaks{"NVIDIA H200", 989.4e12, 66.9e12, 4.8e12, int64_t{143771} << 20};
  if (arch == "sm_89") return DevicePeaks{"NVIDIA L40S", 362e12, 91.6e12, 0.864e12, int64_t{46068} << 20};
  if (arch == "sm_80") return DevicePeaks{"NVIDIA A100 80GB", 312e12, 19.5e12, 2.039e12, int64_t{81920} << 20};
  return std::nullopt;
}

KernelFloor kernel_floor(double flops, double matrix_flops, double bytes, const DevicePeaks& peaks) {
  const double seconds = matrix_flops / peaks.matrix_flops_per_s + (flops - matrix_flops) / peaks.vector_flops_per_s;
  return {seconds * 1e3, bytes / peaks.bytes_per_s * 1e3};
}

std::vector<RooflineRow> roofline(const Program& program, const DevicePeaks& peaks) {
  std::map<std::string, RooflineRow> by_name;
  for (const Group& group : program.groups) {
    const auto problem = group_problem(program, group);
    STEPC_CHECK(problem.has_value(), "{}", problem.error().text());
    const std::string name = fmt::format("{} {}", phase_name(program.node(group.nodes.back()).phase), *problem);
    RooflineRow& row = by_name[name];
    row.kernels = name;
    add_group(program, group, peaks, row);
  }
  std::vector<RooflineRow> rows;
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const RooflineRow& a, const RooflineRow& b) { return a.floor_ms > b.floor_ms; });
  return rows;
}

std::string roofline_report(const Program& program, const DevicePeaks& peaks, int rows) {
  std::string text = fmt::format(
      "roofline of program @{} on {} ({:.1f} TFLOP/s bf16, {:.1f} TFLOP/s f32, {:.2f} TB/s)\n"
      "  {:>5} {:>10} {:>10} {:>10} {:>12} {:>9}  {:<7}  {}\n",
      program.name, peaks.name, peaks.matrix_flops_per_s / 1e12, peaks.vector_flops_per_s / 1e12,
      peaks.bytes_per_s / 1e12, "count", "floor ms", "compute ms", "memory ms", "GFLOP", "GB", "bound", "kernels");
  RooflineRow rest, total;
  rest.kernels = "all others";
  total.kernels = "total";
  for (const RooflineRow& row : roofline(program, peaks)) {
    add(total, row);
    if (rows-- > 0)
      text += row_text(row);
    else
      add(rest, row);
  }
  if (rest.count > 0) text += row_text(rest);
  return text + row_text(total);
}

}  // namespace stepc
