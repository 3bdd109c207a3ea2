#include "tools/stepc/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/graph/fused.h"

namespace stepc {
namespace {

// Contractions of bf16 operands run at the matrix units' rate; everything else at the vector rate.
double peak_of(const Program& program, const Node& node, const DevicePeaks& peaks) {
  const OpFamily family = op_info(node.op).family;
  const bool product = family == OpFamily::contraction || node.op == Op::attention || node.op == Op::attention_grad;
  return product && program.type(node.operands[0]).dtype == Dtype::bf16 ? peaks.bf16_flops : peaks.f32_flops;
}

double flops_milliseconds(const Program& program, const Group& group, const DevicePeaks& peaks) {
  double seconds = 0;
  for (NodeId id : group.nodes)
    seconds += static_cast<double>(node_flops(program, program.node(id))) / peak_of(program, program.node(id), peaks);
  return seconds * 1e3;
}

}  // namespace

Result<std::vector<RooflineRow>> roofline(const Program& fused, const DevicePeaks& peaks) {
  std::map<std::string, size_t> place;
  std::vector<RooflineRow> rows;
  for (const Group& group : fused.groups) {
    STEPC_ASSIGN(const std::string problem, group_problem(fused, group));
    const int64_t flops = group_flops(fused, group);
    const int64_t bytes = group_bytes(fused, group);
    const auto [found, fresh] = place.emplace(fmt::format("{} {} {}", problem, flops, bytes), rows.size());
    if (fresh) rows.push_back({group.name, problem, 0, 0, 0, 0, 0, 0});
    RooflineRow& row = rows[found->second];
    const double flops_ms = flops_milliseconds(fused, group, peaks);
    const double bytes_ms = static_cast<double>(bytes) / peaks.bytes * 1e3;
    ++row.count;
    row.flops += flops;
    row.bytes += bytes;
    row.flops_ms += flops_ms;
    row.bytes_ms += bytes_ms;
    row.floor_ms += std::max(flops_ms, bytes_ms);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.floor_ms > b.floor_ms; });
  return rows;
}

std::string roofline_text(const std::vector<RooflineRow>& rows, const DevicePeaks& peaks) {
  std::string text = fmt::format("roofline on {} ({:.1f} TFLOP/s bf16, {:.1f} f32, {:.2f} TB/s)\n", peaks.name,
                                 peaks.bf16_flops / 1e12, peaks.f32_flops / 1e12, peaks.bytes / 1e12);
  text += fmt::format("{:>9} {:>9} {:>9} {:>5} {:>10} {:>9}  {}\n", "floor ms", "flops ms", "bytes ms", "times",
                      "GFLOP", "GB", "kernel");
  double floor = 0, flops = 0, bytes = 0;
  for (const RooflineRow& row : rows) {
    text += fmt::format("{:>9.3f} {:>9.3f} {:>9.3f} {:>5} {:>10.1f} {:>9.3f}  {}: {}\n", row.floor_ms, row.flops_ms,
                        row.bytes_ms, row.count, static_cast<double>(row.flops) / 1e9,
                        static_cast<double>(row.bytes) / 1e9, row.kernel, row.problem);
    floor += row.floor_ms, flops += static_cast<double>(row.flops), bytes += static_cast<double>(row.bytes);
  }
  return text + fmt::format("{:>9.3f} ms in all: {:.3f} TFLOP, {:.3f} GB\n", floor, flops / 1e12, bytes / 1e9);
}

}  // namespace stepc
