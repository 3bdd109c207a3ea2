// What code is made for, by the name that --arch gives: the CPU of this machine ("host") or a GPU's architecture.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/pipeline.h"
#include "compiler/plan/fit.h"
#include "compiler/plan/plan.h"
#include "compiler/schedule/schedule.h"

namespace stepc {

struct CodeTarget {
  HostTarget host;
  std::optional<GpuTarget> gpu;  // host code where it is not set
};

// `baseline` leaves AVX-512 out of host code.
Result<CodeTarget> code_target(const std::string& arch, bool baseline);
// How its programs are fused and planned.
PassOptions pass_options(const CodeTarget& target);
PlanOptions plan_options(const CodeTarget& target);
// --updates-apart, of which PassOptions tells.
void add_updates_apart(CLI::App& command, bool& updates_apart);
// "host, sm_80, ..": for help texts.
std::string architectures_text();

Result<ScheduledKernel> schedule_group(const Program& program, const Group& group, const CodeTarget& target);

// What --recompute says.
struct RecomputeChoice {
  std::string name = "auto";
  void add_to(CLI::App& command);
  Result<Recompute> mode() const;
};

// Bytes of memory of the architecture's card, or of this machine.
int64_t memory_bytes(const std::string& arch);

// The kernel, and those that run after it.
std::vector<const kernel::Kernel*> kernels_of(const ScheduledKernel& scheduled);

// A kernel at one of the levels below kernel IR.
struct CodeText {
  std::string_view stage;  // "llvm", "asm", "ptx"
  std::string_view suffix;
  std::string text;
};
std::span<const std::string_view> code_stages(const CodeTarget& target);
// At all of them, from the higher to the lower.
Result<std::vector<CodeText>> code_texts(const kernel::Kernel& kernel, const CodeTarget& target);

}  // namespace stepc
