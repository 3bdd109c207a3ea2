// stepc run: a program of a graph file on this machine, tensors in and out as safetensors.
#include "runtime/safetensors.h"
#include "tools/stepc/commands.h"
#include "tools/stepc/session.h"
#include "tools/stepc/source.h"

namespace stepc {
namespace {

struct RunCommandOptions {
  SourceOptions source;
  DeviceOptions device;
  std::string program;
  std::string inputs;
  std::string outputs;
  std::string state;
  std::string state_out;
  bool check = false;
};

// The module's only program, or the one that is asked for.
Result<std::string> choose_program(const Module& module, const std::string& wanted) {
  std::string names;
  for (const Program& program : module.programs) names += (names.empty() ? "" : ", ") + program.name;
  if (wanted.empty() && module.programs.size() == 1) return module.programs[0].name;
  if (wanted.empty()) return user_error("--program is needed: the module has {}", names);
  return wanted;
}

Result<std::map<std::string, HostTensorView>> read_inputs(const Plan& plan, const SafetensorsFile* file) {
  std::map<std::string, HostTensorView> inputs;
  for (const PlanPort& port : plan.inputs) {
    const TensorType& type = plan.buffers[static_cast<size_t>(port.buffer)].type;
    if (!file) return user_error("program {} takes input {}: give --inputs", plan.program, port.name);
    STEPC_ASSIGN(const auto bytes, file->tensor(port.name, type));
    inputs.emplace(port.name, HostTensorView{type, bytes});
  }
  return inputs;
}

Status write_outputs(const std::map<std::string, HostTensor>& outputs, const std::string& path) {
  std::vector<TensorBytes> tensors;
  for (const auto& [name, tensor] : outputs) {
    tensors.push_back({name, tensor.type, tensor.bytes});
    fmt::print("{}: {}{}", name, dtype_name(tensor.type.dtype), shape_text(tensor.type.shape));
    if (tensor.type.dtype == Dtype::f32 && tensor.bytes.size() == 4) fmt::print(" = {}", elements<float>(tensor)[0]);
    fmt::print("\n");
  }
  return path.empty() ? Status() : write_safetensors(path, tensors);
}

Status run(const RunCommandOptions& options) {
  STEPC_ASSIGN(Module module, options.source.load());
  STEPC_ASSIGN(const std::string program, choose_program(module, options.program));
  STEPC_TRY(keep_program(module, program));
  std::optional<SafetensorsFile> input_file;
  if (!options.inputs.empty()) {
    STEPC_ASSIGN(input_file, SafetensorsFile::open(options.inputs));
  }
  STEPC_ASSIGN(Session session, Session::create(std::move(module), options.device));
  for (const std::string& what : session.start_times().lower.recomputed) fmt::print("recompute {}\n", what);
  Executor& executor = session.executor();
  if (!options.state.empty()) {
    STEPC_ASSIGN(const SafetensorsFile state, SafetensorsFile::open(options.state));
    for (const PersistentPlacement& tensor : executor.bundle().persistents.tensors) {
      STEPC_ASSIGN(const auto bytes, state.tensor(tensor.name, tensor.type));
      STEPC_TRY(executor.write_persistent(tensor.name, {tensor.type, bytes}));
    }
  }
  STEPC_ASSIGN(const auto inputs,
               read_inputs(*executor.bundle().find_plan(program), input_file ? &*input_file : nullptr));
  STEPC_ASSIGN(const auto outputs, executor.run(program, inputs, {.check = options.check}));
  STEPC_TRY(write_outputs(outputs, options.outputs));
  return options.state_out.empty() ? Status() : write_safetensors(options.state_out, persistent_streams(executor));
}

}  // namespace

void register_run(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<RunCommandOptions>();
  CLI::App* command = app.add_subcommand("run", "Run a program of a graph file");
  options->source.add_to(*command);
  options->device.add_to(*command);
  options->device.add_device_to(*command);
  options->device.recompute.add_to(*command);
  command->add_option("--program", options->program, "Which program, if the module has several");
  command->add_option("--inputs", options->inputs, "safetensors file with the program's inputs");
  command->add_option("--outputs", options->outputs, "safetensors file to write the outputs to");
  command->add_option("--state", options->state, "safetensors file of parameters and states (default: zeros)");
  command->add_option("--state-out", options->state_out, "safetensors file to write parameters and states to");
  command->add_flag("--check", options->check, "Look for NaN after every kernel");
  command->callback([options, &outcome] { outcome.status = run(*options); });
}

}  // namespace stepc
