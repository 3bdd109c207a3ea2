// stepc plan: what a training step needs, before anything is compiled: parameters, FLOPs, memory, roofline.
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "compiler/lower_gpu.h"
#include "compiler/pipeline.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/report.h"
#include "compiler/plan/roofline.h"
#include "ir/support/file.h"
#include "ir/text/json.h"
#include "model/parameters.h"
#include "tools/stepc/commands.h"
#include "tools/stepc/source.h"
#include "tools/stepc/target.h"

namespace stepc {
namespace {

struct PlanCommandOptions {
  ConfigOptions config;
  int64_t batch = 0;
  std::string arch = "host";
  std::string program;
  int64_t memory_gib = 0;
  std::string svg;
  std::string live_json;
  bool live = false;
  bool json = false;
};

struct Planned {
  Module module;
  ModuleLayout layout;
  Plan plan;
  const Program* program = nullptr;
};

// What a program is planned for.
struct PlanTarget {
  PlanOptions options;
  bool is_gpu = false;
};

// The training program of the configuration (or the one that is asked for), fused and planned.
Result<std::unique_ptr<Planned>> plan_config(const Config& config, std::string_view wanted, const PlanTarget& target) {
  const std::string name = !wanted.empty()                  ? std::string(wanted)
                           : config.train.accumulation == 1 ? "step"
                                                            : "micro_step";
  auto planned = std::make_unique<Planned>();
  planned->module = build_model(config);
  STEPC_TRY(keep_program(planned->module, name));
  STEPC_TRY(run_passes(planned->module, {.for_gpu = target.is_gpu}));
  planned->program = planned->module.find_program(name);
  STEPC_ASSIGN(planned->layout, layout_persistents(planned->module, target.options));
  STEPC_ASSIGN(planned->plan, plan_program(*planned->program, planned->layout, unscheduled_launches(*planned->program),
                                           target.options));
  return planned;
}

std::string parameter_text(const ModelConfig& model) {
  std::string text = "parameters\n";
  for (const TermCount& term : parameter_terms(model))
    text += fmt::format("{:>16}  {}\n", term.elements, term_name(term.term));
  text += fmt::format("{:>16}  in all\n", parameter_count(model));
  text += fmt::format("FLOPs per token: {} (attention counted non-causally), {} (causally)\n", flops_per_token(model),
                      causal_flops_per_token(model));
  return text;
}

int64_t available_bytes(const PlanCommandOptions& options, const std::optional<DevicePeaks>& peaks) {
  if (options.memory_gib > 0) return options.memory_gib << 30;
  if (peaks) return peaks->memory_bytes;
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// Batches of more tokens than ids can count, or more bytes than 64 bits can, need more than there is.
Result<int64_t> find_largest_batch(const Config& config, const Planned& planned, std::string_view program,
                                   const PlanTarget& target, int64_t available) {
  const auto need = [&](int64_t batch) -> Result<int64_t> {
    if (batch == config.train.batch) return memory_need(planned.plan, planned.layout).total_bytes;
    Config changed = config;
    changed.train.batch = batch;
    constexpr int64_t kTooMuch = std::numeric_limits<int64_t>::max();
    if (!validate(changed)) return kTooMuch;
    const auto other = plan_config(changed, program, target);
    return other ? memory_need((*other)->plan, (*other)->layout).total_bytes : kTooMuch;
  };
  constexpr int64_t kLimit = int64_t{1} << 16;
  return largest_batch(available, kLimit, need, std::min(config.train.batch, kLimit));
}

JsonValue plan_json(const Config& config, const Planned& planned, int64_t available, int64_t batch,
                    const std::vector<RooflineRow>& rows) {
  JsonValue out;
  for (const TermCount& term : parameter_terms(config.model))
    out.add("parameters_" + std::string(term_name(term.term)), term.elements);
  out.add("parameters", parameter_count(config.model));
  out.add("flops_per_token", flops_per_token(config.model));
  out.add("causal_flops_per_token", causal_flops_per_token(config.model));
  const MemoryNeed need = memory_need(planned.plan, planned.layout);
  for (int arena = 0; arena < kPlanArenas; ++arena)
    out.add(fmt::format("{}_bytes", plan_arena_name(static_cast<PlanArena>(arena))),
            need.arena_bytes[static_cast<size_t>(arena)]);
  out.add("total_bytes", need.total_bytes);
  out.add("activations_lower_bound_bytes", planned.plan.lower_bound_bytes);
  out.add("available_bytes", available);
  out.add("largest_batch", batch);
  JsonValue::Array kernels;
  for (const RooflineRow& row : rows) {
    JsonValue item;
    item.add("kernels", row.kernels);
    item.add("count", row.count);
    item.add("flops", row.flops);
    item.add("bytes", row.bytes);
    item.add("floor_ms", row.floor_ms);
    kernels.push_back(std::move(item));
  }
  out.add("kernels", JsonValue(std::move(kernels)));
  return out;
}

Status plan(const PlanCommandOptions& options) {
  STEPC_ASSIGN(Config config, options.config.resolve());
  if (options.batch > 0) config.train.batch = options.batch;
  STEPC_TRY(validate(config));
  STEPC_TRY(code_target(options.arch, false));
  const auto peaks = device_peaks(options.arch);
  PlanTarget target{.options = {}, .is_gpu = peaks.has_value()};
  if (peaks) target.options.alignment_bytes = kGpuAlignmentBytes;
  STEPC_ASSIGN(const auto planned, plan_config(config, options.program, target));
  const int64_t available = available_bytes(options, peaks);
  STEPC_ASSIGN(const int64_t batch, find_largest_batch(config, *planned, options.program, target, available));
  std::vector<RooflineRow> rows;
  if (peaks) rows = roofline(*planned->program, *peaks);
  if (!options.svg.empty()) STEPC_TRY(write_file_atomic(options.svg, live_chart_svg(planned->plan)));
  if (!options.live_json.empty()) STEPC_TRY(write_file_atomic(options.live_json, live_chart_json(planned->plan)));
  if (options.json) {
    fmt::print("{}\n", json_text(plan_json(config, *planned, available, batch, rows)));
  } else {
    fmt::print("{}\n{}\n", parameter_text(config.model), memory_report(planned->plan, planned->layout));
    fmt::print("largest batch in {}: {}\n", bytes_text(available), batch);
    if (options.live) fmt::print("\n{}", live_chart_text(planned->plan));
    if (peaks) fmt::print("\n{}", roofline_report(*planned->program, *peaks));
  }
  return check_fits(planned->plan, planned->layout, available);
}

}  // namespace

void register_plan(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<PlanCommandOptions>();
  CLI::App* command = app.add_subcommand("plan", "Parameters, FLOPs, memory and roofline of a training step");
  options->config.add_to(*command);
  command->add_option("--batch", options->batch, "Sequences per step")->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--arch", options->arch, "One of " + architectures_text());
  command->add_option("--program", options->program, "Program to plan (default: the training step)");
  command->add_option("--memory-gib", options->memory_gib, "Memory to fit (default: the device's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--svg", options->svg, "Write a chart of what lives when");
  command->add_option("--live-json", options->live_json, "Write what lives when as JSON");
  command->add_flag("--live", options->live, "Show the live bytes of every step");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &outcome] { outcome.status = plan(*options); });
}

}  // namespace stepc
