#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "ir/graph/print.h"
#include "ir/plan/verify.h"
#include "ir/support/check.h"
#include "runtime/buffer_places.h"
#include "runtime/staging.h"

namespace stepc {
namespace {

constexpr int64_t kPieceBytes = int64_t{64} << 20;  // of a tensor on its way to a file

std::string type_or_size(const HostTensorView& tensor, const TensorType& expected) {
  if (tensor.type != expected) return type_text(tensor.type);
  return fmt::format("{} bytes", tensor.bytes.size());
}

Status check_tensor(std::string_view what, const HostTensorView& tensor, const TensorType& expected) {
  const int64_t bytes = numel(expected.shape) * dtype_bytes(expected.dtype);
  if (tensor.type == expected && static_cast<int64_t>(tensor.bytes.size()) == bytes) return {};
  return user_error("{}: expected {}, found {}", what, type_text(expected), type_or_size(tensor, expected));
}

// A run in flight: its own pinned memory, so that two runs of a program do not meet.
struct Slot {
  enum class State : uint8_t { free, started, fetched };
  State state = State::free;
  int64_t number = -1;  // the run's among its program's
  char* inputs = nullptr;
  char* outputs = nullptr;
  std::vector<EventHandle> events;  // ready and done; of a profiled run, one before each step and after the last
  EventHandle ready = {};           // the outputs are in pinned memory
  EventHandle done = {};
  bool profiled = false;
};

// A program and all that its runs need.
struct Runner {
  BoundPlan bound;
  Staging inputs, outputs;
  std::array<Slot, 2> slots;
  int64_t runs = 0;
  std::array<std::optional<GraphHandle>, 2> graphs;  // up to the outputs, and the rest
  std::vector<double> milliseconds;                  // by step, of profiled runs
  int64_t profiled_runs = 0;

  const Plan& plan() const { return bound.plan(); }
};

Error within(const Plan& plan, Error error) {
  error.message = fmt::format("program @{}: {}", plan.program, error.message);
  return error;
}

}  // namespace

struct Executor::Impl {
  Device& device;
  Bundle bundle;
  ExecutorOptions options;
  std::optional<BufferPlaces> places;
  std::vector<KernelHandle> kernels;
  std::vector<Runner> runners;
  bool fetch_expected = false;  // the outputs of the last run

  Impl(Device& on, Bundle what, ExecutorOptions how) : device(on), bundle(std::move(what)), options(std::move(how)) {}
  ~Impl() {
    (void)device.synchronize();  // a run may be in flight, on memory that goes now
    for (Runner& runner : runners) {
      for (const auto& graph : runner.graphs)
        if (graph) device.free_graph(*graph);
      for (Slot& slot : runner.slots) {
        device.release_events(slot.events);
        if (slot.inputs) device.free_host(slot.inputs);
        if (slot.outputs) device.free_host(slot.outputs);
      }
    }
  }

  Status load_kernels() {
    for (const BundleKernel& kernel : bundle.kernels) {
      auto handle = device.load({kernel.name, kernel.object, kernel.shared_bytes, kernel.launch});
      if (!handle) return system_error("kernel {}: {}", kernel.name, handle.error().message);
      kernels.push_back(*handle);
    }
    return {};
  }

  void bind(const Plan& plan) {
    BoundPlan bound(plan, places->of_plan(plan));
    const bool join = !places->separate();
    Staging inputs = plan_staging(plan, plan.inputs, bound.addresses(), join);
    Staging outputs = plan_staging(plan, plan.outputs, bound.addresses(), join);
    runners.push_back({std::move(bound), std::move(inputs), std::move(outputs), {}, 0, {}, {}, 0});
    runners.back().milliseconds.resize(plan.steps.size());
  }

  // ---- inputs and outputs

  Status check_inputs(const Plan& plan, const Inputs& given) {
    for (const PlanPort& port : plan.inputs) {
      const auto found = given.find(port.name);
      const TensorType& type = plan.buffers[static_cast<size_t>(port.buffer)].type;
      if (found == given.end())
        return user_error("program @{}: input {}: expected {}, found none", plan.program, port.name, type_text(type));
      STEPC_TRY(check_tensor(fmt::format("program @{}: input {}", plan.program, port.name), found->second, type));
    }
    for (const auto& [name, tensor] : given)
      if (std::none_of(plan.inputs.begin(), plan.inputs.end(), [&](const PlanPort& port) { return port.name == name; }))
        return user_error("program @{} has no input {}", plan.program, name);
    return {};
  }

  Result<char*> pinned(int64_t bytes) {
    STEPC_ASSIGN(void* const memory, device.allocate_host(bytes));
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return static_cast<char*>(memory);
  }

  Status send_inputs(const Runner& runner, Slot& slot, const Inputs& given) {
    if (runner.inputs.bytes > 0 && !slot.inputs) {
      STEPC_ASSIGN(slot.inputs, pinned(runner.inputs.bytes));
    }
    for (const StagedPort& port : runner.inputs.ports) {
      const std::span<const char> bytes = given.at(port.port->name).bytes;
      if (port.at < 0)
        STEPC_TRY(device.copy_in(port.address, bytes.data(), port.buffer->bytes));
      else
        std::copy(bytes.begin(), bytes.end(), slot.inputs + port.at);
    }
    for (const StagedPiece& piece : runner.inputs.pieces)
      STEPC_TRY(device.copy_in_later(piece.address, slot.inputs + piece.at, piece.bytes));
    return {};
  }

  Status send_outputs(const Runner& runner, Slot& slot) {
    if (runner.outputs.bytes > 0 && !slot.outputs) {
      STEPC_ASSIGN(slot.outputs, pinned(runner.outputs.bytes));
    }
    for (const StagedPiece& piece : runner.outputs.pieces)
      STEPC_TRY(device.copy_out_later(slot.outputs + piece.at, piece.address, piece.bytes));
    return {};
  }

  Result<Outputs> collect(const Runner& runner, const Slot& slot) {
    Outputs outputs;
    for (const StagedPort& port : runner.outputs.ports) {
      HostTensor tensor{port.buffer->type, std::vector<char>(static_cast<size_t>(port.buffer->bytes))};
      if (port.at < 0)
        STEPC_TRY(device.copy_out(tensor.bytes.data(), port.address, port.buffer->bytes));
      else
        std::copy_n(slot.outputs + port.at, port.buffer->bytes, tensor.bytes.begin());
      outputs.emplace(port.port->name, std::move(tensor));
    }
    return outputs;
  }

  // ---- steps

  Result<EventHandle> mark(Slot& slot) {
    STEPC_ASSIGN(const EventHandle event, device.record_event());
    slot.events.push_back(event);
    return event;
  }

  Status walk(const Runner& runner, Slot& slot, size_t begin, size_t end, const RunOptions& run) {
    for (size_t step = begin; step < end; ++step) {
      if (auto status = runner.bound.run_step(device, kernels, options.host_functions, step); !status) {
        Error error = std::move(status).error();
        error.message = fmt::format("step {} ({}): {}", step, runner.plan().steps[step].name, error.message);
        return tl::unexpected(within(runner.plan(), std::move(error)));
      }
      if (run.profile) STEPC_TRY(mark(slot));
      if (run.check) STEPC_TRY(runner.bound.check_step(device, step));
    }
    return {};
  }

  // Half 0 or 1 of the steps. The first run walks: what a kernel needs once happens outside of graphs.
  Status run_half(Runner& runner, Slot& slot, size_t half, const RunOptions& run) {
    const size_t middle = runner.bound.outputs_end();
    const size_t begin = half == 0 ? 0 : middle, end = half == 0 ? middle : runner.plan().steps.size();
    const bool walks = run.profile || run.check || runner.runs == 0;
    if (walks || !options.graphs || !device.runs_ahead() || !runner.bound.fits_graph(begin, end))
      return walk(runner, slot, begin, end, run);
    std::optional<GraphHandle>& graph = runner.graphs[half];
    if (!graph) {
      STEPC_TRY(device.begin_graph());
      const Status taken_down = walk(runner, slot, begin, end, run);
      auto made = device.end_graph(runner.plan().program + (half == 0 ? "" : " after its outputs"));
      STEPC_TRY(taken_down);
      if (!made) return tl::unexpected(within(runner.plan(), std::move(made).error()));
      graph = *made;
    }
    if (auto status = device.run_graph(*graph); !status)
      return tl::unexpected(within(runner.plan(), std::move(status).error()));
    return {};
  }

  Status submit(Runner& runner, Slot& slot, const Inputs& given, const RunOptions& run) {
    if (run.poison) STEPC_TRY(places->poison(runner.plan()));
    STEPC_TRY(send_inputs(runner, slot, given));
    slot.profiled = run.profile;
    if (run.profile) STEPC_TRY(mark(slot));
    STEPC_TRY(run_half(runner, slot, 0, run));
    STEPC_TRY(send_outputs(runner, slot));
    STEPC_ASSIGN(slot.ready, device.record_event());
    STEPC_TRY(run_half(runner, slot, 1, run));
    STEPC_ASSIGN(slot.done, device.record_event());
    ++runner.runs;
    return {};
  }

  // A start that failed: what it began may still use the slot's memory, and leaves no times behind.
  void abandon(Slot& slot) {
    (void)device.synchronize();
    device.release_events(slot.events);
    slot.events.clear();
  }

  Status finish(Runner& runner, Slot& slot) {
    if (auto status = device.wait_for(slot.done); !status)
      return tl::unexpected(within(runner.plan(), std::move(status).error()));
    for (size_t step = 0; slot.profiled && step + 1 < slot.events.size(); ++step) {
      STEPC_ASSIGN(const double milliseconds, device.milliseconds_between(slot.events[step], slot.events[step + 1]));
      runner.milliseconds[step] += milliseconds;
    }
    runner.profiled_runs += slot.profiled ? 1 : 0;
    slot.events.insert(slot.events.end(), {slot.ready, slot.done});
    device.release_events(slot.events);
    slot.events.clear();
    slot.state = Slot::State::free;
    return {};
  }

  Slot& slot_of(RunHandle run) {
    return runners[static_cast<size_t>(run.program)].slots[static_cast<size_t>(run.slot)];
  }
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;
const Bundle& Executor::bundle() const { return impl_->bundle; }
bool Executor::runs_ahead() const { return impl_->device.runs_ahead(); }

Result<std::unique_ptr<Executor>> Executor::create(Device& device, Bundle bundle, ExecutorOptions options) {
  STEPC_TRY(verify_bundle(bundle));
  auto impl = std::make_unique<Impl>(device, std::move(bundle), std::move(options));
  STEPC_ASSIGN(auto places, BufferPlaces::allocate(device, impl->bundle, impl->options.separate_buffers));
  impl->places.emplace(std::move(places));
  STEPC_TRY(impl->load_kernels());
  for (const Plan& plan : impl->bundle.plans) impl->bind(plan);
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

Result<RunHandle> Executor::start(std::string_view program, const Inputs& inputs, const RunOptions& options) {
  auto& runners = impl_->runners;
  const auto found = std::find_if(runners.begin(), runners.end(),
                                  [&](const Runner& runner) { return runner.plan().program == program; });
  if (found == runners.end()) return user_error("module \"{}\" has no program @{}", impl_->bundle.module_name, program);
  STEPC_CHECK(!impl_->fetch_expected, "a run of @{} before the outputs of the one before were fetched", program);
  STEPC_TRY(impl_->check_inputs(found->plan(), inputs));
  const int64_t number = found->runs;
  const RunHandle run{static_cast<int>(found - runners.begin()), static_cast<int>(number % 2), number};
  Slot& slot = impl_->slot_of(run);
  if (slot.state == Slot::State::fetched) STEPC_TRY(impl_->finish(*found, slot));
  if (auto status = impl_->submit(*found, slot, inputs, options); !status) {
    impl_->abandon(slot);
    return tl::unexpected(std::move(status).error());
  }
  slot.state = Slot::State::started;
  slot.number = number;
  impl_->fetch_expected = true;
  return run;
}

Result<Executor::Outputs> Executor::outputs(RunHandle run) {
  Runner& runner = impl_->runners[static_cast<size_t>(run.program)];
  Slot& slot = impl_->slot_of(run);
  STEPC_CHECK(slot.state == Slot::State::started && slot.number == run.number,
              "outputs of run {} of @{}, which has none", run.number, runner.plan().program);
  impl_->fetch_expected = false;
  slot.state = Slot::State::fetched;
  if (auto status = impl_->device.wait_for(slot.ready); !status)
    return tl::unexpected(within(runner.plan(), std::move(status).error()));
  return impl_->collect(runner, slot);
}

Status Executor::finish(RunHandle run) {
  Slot& slot = impl_->slot_of(run);
  if (slot.state == Slot::State::free || slot.number != run.number) return {};
  STEPC_CHECK(slot.state == Slot::State::fetched, "run {} is finished before its outputs are fetched", run.number);
  return impl_->finish(impl_->runners[static_cast<size_t>(run.program)], slot);
}

Result<Executor::Outputs> Executor::run(std::string_view program, const Inputs& inputs, const RunOptions& options) {
  STEPC_ASSIGN(const RunHandle handle, start(program, inputs, options));
  STEPC_ASSIGN(Outputs results, outputs(handle));
  STEPC_TRY(finish(handle));
  return results;
}

Status Executor::read_persistent(std::string_view name,
                                 const std::function<Status(std::span<const char>)>& sink) const {
  const PersistentPlacement* tensor = impl_->bundle.persistents.find(name);
  if (!tensor) return user_error("module \"{}\" has no tensor @{}", impl_->bundle.module_name, name);
  const DeviceAddress address = impl_->places->persistent(*tensor);
  std::vector<char> piece(static_cast<size_t>(std::min(tensor->bytes, kPieceBytes)));
  for (int64_t at = 0; at < tensor->bytes; at += kPieceBytes) {
    const int64_t bytes = std::min(kPieceBytes, tensor->bytes - at);
    STEPC_TRY(impl_->device.copy_out(piece.data(), address + at, bytes));
    STEPC_TRY(sink({piece.data(), static_cast<size_t>(bytes)}));
  }
  return {};
}

Result<HostTensor> Executor::read_persistent(std::string_view name) const {
  const PersistentPlacement* tensor = impl_->bundle.persistents.find(name);
  if (!tensor) return user_error("module \"{}\" has no tensor @{}", impl_->bundle.module_name, name);
  HostTensor result{tensor->type, {}};
  result.bytes.reserve(static_cast<size_t>(tensor->bytes));
  STEPC_TRY(read_persistent(name, [&](std::span<const char> piece) -> Status {
    result.bytes.insert(result.bytes.end(), piece.begin(), piece.end());
    return {};
  }));
  return result;
}

Status Executor::write_persistent(std::string_view name, const HostTensorView& tensor) {
  const PersistentPlacement* at = impl_->bundle.persistents.find(name);
  if (!at) return user_error("module \"{}\" has no tensor @{}", impl_->bundle.module_name, name);
  STEPC_TRY(check_tensor(fmt::format("@{}", name), tensor, at->type));
  return impl_->device.copy_in(impl_->places->persistent(*at), tensor.bytes.data(), at->bytes);
}

std::vector<StepTime> Executor::step_times() const {
  std::vector<StepTime> times;
  for (const Runner& runner : impl_->runners) {
    if (runner.profiled_runs == 0) continue;
    const Plan& plan = runner.plan();
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      const PlanStep& step = plan.steps[s];
      const auto* launch = std::get_if<LaunchStep>(&step.action);
      const std::string kernel = launch ? impl_->bundle.kernels[static_cast<size_t>(launch->kernel)].name : "";
      times.push_back({plan.program, step.name, kernel, step.phase, step.flops, step.matrix_flops, step.bytes,
                       runner.profiled_runs, runner.milliseconds[s]});
    }
  }
  return times;
}

}  // namespace stepc
