// stepc dump: the program at any level, one kernel at every level, or everything as numbered files.
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/pipeline.h"
#include "compiler/plan/plan.h"
#include "ir/graph/print.h"
#include "ir/kernel/print.h"
#include "ir/plan/bundle_io.h"
#include "ir/support/file.h"
#include "ir/text/names.h"
#include "tools/stepc/commands.h"
#include "tools/stepc/session.h"
#include "tools/stepc/source.h"

namespace stepc {
namespace {

struct DumpOptions {
  SourceOptions source;
  DeviceOptions device;
  std::string stage = "fused";
  std::string program;
  std::string kernel;
  std::string folder;
  std::vector<std::string> disable;
};

constexpr std::string_view kKernelStages[] = {"kernel", "llvm", "asm"};

bool is_kernel_stage(std::string_view stage) {
  return std::find(std::begin(kKernelStages), std::end(kKernelStages), stage) != std::end(kKernelStages);
}

bool is_pass(std::string_view stage) {
  const auto all = passes();
  return std::any_of(all.begin(), all.end(), [&](const Pass& pass) { return pass.name == stage; });
}

std::vector<std::string_view> stage_names() {
  std::vector<std::string_view> names = {"graph"};
  for (const Pass& pass : passes()) names.push_back(pass.name);
  names.insert(names.end(), {"fused", "kernel", "llvm", "asm", "plan"});
  return names;
}

// One group as text: the fused program with nothing else in it.
std::string group_text(const Program& program, const Group& group) {
  const std::string text = print_program(program);
  const size_t start = text.find(fmt::format("kernel @{} ", group.name));
  const size_t end = text.find("\n  }", start);
  if (start == std::string::npos || end == std::string::npos) return {};
  return text.substr(start, end + 4 - start) + "\n";
}

Result<std::string> kernel_level(const ScheduledKernel& scheduled, std::string_view stage, const HostTarget& target) {
  if (stage == "kernel") return kernel::print_kernel(scheduled.kernel);
  STEPC_ASSIGN(const HostCode code, emit_host(scheduled.kernel, target, {stage == "llvm", stage == "asm"}));
  return stage == "llvm" ? code.llvm_text : code.assembly;
}

// The groups that the options choose, each with its program.
std::vector<std::pair<const Program*, const Group*>> chosen_groups(const Module& module, const DumpOptions& options) {
  std::vector<std::pair<const Program*, const Group*>> chosen;
  for (const Program& program : module.programs)
    for (const Group& group : program.groups)
      if (options.kernel.empty() || group.name == options.kernel) chosen.emplace_back(&program, &group);
  return chosen;
}

Status dump_kernels(const Module& module, const DumpOptions& options) {
  const auto groups = chosen_groups(module, options);
  if (groups.empty()) {
    std::vector<std::string_view> names;
    for (const Program& program : module.programs)
      for (const Group& group : program.groups) names.push_back(group.name);
    return user_error("no kernel @{}{}; `dump --stage=fused` lists them", options.kernel,
                      did_you_mean(options.kernel, names));
  }
  const HostTarget target = options.device.target();
  for (const auto& [program, group] : groups) {
    STEPC_ASSIGN(const ScheduledKernel scheduled, schedule_host(*program, *group, target));
    fmt::print("// {} of @{}: {}; {}\n", group->name, program->name, scheduled.problem, scheduled.config);
    if (!is_kernel_stage(options.stage)) {  // one kernel at every level
      fmt::print("\n// ---- fused\n{}", group_text(*program, *group));
      for (std::string_view level : kKernelStages) {
        STEPC_ASSIGN(const std::string text, kernel_level(scheduled, level, target));
        fmt::print("\n// ---- {}\n{}", level, text);
      }
      return {};
    }
    STEPC_ASSIGN(const std::string text, kernel_level(scheduled, options.stage, target));
    fmt::print("{}\n", text);
  }
  return {};
}

Status write_kernel_files(const Module& module, const DumpOptions& options) {
  const HostTarget target = options.device.target();
  for (const auto& [program, group] : chosen_groups(module, options)) {
    STEPC_ASSIGN(const ScheduledKernel scheduled, schedule_host(*program, *group, target));
    const std::string base = fmt::format("{}/kernels/{}.{}", options.folder, program->name, group->name);
    STEPC_TRY(write_file_atomic(base + ".gir", group_text(*program, *group)));
    STEPC_TRY(write_file_atomic(base + ".kir", kernel::print_kernel(scheduled.kernel)));
    STEPC_ASSIGN(const HostCode code, emit_host(scheduled.kernel, target, {true, true}));
    STEPC_TRY(write_file_atomic(base + ".ll", code.llvm_text));
    STEPC_TRY(write_file_atomic(base + ".s", code.assembly));
  }
  return {};
}

Status dump_plan(const Module& module) {
  STEPC_ASSIGN(const ModuleLayout layout, layout_persistents(module));
  for (const Program& program : module.programs) {
    STEPC_ASSIGN(const Plan plan, plan_program(program, layout, unscheduled_launches(program)));
    fmt::print("{}\n", plan_text(plan));
  }
  return {};
}

// Runs the passes; with a folder each leaves a numbered file, unless it changed nothing.
Status run_and_record(Module& module, const DumpOptions& options, const std::string& stop_after) {
  int number = 0;
  std::string before = print_module(module);
  Status written;
  const auto record = [&](std::string_view name, const std::string& text) {
    if (written) written = write_file_atomic(fmt::format("{}/{:02d}.{}.gir", options.folder, number++, name), text);
  };
  PassOptions pass_options;
  pass_options.disable = options.disable;
  pass_options.stop_after = stop_after;
  if (!options.folder.empty()) {
    STEPC_TRY(make_folder(options.folder + "/kernels"));
    record("graph", before);
    pass_options.after = [&](const Pass& pass, const Module& now) {
      std::string text = print_module(now);
      if (text != before) record(pass.name, text);
      before = std::move(text);
    };
  }
  STEPC_TRY(run_passes(module, pass_options));
  return written;
}

Status dump(const DumpOptions& options) {
  STEPC_ASSIGN(Module module, options.source.load());
  if (!options.program.empty()) STEPC_TRY(keep_program(module, options.program));
  const std::vector<std::string_view> stages = stage_names();
  const bool known = std::find(stages.begin(), stages.end(), options.stage) != stages.end();
  if (!known)
    return user_error("--stage {}: unknown{}; the stages are {}", options.stage, did_you_mean(options.stage, stages),
                      fmt::join(stages, ", "));
  if (options.stage != "graph") STEPC_TRY(run_and_record(module, options, is_pass(options.stage) ? options.stage : ""));
  if (!options.folder.empty()) return write_kernel_files(module, options);
  if (options.stage == "plan") return dump_plan(module);
  if (is_kernel_stage(options.stage) || !options.kernel.empty()) return dump_kernels(module, options);
  fmt::print("{}", print_module(module));
  return {};
}

}  // namespace

void register_dump(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* command = app.add_subcommand("dump", "Show a program at any level");
  options->source.add_to(*command);
  options->device.add_to(*command);
  command->add_option("--stage", options->stage, "graph, a pass's name, fused, kernel, llvm, asm, plan");
  command->add_option("--program", options->program, "Only this program");
  command->add_option("--kernel", options->kernel, "Only this kernel; without a kernel stage at every level");
  command->add_option("--dump-dir", options->folder, "Write numbered files after each pass, and every kernel");
  command->add_option("--disable", options->disable, "Pass to leave out; may be repeated");
  command->callback([options, &outcome] { outcome.status = dump(*options); });
}

}  // namespace stepc
