#include "ir/plan/plan_json.h"

#include "ir/support/check.h"

namespace stepc {
namespace {

JsonValue ints(const std::vector<int>& values) { return JsonValue::list(values); }

JsonValue buffer_json(const PlanBuffer& buffer) {
  JsonValue json;
  json.add("name", buffer.name);
  json.add("arena", plan_arena_name(buffer.arena));
  json.add("dtype", dtype_name(buffer.type.dtype));
  json.add("shape", JsonValue::list(buffer.type.shape));
  json.add("offset_bytes", buffer.offset_bytes);
  if (buffer.alias_of >= 0) json.add("alias_of", buffer.alias_of);
  json.add("first_step", buffer.first_step);
  json.add("last_step", buffer.last_step);
  return json;
}

JsonValue ports_json(const std::vector<PlanPort>& ports) {
  JsonValue json{JsonValue::Object{}};
  for (const PlanPort& port : ports) json.add(port.name, port.buffer);
  return json;
}

JsonValue launch_json(const LaunchStep& launch) {
  JsonValue json;
  json.add("kernel", launch.kernel);
  json.add("grid", launch.grid);
  json.add("operands", ints(launch.operands));
  json.add("results", ints(launch.results));
  if (launch.workspace >= 0) json.add("workspace", launch.workspace);
  json.add("scalars", JsonValue::list(launch.scalars));
  return json;
}

void add_action(JsonValue& json, const PlanStep& step) {
  if (const auto* launch = std::get_if<LaunchStep>(&step.action)) {
    json.add("launch", launch_json(*launch));
  } else if (const auto* copy = std::get_if<CopyStep>(&step.action)) {
    json.add("copy", JsonValue::Object{{"from", copy->from}, {"to", copy->to}});
  } else if (const auto* fill = std::get_if<FillStep>(&step.action)) {
    json.add("fill", JsonValue::Object{{"buffer", fill->buffer}, {"value", fill->value}});
  } else if (const auto* call = std::get_if<HostCallStep>(&step.action)) {
    json.add(
        "host_call",
        JsonValue::Object{{"function", call->function}, {"reads", ints(call->reads)}, {"writes", ints(call->writes)}});
  }
}

JsonValue step_json(const PlanStep& step) {
  JsonValue json;
  json.add("name", step.name);
  add_action(json, step);
  json.add("phase", phase_name(step.phase));
  json.add("flops", step.flops);
  json.add("matrix_flops", step.matrix_flops);
  json.add("bytes", step.bytes);
  return json;
}

Result<int> read_index(const JsonCursor& cursor, std::string_view key, int64_t low = 0) {
  STEPC_ASSIGN(const int64_t value, cursor.integer(key, low, INT32_MAX));
  return static_cast<int>(value);
}

Result<std::vector<int>> read_indices(const JsonCursor& cursor, std::string_view key) {
  STEPC_ASSIGN(const JsonCursor at, cursor.member(key));
  STEPC_ASSIGN(const std::vector<int64_t> values, at.integers(0, INT32_MAX));
  return std::vector<int>(values.begin(), values.end());
}

Result<PlanBuffer> read_buffer(const JsonCursor& cursor) {
  PlanBuffer buffer;
  STEPC_ASSIGN(buffer.name, cursor.string("name"));
  STEPC_ASSIGN(buffer.arena, read_arena(cursor));
  STEPC_ASSIGN(buffer.type, read_type(cursor));
  STEPC_ASSIGN(buffer.bytes, checked_bytes(buffer.type));
  STEPC_ASSIGN(buffer.offset_bytes, cursor.integer("offset_bytes", 0));
  if (cursor.has("alias_of")) {
    STEPC_ASSIGN(buffer.alias_of, read_index(cursor, "alias_of"));
  }
  STEPC_ASSIGN(buffer.first_step, read_index(cursor, "first_step", -1));
  STEPC_ASSIGN(buffer.last_step, read_index(cursor, "last_step", -1));
  return buffer;
}

Result<std::vector<PlanPort>> read_ports(const JsonCursor& cursor, std::string_view key) {
  STEPC_ASSIGN(const JsonCursor at, cursor.member(key));
  STEPC_ASSIGN(const auto members, at.members());
  std::vector<PlanPort> ports;
  for (const auto& [name, buffer_at] : members) {
    STEPC_ASSIGN(const int64_t buffer, buffer_at.integer(0, INT32_MAX));
    ports.push_back({name, static_cast<int>(buffer)});
  }
  return ports;
}

Result<LaunchStep> read_launch(const JsonCursor& cursor) {
  LaunchStep launch;
  STEPC_ASSIGN(launch.kernel, read_index(cursor, "kernel", -1));
  STEPC_ASSIGN(launch.grid, cursor.integer("grid", 0));
  STEPC_ASSIGN(launch.operands, read_indices(cursor, "operands"));
  STEPC_ASSIGN(launch.results, read_indices(cursor, "results"));
  if (cursor.has("workspace")) {
    STEPC_ASSIGN(launch.workspace, read_index(cursor, "workspace"));
  }
  STEPC_ASSIGN(const JsonCursor scalars_at, cursor.member("scalars"));
  STEPC_ASSIGN(launch.scalars, scalars_at.integers());
  return launch;
}

Result<CopyStep> read_copy(const JsonCursor& cursor) {
  CopyStep copy;
  STEPC_ASSIGN(copy.from, read_index(cursor, "from"));
  STEPC_ASSIGN(copy.to, read_index(cursor, "to"));
  return copy;
}

Result<FillStep> read_fill(const JsonCursor& cursor) {
  FillStep fill;
  STEPC_ASSIGN(fill.buffer, read_index(cursor, "buffer"));
  STEPC_ASSIGN(const JsonCursor value_at, cursor.member("value"));
  STEPC_ASSIGN(fill.value, value_at.number());
  return fill;
}

Result<HostCallStep> read_host_call(const JsonCursor& cursor) {
  HostCallStep call;
  STEPC_ASSIGN(call.function, cursor.string("function"));
  STEPC_ASSIGN(call.reads, read_indices(cursor, "reads"));
  STEPC_ASSIGN(call.writes, read_indices(cursor, "writes"));
  return call;
}

template <class Action>
Status read_action(const JsonCursor& cursor, std::string_view key, Result<Action> (*read)(const JsonCursor&),
                   PlanStep& step) {
  STEPC_ASSIGN(const JsonCursor at, cursor.member(key));
  STEPC_ASSIGN(step.action, read(at));
  return {};
}

Status read_action(const JsonCursor& cursor, PlanStep& step) {
  if (cursor.has("launch")) return read_action(cursor, "launch", read_launch, step);
  if (cursor.has("copy")) return read_action(cursor, "copy", read_copy, step);
  if (cursor.has("fill")) return read_action(cursor, "fill", read_fill, step);
  if (cursor.has("host_call")) return read_action(cursor, "host_call", read_host_call, step);
  return cursor.error("expected one of launch, copy, fill and host_call, found none");
}

Result<PlanStep> read_step(const JsonCursor& cursor) {
  PlanStep step;
  STEPC_ASSIGN(step.name, cursor.string("name"));
  STEPC_TRY(read_action(cursor, step));
  STEPC_ASSIGN(const JsonCursor phase_at, cursor.member("phase"));
  STEPC_ASSIGN(const std::string phase_text, phase_at.string());
  const auto phase = phase_from_name(phase_text);
  if (!phase) return phase_at.mismatch("forward, backward or optimizer");
  step.phase = *phase;
  STEPC_ASSIGN(step.flops, cursor.integer("flops", 0));
  STEPC_ASSIGN(step.matrix_flops, cursor.integer("matrix_flops", 0, step.flops));
  STEPC_ASSIGN(step.bytes, cursor.integer("bytes", 0));
  return step;
}

}  // namespace

Result<PlanArena> read_arena(const JsonCursor& cursor) {
  STEPC_ASSIGN(const JsonCursor at, cursor.member("arena"));
  STEPC_ASSIGN(const std::string text, at.string());
  const auto arena = plan_arena_from_name(text);
  if (!arena) return at.mismatch("weights, optimizer, gradients, activations or io");
  return *arena;
}

Result<TensorType> read_type(const JsonCursor& cursor) {
  STEPC_ASSIGN(const JsonCursor dtype_at, cursor.member("dtype"));
  STEPC_ASSIGN(const std::string dtype_text, dtype_at.string());
  const auto dtype = dtype_from_name(dtype_text);
  if (!dtype) return dtype_at.mismatch("f32, bf16, i32 or pred");
  STEPC_ASSIGN(const JsonCursor shape_at, cursor.member("shape"));
  STEPC_ASSIGN(Shape shape, shape_at.integers(0));
  return TensorType{*dtype, std::move(shape)};
}

JsonValue plan_json(const Plan& plan) {
  JsonValue json;
  json.add("program", plan.program);
  json.add("alignment_bytes", plan.alignment_bytes);
  json.add("activations_bytes", plan.activations_bytes);
  json.add("io_bytes", plan.io_bytes);
  json.add("lower_bound_bytes", plan.lower_bound_bytes);
  json.add("packing", plan.packing);
  json.add("inputs", ports_json(plan.inputs));
  json.add("outputs", ports_json(plan.outputs));
  JsonValue::Array buffers, steps;
  for (const PlanBuffer& buffer : plan.buffers) buffers.push_back(buffer_json(buffer));
  for (const PlanStep& step : plan.steps) steps.push_back(step_json(step));
  json.add("buffers", std::move(buffers));
  json.add("steps", std::move(steps));
  return json;
}

Result<Plan> read_plan(const JsonCursor& cursor) {
  STEPC_TRY(cursor.expect_keys({"program", "alignment_bytes", "activations_bytes", "io_bytes", "lower_bound_bytes",
                                "packing", "inputs", "outputs", "buffers", "steps"}));
  Plan plan;
  STEPC_ASSIGN(plan.program, cursor.string("program"));
  STEPC_ASSIGN(plan.alignment_bytes, cursor.integer("alignment_bytes", 1));
  STEPC_ASSIGN(plan.activations_bytes, cursor.integer("activations_bytes", 0));
  STEPC_ASSIGN(plan.io_bytes, cursor.integer("io_bytes", 0));
  STEPC_ASSIGN(plan.lower_bound_bytes, cursor.integer("lower_bound_bytes", 0));
  STEPC_ASSIGN(plan.packing, cursor.string("packing"));
  STEPC_ASSIGN(plan.inputs, read_ports(cursor, "inputs"));
  STEPC_ASSIGN(plan.outputs, read_ports(cursor, "outputs"));
  STEPC_ASSIGN(const JsonCursor buffers_at, cursor.member("buffers"));
  STEPC_ASSIGN(const auto buffers, buffers_at.items());
  for (const JsonCursor& at : buffers) {
    STEPC_ASSIGN(PlanBuffer buffer, read_buffer(at));
    plan.buffers.push_back(std::move(buffer));
  }
  STEPC_ASSIGN(const JsonCursor steps_at, cursor.member("steps"));
  STEPC_ASSIGN(const auto steps, steps_at.items());
  for (const JsonCursor& at : steps) {
    STEPC_ASSIGN(PlanStep step, read_step(at));
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

}  // namespace stepc
