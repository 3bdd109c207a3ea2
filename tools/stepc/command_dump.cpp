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
#include "tools/stepc/source.h"
#include "tools/stepc/target.h"

namespace stepc {
namespace {

struct DumpOptions {
  SourceOptions source;
  std::string arch = "host";
  bool baseline = false;
  bool updates_apart = false;
  std::string stage = "fused";
  std::string program;
  std::string kernel;
  std::string folder;
  std::vector<std::string> disable;
};

bool is_kernel_stage(std::string_view stage) {
  return stage == "kernel" || stage == "llvm" || stage == "asm" || stage == "ptx";
}

bool is_pass(std::string_view stage) {
  const auto all = passes();
  return std::any_of(all.begin(), all.end(), [&](const Pass& pass) { return pass.name == stage; });
}

std::vector<std::string_view> stage_names(const CodeTarget& target) {
  std::vector<std::string_view> names = {"graph"};
  for (const Pass& pass : passes()) names.push_back(pass.name);
  names.insert(names.end(), {"fused", "kernel"});
  const auto code = code_stages(target);
  names.insert(names.end(), code.begin(), code.end());
  names.push_back("plan");
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

Result<std::string> kernel_level(const kernel::Kernel& kernel, std::string_view stage, const CodeTarget& target) {
  if (stage == "kernel") return kernel::print_kernel(kernel);
  STEPC_ASSIGN(std::vector<CodeText> texts, code_texts(kernel, target));
  const auto at = std::find_if(texts.begin(), texts.end(), [&](const CodeText& text) { return text.stage == stage; });
  return std::move(at->text);
}

// One group at every level; where it has several kernels, level by level for each.
Status dump_levels(const Program& program, const Group& group, const ScheduledKernel& scheduled,
                   const CodeTarget& target) {
  fmt::print("\n// ---- fused\n{}", group_text(program, group));
  for (const kernel::Kernel* kernel : kernels_of(scheduled)) {
    fmt::print("\n// ---- kernel\n{}", kernel::print_kernel(*kernel));
    STEPC_ASSIGN(const std::vector<CodeText> texts, code_texts(*kernel, target));
    for (const CodeText& code : texts) fmt::print("\n// ---- {}\n{}", code.stage, code.text);
  }
  return {};
}

// The groups that the options choose, each with its program.
std::vector<std::pair<const Program*, const Group*>> chosen_groups(const Module& module, const DumpOptions& options) {
  std::vector<std::pair<const Program*, const Group*>> chosen;
  for (const Program& program : module.programs)
    for (const Group& group : program.groups)
      if (options.kernel.empty() || group.name == options.kernel) chosen.emplace_back(&program, &group);
  return chosen;
}

Status dump_kernels(const Module& module, const DumpOptions& options, const CodeTarget& target) {
  const auto groups = chosen_groups(module, options);
  if (groups.empty()) {
    std::vector<std::string_view> names;
    for (const Program& program : module.programs)
      for (const Group& group : program.groups) names.push_back(group.name);
    return user_error("no kernel @{}{}; `dump --stage=fused` lists them", options.kernel,
                      did_you_mean(options.kernel, names));
  }
  for (const auto& [program, group] : groups) {
    STEPC_ASSIGN(const ScheduledKernel scheduled, schedule_group(*program, *group, target));
    fmt::print("// {} of @{}: {}; {}\n", group->name, program->name, scheduled.problem, scheduled.config);
    if (!is_kernel_stage(options.stage)) return dump_levels(*program, *group, scheduled, target);
    for (const kernel::Kernel* kernel : kernels_of(scheduled)) {
      STEPC_ASSIGN(const std::string text, kernel_level(*kernel, options.stage, target));
      fmt::print("{}\n", text);
    }
  }
  return {};
}

Status write_kernel_files(const Module& module, const DumpOptions& options, const CodeTarget& target) {
  for (const auto& [program, group] : chosen_groups(module, options)) {
    STEPC_ASSIGN(const ScheduledKernel scheduled, schedule_group(*program, *group, target));
    const std::string base = fmt::format("{}/kernels/{}.{}", options.folder, program->name, group->name);
    STEPC_TRY(write_file_atomic(base + ".gir", group_text(*program, *group)));
    int number = 0;
    for (const kernel::Kernel* kernel : kernels_of(scheduled)) {
      const std::string name = ++number == 1 ? base : fmt::format("{}.{}", base, number);
      STEPC_TRY(write_file_atomic(name + ".kir", kernel::print_kernel(*kernel)));
      STEPC_ASSIGN(const std::vector<CodeText> texts, code_texts(*kernel, target));
      for (const CodeText& code : texts)
        STEPC_TRY(write_file_atomic(fmt::format("{}.{}", name, code.suffix), code.text));
    }
  }
  return {};
}

Status dump_plan(const Module& module, const PlanOptions& options) {
  STEPC_ASSIGN(const ModuleLayout layout, layout_persistents(module, options));
  for (const Program& program : module.programs) {
    STEPC_ASSIGN(const Plan plan, plan_program(program, layout, unscheduled_launches(program), options));
    fmt::print("{}\n", plan_text(plan));
  }
  return {};
}

// Runs the passes; with a folder each leaves a numbered file, unless it changed nothing.
Status run_and_record(Module& module, const DumpOptions& options, const std::string& stop_after,
                      PassOptions pass_options) {
  int number = 0;
  std::string before = print_module(module);
  Status written;
  const auto record = [&](std::string_view name, const std::string& text) {
    if (written) written = write_file_atomic(fmt::format("{}/{:02d}.{}.gir", options.folder, number++, name), text);
  };
  pass_options.disable = options.disable;
  pass_options.stop_after = stop_after;
  pass_options.updates_apart = options.updates_apart;
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
  STEPC_ASSIGN(const CodeTarget target, code_target(options.arch, options.baseline));
  STEPC_ASSIGN(Module module, options.source.load());
  if (!options.program.empty()) STEPC_TRY(keep_program(module, options.program));
  const std::vector<std::string_view> stages = stage_names(target);
  const bool known = std::find(stages.begin(), stages.end(), options.stage) != stages.end();
  if (!known)
    return user_error("--stage {}: unknown{}; the stages are {}", options.stage, did_you_mean(options.stage, stages),
                      fmt::join(stages, ", "));
  if (options.stage != "graph")
    STEPC_TRY(run_and_record(module, options, is_pass(options.stage) ? options.stage : "", pass_options(target)));
  if (!options.folder.empty()) return write_kernel_files(module, options, target);
  if (options.stage == "plan") return dump_plan(module, plan_options(target));
  if (is_kernel_stage(options.stage) || !options.kernel.empty()) return dump_kernels(module, options, target);
  fmt::print("{}", print_module(module));
  return {};
}

}  // namespace

void register_dump(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* command = app.add_subcommand("dump", "Show a program at any level");
  options->source.add_to(*command);
  command->add_option("--arch", options->arch, "Architecture of the kernels: " + architectures_text());
  command->add_flag("--baseline-cpu", options->baseline, "Generate host code without AVX-512");
  add_updates_apart(*command, options->updates_apart);
  command->add_option("--stage", options->stage,
                      "graph, a pass's name, fused, kernel, llvm, asm (of a GPU: ptx), plan");
  command->add_option("--program", options->program, "Only this program");
  command->add_option("--kernel", options->kernel, "Only this kernel; without a kernel stage at every level");
  command->add_option("--dump-dir", options->folder, "Write numbered files after each pass, and every kernel");
  command->add_option("--disable", options->disable, "Pass to leave out; may be repeated");
  command->callback([options, &outcome] { outcome.status = dump(*options); });
}

}  // namespace stepc
