// stepc plan: what a training step needs, before anything is compiled: parameters, FLOPs, memory, roofline.
#include <algorithm>
#include <limits>

#include "compiler/pipeline.h"
#include "compiler/plan/fit.h"
#include "compiler/plan/plan.h"
#include "compiler/plan/report.h"
#include "compiler/plan/roofline.h"
#include "ir/support/file.h"
#include "ir/text/json.h"
#include "model/parameters.h"
#include "tools/stepc/commands.h"
#include "tools/stepc/parameter_report.h"
#include "tools/stepc/source.h"
#include "tools/stepc/target.h"

namespace stepc {
namespace {

struct PlanCommandOptions {
  ConfigOptions config;
  int64_t batch = 0;
  std::string arch = "host";
  std::string program;
  RecomputeChoice recompute;
  bool updates_apart = false;
  int64_t memory_gib = 0;
  std::string svg;
  std::string live_json;
  bool parameters = false;
  bool live = false;
  bool json = false;
};

struct Planned {
  Module module;
  ModuleLayout layout;
  Plan plan;
  FitReport fit;
  const Program* program = nullptr;
};

// What a program is planned for.
struct PlanTarget {
  PassOptions passes;
  PlanOptions options;
  FitOptions fit;
};

// The training program of the configuration (or the one that is asked for), fused and planned.
Result<std::unique_ptr<Planned>> plan_config(const Config& config, std::string_view wanted, const PlanTarget& target) {
  const std::string name = !wanted.empty()                  ? std::string(wanted)
                           : config.train.accumulation == 1 ? "step"
                                                            : "micro_step";
  auto planned = std::make_unique<Planned>();
  planned->module = build_model(config);
  STEPC_TRY(keep_program(planned->module, name));
  STEPC_TRY(run_passes(planned->module, target.passes));
  Program& program = planned->module.programs[0];
  planned->program = &program;
  STEPC_ASSIGN(planned->layout, layout_persistents(planned->module, target.options));
  STEPC_ASSIGN(planned->fit, fit_memory(program, planned->layout, {}, target.options, target.fit));
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

// Batches of more tokens than ids can count, or more bytes than 64 bits can, need more than there is.
Result<int64_t> find_largest_batch(const Config& config, const Planned& planned, std::string_view program,
                                   PlanTarget target, Recompute mode, int64_t available) {
  target.fit.mode = mode;
  const bool as_planned = mode == planned.fit.mode || (mode == Recompute::none && planned.fit.chosen.empty());
  const auto need = [&](int64_t batch) -> Result<int64_t> {
    if (as_planned && batch == config.train.batch) return memory_need(planned.plan, planned.layout).total_bytes;
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

// The largest batches: everything kept, and everything made again that can be.
struct LargestBatch {
  int64_t kept = 0;
  int64_t recomputed = 0;
};

JsonValue recompute_json(const FitReport& fit) {
  JsonValue out;
  out.add("mode", recompute_name(fit.mode));
  out.add("candidates", fit.candidates);
  out.add("bytes_before", fit.bytes_before);
  out.add("bytes_after", fit.bytes_after);
  JsonValue::Array values;
  for (const RecomputedValue& value : fit.chosen) {
    JsonValue item;
    item.add("name", value.name);
    item.add("saved_bytes", value.saved_bytes);
    item.add("moved_bytes", value.moved_bytes);
    item.add("flops", value.flops);
    values.push_back(std::move(item));
  }
  out.add("values", JsonValue(std::move(values)));
  return out;
}

std::vector<ParameterRow> rows_of(const Config& config, const Planned& planned) {
  return parameter_rows(config.model, planned.layout, planned.plan, planned.program);
}

JsonValue plan_json(const Config& config, const Planned& planned, int64_t available, const LargestBatch& batch,
                    const std::vector<RooflineRow>& rows) {
  JsonValue out;
  for (const TermCount& term : parameter_terms(config.model))
    out.add("parameters_" + std::string(term_name(term.term)), term.elements);
  out.add("parameters", parameter_count(config.model));
  out.add("dtypes", dtype_json(rows_of(config, planned)));
  out.add("flops_per_token", flops_per_token(config.model));
  out.add("causal_flops_per_token", causal_flops_per_token(config.model));
  const MemoryNeed need = memory_need(planned.plan, planned.layout);
  for (int arena = 0; arena < kPlanArenas; ++arena)
    out.add(fmt::format("{}_bytes", plan_arena_name(static_cast<PlanArena>(arena))),
            need.arena_bytes[static_cast<size_t>(arena)]);
  out.add("total_bytes", need.total_bytes);
  out.add("activations_lower_bound_bytes", planned.plan.lower_bound_bytes);
  out.add("available_bytes", available);
  out.add("recompute", recompute_json(planned.fit));
  out.add("largest_batch", batch.kept);
  out.add("largest_batch_recomputed", batch.recomputed);
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
  STEPC_ASSIGN(const CodeTarget code, code_target(options.arch, false));
  const auto peaks = device_peaks(options.arch);
  PlanTarget target{.passes = pass_options(code), .options = plan_options(code), .fit = {}};
  target.passes.updates_apart = options.updates_apart;
  const int64_t available = options.memory_gib > 0 ? options.memory_gib << 30 : memory_bytes(options.arch);
  STEPC_ASSIGN(target.fit.mode, options.recompute.mode());
  target.fit.available_bytes = available;
  STEPC_ASSIGN(const auto planned, plan_config(config, options.program, target));
  LargestBatch batch;
  STEPC_ASSIGN(batch.kept, find_largest_batch(config, *planned, options.program, target, Recompute::none, available));
  STEPC_ASSIGN(batch.recomputed,
               find_largest_batch(config, *planned, options.program, target, Recompute::all, available));
  std::vector<RooflineRow> rows;
  if (peaks) rows = roofline(*planned->program, *peaks);
  if (!options.svg.empty()) STEPC_TRY(write_file_atomic(options.svg, live_chart_svg(planned->plan)));
  if (!options.live_json.empty()) STEPC_TRY(write_file_atomic(options.live_json, live_chart_json(planned->plan)));
  if (options.json) {
    fmt::print("{}\n", json_text(plan_json(config, *planned, available, batch, rows)));
  } else {
    fmt::print("{}\n{}\n", parameter_text(config.model), memory_report(planned->plan, planned->layout));
    fmt::print("{}", fit_text(planned->fit, peaks ? std::optional(peaks->bytes_per_s) : std::nullopt));
    fmt::print("largest batch in {}: {}, {} with --recompute all\n", bytes_text(available), batch.kept,
               batch.recomputed);
    if (options.parameters) fmt::print("\n{}", parameter_table_text(rows_of(config, *planned)));
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
  options->recompute.add_to(*command);
  add_updates_apart(*command, options->updates_apart);
  command->add_option("--program", options->program, "Program to plan (default: the training step)");
  command->add_option("--memory-gib", options->memory_gib, "Memory to fit (default: the device's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--svg", options->svg, "Write a chart of what lives when");
  command->add_option("--live-json", options->live_json, "Write what lives when as JSON");
  command->add_flag("--parameters", options->parameters, "Show every parameter, and the dtypes of what is kept of it");
  command->add_flag("--live", options->live, "Show the live bytes of every step");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &outcome] { outcome.status = plan(*options); });
}

}  // namespace stepc
