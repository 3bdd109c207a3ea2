#include "tools/stepc/reports.h"

#include <algorithm>

namespace stepc {
namespace {

// (C7510) and its like: wgmma instructions that wait for one another.
bool is_serialized(const PtxasReport& report) {
  return std::any_of(report.remarks.begin(), report.remarks.end(),
                     [](const std::string& remark) { return remark.find("(C75") != std::string::npos; });
}

}  // namespace

std::string kernel_table(std::span<const BundleKernel> kernels, std::span<const PtxasReport> reports) {
  std::string text = fmt::format("{:>9} {:>7} {:>12} {:>11} {:>11}  {}\n", "registers", "threads", "shared bytes",
                                 "spill bytes", "stack bytes", "kernel");
  for (size_t i = 0; i < kernels.size() && i < reports.size(); ++i) {
    const PtxasReport& report = reports[i];
    text +=
        fmt::format("{:>9} {:>7} {:>12} {:>11} {:>11}  {}: {}; {}\n", report.registers, kernels[i].launch.threads,
                    kernels[i].shared_bytes + report.shared_bytes, report.spill_store_bytes + report.spill_load_bytes,
                    report.stack_bytes, kernels[i].name, kernels[i].problem, kernels[i].config);
  }
  return text;
}

Status check_reports(std::span<const BundleKernel> kernels, std::span<const PtxasReport> reports) {
  std::string bad;
  for (size_t i = 0; i < kernels.size() && i < reports.size(); ++i) {
    const PtxasReport& report = reports[i];
    if (report.uses_local_memory())
      bad += fmt::format("\n  {} uses local memory: {} bytes of stack, {} spilled, {} loaded back", kernels[i].name,
                         report.stack_bytes, report.spill_store_bytes, report.spill_load_bytes);
    if (!is_serialized(report)) continue;
    bad += fmt::format("\n  {}:", kernels[i].name);
    for (const std::string& remark : report.remarks) bad += " " + remark;
  }
  if (bad.empty()) return {};
  return system_error("ptxas finds kernels that would be slow:{}", bad);
}

}  // namespace stepc
