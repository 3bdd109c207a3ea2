// Kernels are made before it is planned where values lie, and must know which of their operands they may overwrite.
#include "compiler/graph/autodiff.h"
#include "compiler/lower_gpu.h"
#include "compiler/pipeline.h"
#include "compiler/plan/plan.h"
#include "model/config.h"
#include "model/programs.h"
#include "tests/model/model_run.h"

namespace stepc::test {
namespace {

std::vector<GroupLaunch> launches_of(const ScheduledProgram& scheduled) {
  std::vector<GroupLaunch> launches;
  for (const ScheduledKernel& kernel : scheduled.kernels) {
    GroupLaunch launch{-1, kernel.grid, kernel.operands, kernel.results, kernel.scalars, kernel.workspace_bytes, {}};
    for (const LaterKernel& later : kernel.later) launch.later.push_back({-1, later.grid, later.scalars});
    launches.push_back(std::move(launch));
  }
  return launches;
}

bool share_bytes(const PlanBuffer& a, const PlanBuffer& b) {
  return a.arena == b.arena && a.offset_bytes < b.offset_bytes + b.bytes && b.offset_bytes < a.offset_bytes + a.bytes;
}

struct Tally {
  int overwritten = 0;  // operands in a plan
  int unmarked = 0;     // operands that no kernel overwrites
};

void check_program(const ScheduledProgram& scheduled, const ModuleLayout& layout, Tally& tally) {
  const Program& program = *scheduled.program;
  const auto plan = plan_program(program, layout, launches_of(scheduled));
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  std::map<std::string, const ScheduledKernel*> kernel_of_group;
  for (size_t g = 0; g < program.groups.size(); ++g) kernel_of_group[program.groups[g].name] = &scheduled.kernels[g];
  const auto buffer = [&](int id) -> const PlanBuffer& { return plan->buffers[static_cast<size_t>(id)]; };
  for (const PlanStep& step : plan->steps) {
    const auto* launch = std::get_if<LaunchStep>(&step.action);
    const auto kernel = kernel_of_group.find(step.name);
    if (!launch || kernel == kernel_of_group.end()) continue;
    for (size_t i = 0; i < launch->operands.size(); ++i) {
      const PlanBuffer& operand = buffer(launch->operands[i]);
      const bool overwritten = std::any_of(launch->results.begin(), launch->results.end(),
                                           [&](int result) { return share_bytes(operand, buffer(result)); });
      const bool marked = kernel->second->kernel.buffers[i].overwritten;
      CAPTURE(step.name);
      CAPTURE(operand.name);
      if (overwritten) CHECK(marked);
      tally.overwritten += overwritten;
      tally.unmarked += !marked;
    }
  }
}

TEST_CASE("kernels know of every operand that a plan lets them overwrite") {
  for (int64_t accumulation : {1, 2}) {
    Config config = *preset_config("tiny");
    config.train.accumulation = accumulation;
    for (const char* arch : {"host", "sm_80", "sm_90a"}) {
      CAPTURE(arch);
      const bool host = std::string_view(arch) == "host";
      Module module = build_module(config, differentiate);
      REQUIRE(run_passes(module, {.for_gpu = !host, .has_sm90 = GpuTarget{arch}.has_sm90()}).has_value());
      const auto scheduled = host ? schedule_module_host(module, {}) : schedule_module_gpu(module, {arch});
      REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
      const ModuleLayout layout = layout_persistents(module).value();
      Tally tally;
      for (const ScheduledProgram& program : *scheduled) check_program(program, layout, tally);
      CHECK(tally.overwritten > 20);
      CHECK(tally.unmarked > tally.overwritten);
    }
  }
}

}  // namespace
}  // namespace stepc::test
