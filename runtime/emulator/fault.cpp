#include "runtime/emulator/fault.h"

#include <fmt/format.h>

#include "ir/support/check.h"
#include "runtime/emulator/instruction.h"

namespace stepc::emulator {
namespace {

// The PTX of a line, without indentation.
std::string source_line(const Module& module, uint32_t line) {
  if (line == 0 || line > module.lines.size()) return "";
  std::string text = module.lines[line - 1];
  const size_t from = text.find_first_not_of(" \t");
  if (from == std::string::npos) return "";
  text = text.substr(from, text.find_last_not_of(" \t\r") - from + 1);
  constexpr size_t kLongest = 120;  // a wgmma has 128 accumulators
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

}  // namespace

const char* fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::address: return "address out of bounds";
    case FaultKind::misaligned: return "misaligned address";
    case FaultKind::bad_operand: return "bad operand";
    case FaultKind::named_barrier: return "named barrier mismatch";
    case FaultKind::divergence: return "divergent warp";
    case FaultKind::deadlock: return "deadlock";
    case FaultKind::trap: return "trap";
    case FaultKind::mbarrier: return "mbarrier misuse";
    case FaultKind::tensor_map: return "tensor map misuse";
    case FaultKind::early_read: return "read before the data landed";
    case FaultKind::overwrite: return "overwritten while in use";
    case FaultKind::proxy_fence: return "missing proxy fence";
    case FaultKind::swizzle: return "swizzle mismatch";
    case FaultKind::accumulator: return "accumulator touched in flight";
    case FaultKind::race: return "race";
    case FaultKind::incomplete: return "unfinished at the end of the kernel";
  }
  STEPC_UNREACHABLE("fault kind {}", static_cast<int>(kind));
}

std::string describe(const Site& site) {
  std::string text = site.kernel ? "kernel " + site.kernel->name : "unknown kernel";
  if (site.at) {
    if (site.at->ir_line) text += fmt::format(", kernel IR line {}", site.at->ir_line);
    text += fmt::format(", PTX line {}", site.at->line);
  }
  text += fmt::format(", CTA {}", site.cta);
  if (site.warp >= 0) text += fmt::format(", warp {}", site.warp);
  if (site.lane >= 0) text += fmt::format(", lane {}", site.lane);
  if (site.at && site.kernel) text += ": " + source_line(*site.kernel->module, site.at->line);
  return text;
}

std::string describe(const Fault& fault) {
  std::string text = fmt::format("{}: {}\n  at {}", fault_name(fault.kind), fault.text, describe(fault.at));
  if (fault.other)
    text +=
        fmt::format("\n  {} {}", fault.other_text.empty() ? "other party:" : fault.other_text, describe(*fault.other));
  return text;
}

}  // namespace stepc::emulator
