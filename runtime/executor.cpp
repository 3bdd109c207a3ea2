#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ir/graph/print.h"
#include "ir/plan/verify.h"
#include "ir/support/check.h"
#include "ir/support/checked.h"
#include "runtime/nan_check.h"

namespace stepc {
namespace {

constexpr int64_t kPieceBytes = int64_t{64} << 20;  // of a tensor on its way to a file

// A plan whose buffers have addresses.
struct BoundPlan {
  const Plan* plan = nullptr;
  std::vector<DeviceAddress> addresses;               // by buffer
  std::vector<std::vector<DeviceAddress>> arguments;  // by step: a launch's buffers in order
  int64_t scalar_bytes = 0;                           // of io: where inputs and outputs of shape [] lie
  std::vector<double> milliseconds;                   // by step, of profiled runs
  int64_t profiled_runs = 0;
};

std::string type_or_size(const HostTensorView& tensor, const TensorType& expected) {
  if (tensor.type != expected) return type_text(tensor.type);
  return fmt::format("{} bytes", tensor.bytes.size());
}

Status check_tensor(std::string_view what, const HostTensorView& tensor, const TensorType& expected) {
  const int64_t bytes = numel(expected.shape) * dtype_bytes(expected.dtype);
  if (tensor.type == expected && static_cast<int64_t>(tensor.bytes.size()) == bytes) return {};
  return user_error("{}: expected {}, found {}", what, type_text(expected), type_or_size(tensor, expected));
}

uint32_t fill_pattern(Dtype dtype, double value) {
  switch (dtype) {
    case Dtype::f32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    case Dtype::bf16: return bf16_from_f32(static_cast<float>(value));
    case Dtype::i32: return static_cast<uint32_t>(static_cast<int32_t>(value));
    case Dtype::pred: return value != 0 ? 1 : 0;
  }
  STEPC_UNREACHABLE("dtype {}", static_cast<int>(dtype));
}

}  // namespace

struct Executor::Impl {
  Device& device;
  Bundle bundle;
  std::map<std::string, HostFunction> host_functions;
  std::array<DeviceAddress, kPlanArenas> arenas = {};
  int arenas_allocated = 0;
  std::vector<KernelHandle> kernels;
  std::vector<BoundPlan> bound;
  std::vector<char> scalars;  // staging of io's scalars

  Impl(Device& on, Bundle what, std::map<std::string, HostFunction> functions)
      : device(on), bundle(std::move(what)), host_functions(std::move(functions)) {}
  ~Impl() {
    while (arenas_allocated > 0) device.free(arenas[static_cast<size_t>(--arenas_allocated)]);
  }

  std::array<int64_t, kPlanArenas> arena_sizes() const {
    std::array<int64_t, kPlanArenas> sizes = {};
    std::copy(bundle.persistents.arena_bytes.begin(), bundle.persistents.arena_bytes.end(), sizes.begin());
    for (const Plan& plan : bundle.plans) {
      int64_t& activations = sizes[static_cast<size_t>(PlanArena::activations)];
      int64_t& io = sizes[static_cast<size_t>(PlanArena::io)];
      activations = std::max(activations, plan.activations_bytes);
      io = std::max(io, plan.io_bytes);
    }
    return sizes;
  }

  Status allocate() {
    const auto sizes = arena_sizes();
    STEPC_TRY(check_available(sizes));
    for (size_t arena = 0; arena < sizes.size(); ++arena) {
      auto address = device.allocate(sizes[arena]);
      if (!address)
        return system_error("arena {} needs {} bytes: {}", plan_arena_name(static_cast<PlanArena>(arena)), sizes[arena],
                            address.error().message);
      arenas[arena] = *address;
      ++arenas_allocated;
    }
    return {};
  }

  // Before anything is allocated: what each arena needs, if it is too much.
  Status check_available(const std::array<int64_t, kPlanArenas>& sizes) {
    STEPC_ASSIGN(const int64_t available, device.available_bytes());
    int64_t needed = 0;
    std::string parts;
    for (size_t arena = 0; arena < sizes.size(); ++arena) {
      needed = saturating_add(needed, sizes[arena]);
      parts += fmt::format("{}{} {}", arena ? ", " : "", plan_arena_name(static_cast<PlanArena>(arena)), sizes[arena]);
    }
    if (needed <= available) return {};
    return system_error("module \"{}\" needs {} bytes of device memory, has {} ({})", bundle.module_name, needed,
                        available, parts);
  }

  Status load_kernels() {
    for (const BundleKernel& kernel : bundle.kernels) {
      auto handle = device.load({kernel.name, kernel.object, kernel.shared_bytes, kernel.launch});
      if (!handle) return system_error("kernel {}: {}", kernel.name, handle.error().message);
      kernels.push_back(*handle);
    }
    return {};
  }

  DeviceAddress place(PlanArena arena, int64_t offset) const { return arenas[static_cast<size_t>(arena)] + offset; }

  void bind(const Plan& plan) {
    BoundPlan result{&plan, {}, {}, 0, std::vector<double>(plan.steps.size(), 0), 0};
    for (const PlanBuffer& buffer : plan.buffers) {
      result.addresses.push_back(place(buffer.arena, buffer.offset_bytes));
      if (buffer.arena == PlanArena::io && buffer.alias_of < 0 && buffer.type.shape.empty())
        result.scalar_bytes = std::max(result.scalar_bytes, buffer.offset_bytes + buffer.bytes);
    }
    for (const PlanStep& step : plan.steps) {
      std::vector<DeviceAddress>& arguments = result.arguments.emplace_back();
      if (!std::holds_alternative<LaunchStep>(step.action)) continue;
      for (int buffer : step_reads(step)) arguments.push_back(result.addresses[static_cast<size_t>(buffer)]);
      for (int buffer : step_writes(step)) arguments.push_back(result.addresses[static_cast<size_t>(buffer)]);
    }
    bound.push_back(std::move(result));
  }

  BoundPlan* find(std::string_view program) {
    for (BoundPlan& candidate : bound)
      if (candidate.plan->program == program) return &candidate;
    return nullptr;
  }

  const PlanBuffer& root(const Plan& plan, const PlanPort& port) const {
    return plan.buffers[static_cast<size_t>(root_buffer(plan, port.buffer))];
  }

  // Scalars go over in one copy, tensors in one each.
  Status send_inputs(const BoundPlan& on, const std::map<std::string, HostTensorView>& inputs) {
    const Plan& plan = *on.plan;
    scalars.assign(static_cast<size_t>(on.scalar_bytes), 0);
    for (const PlanPort& port : plan.inputs) {
      const auto given = inputs.find(port.name);
      const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(port.buffer)];
      if (given == inputs.end())
        return user_error("program @{}: input {}: expected {}, found none", plan.program, port.name,
                          type_text(buffer.type));
      STEPC_TRY(
          check_tensor(fmt::format("program @{}: input {}", plan.program, port.name), given->second, buffer.type));
      const std::span<const char> bytes = given->second.bytes;
      if (buffer.type.shape.empty())
        std::copy(bytes.begin(), bytes.end(), scalars.begin() + buffer.offset_bytes);
      else
        STEPC_TRY(device.copy_in(on.addresses[static_cast<size_t>(port.buffer)], bytes.data(), buffer.bytes));
    }
    for (const auto& [name, tensor] : inputs)
      if (std::none_of(plan.inputs.begin(), plan.inputs.end(), [&](const PlanPort& port) { return port.name == name; }))
        return user_error("program @{} has no input {}", plan.program, name);
    if (scalars.empty()) return {};
    return device.copy_in(place(PlanArena::io, 0), scalars.data(), on.scalar_bytes);
  }

  Result<std::map<std::string, HostTensor>> fetch_outputs(const BoundPlan& on) {
    const Plan& plan = *on.plan;
    const bool any_scalar = std::any_of(plan.outputs.begin(), plan.outputs.end(),
                                        [&](const PlanPort& port) { return root(plan, port).type.shape.empty(); });
    if (any_scalar) STEPC_TRY(device.copy_out(scalars.data(), place(PlanArena::io, 0), on.scalar_bytes));
    std::map<std::string, HostTensor> outputs;
    for (const PlanPort& port : plan.outputs) {
      const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(port.buffer)];
      HostTensor tensor{buffer.type, std::vector<char>(static_cast<size_t>(buffer.bytes))};
      if (root(plan, port).type.shape.empty())
        std::copy_n(scalars.begin() + buffer.offset_bytes, buffer.bytes, tensor.bytes.begin());
      else
        STEPC_TRY(device.copy_out(tensor.bytes.data(), on.addresses[static_cast<size_t>(port.buffer)], buffer.bytes));
      outputs.emplace(port.name, std::move(tensor));
    }
    return outputs;
  }

  Status run_step(const BoundPlan& on, size_t index) {
    const PlanStep& step = on.plan->steps[index];
    const auto address = [&](int buffer) { return on.addresses[static_cast<size_t>(buffer)]; };
    const auto info = [&](int buffer) -> const PlanBuffer& { return on.plan->buffers[static_cast<size_t>(buffer)]; };
    if (const auto* launch = std::get_if<LaunchStep>(&step.action)) {
      if (launch->grid == 0) return {};
      return device.launch(kernels[static_cast<size_t>(launch->kernel)], launch->grid, on.arguments[index],
                           launch->scalars);
    }
    if (const auto* copy = std::get_if<CopyStep>(&step.action))
      return device.copy(address(copy->to), address(copy->from), info(copy->to).bytes);
    if (const auto* fill = std::get_if<FillStep>(&step.action)) {
      const TensorType& type = info(fill->buffer).type;
      return device.fill(address(fill->buffer), fill_pattern(type.dtype, fill->value), dtype_bytes(type.dtype),
                         numel(type.shape));
    }
    const auto& call = std::get<HostCallStep>(step.action);
    const auto function = host_functions.find(call.function);
    if (function == host_functions.end()) return user_error("no host function {}", call.function);
    std::vector<DeviceAddress> reads, writes;
    for (int buffer : call.reads) reads.push_back(address(buffer));
    for (int buffer : call.writes) writes.push_back(address(buffer));
    return function->second(device, reads, writes);
  }

  // Brings what the step wrote to the host and looks for NaN.
  Status check_step(const BoundPlan& on, size_t index) {
    const PlanStep& step = on.plan->steps[index];
    std::vector<int> written = step_writes(step);
    if (const auto* launch = std::get_if<LaunchStep>(&step.action)) written = launch->results;
    for (int index_of_buffer : written) {
      const PlanBuffer& buffer = on.plan->buffers[static_cast<size_t>(index_of_buffer)];
      std::vector<char> bytes(static_cast<size_t>(buffer.bytes));
      STEPC_TRY(device.copy_out(bytes.data(), on.addresses[static_cast<size_t>(index_of_buffer)], buffer.bytes));
      if (const auto element = find_nan(buffer.type.dtype, bytes))
        return system_error("program @{}: step {} ({}) made NaN in %{} {}, first at element {}", on.plan->program,
                            index, step.name, buffer.name, type_text(buffer.type), *element);
    }
    return {};
  }

  Status run_steps(BoundPlan& on, const RunOptions& options) {
    std::vector<EventHandle> events;
    const auto mark = [&]() -> Status {
      if (!options.profile) return {};
      STEPC_ASSIGN(const EventHandle event, device.record_event());
      events.push_back(event);
      return {};
    };
    STEPC_TRY(mark());
    for (size_t step = 0; step < on.plan->steps.size(); ++step) {
      if (auto status = run_step(on, step); !status) {
        Error error = std::move(status).error();
        error.message = fmt::format("program @{}: step {} ({}): {}", on.plan->program, step, on.plan->steps[step].name,
                                    error.message);
        return tl::unexpected(std::move(error));
      }
      STEPC_TRY(mark());
      if (options.check) STEPC_TRY(check_step(on, step));
    }
    STEPC_TRY(device.synchronize());
    for (size_t step = 0; step + 1 < events.size(); ++step) {
      STEPC_ASSIGN(const double milliseconds, device.milliseconds_between(events[step], events[step + 1]));
      on.milliseconds[step] += milliseconds;
    }
    on.profiled_runs += options.profile ? 1 : 0;
    device.release_events();
    return {};
  }
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;
const Bundle& Executor::bundle() const { return impl_->bundle; }

Result<std::unique_ptr<Executor>> Executor::create(Device& device, Bundle bundle,
                                                   std::map<std::string, HostFunction> host_functions) {
  STEPC_TRY(verify_bundle(bundle));
  auto impl = std::make_unique<Impl>(device, std::move(bundle), std::move(host_functions));
  STEPC_TRY(impl->allocate());
  STEPC_TRY(impl->load_kernels());
  for (const Plan& plan : impl->bundle.plans) impl->bind(plan);
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

Result<std::map<std::string, HostTensor>> Executor::run(std::string_view program,
                                                        const std::map<std::string, HostTensorView>& inputs,
                                                        const RunOptions& options) {
  BoundPlan* const on = impl_->find(program);
  if (!on) return user_error("module \"{}\" has no program @{}", impl_->bundle.module_name, program);
  if (options.poison)
    STEPC_TRY(impl_->device.fill(impl_->place(PlanArena::activations, 0), 0xff, 1, on->plan->activations_bytes));
  STEPC_TRY(impl_->send_inputs(*on, inputs));
  STEPC_TRY(impl_->run_steps(*on, options));
  return impl_->fetch_outputs(*on);
}

Status Executor::read_persistent(std::string_view name,
                                 const std::function<Status(std::span<const char>)>& sink) const {
  const PersistentPlacement* tensor = impl_->bundle.persistents.find(name);
  if (!tensor) return user_error("module \"{}\" has no tensor @{}", impl_->bundle.module_name, name);
  std::vector<char> piece(static_cast<size_t>(std::min(tensor->bytes, kPieceBytes)));
  for (int64_t at = 0; at < tensor->bytes; at += kPieceBytes) {
    const int64_t bytes = std::min(kPieceBytes, tensor->bytes - at);
    STEPC_TRY(impl_->device.copy_out(piece.data(), impl_->place(tensor->arena, tensor->offset_bytes + at), bytes));
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
  return impl_->device.copy_in(impl_->place(at->arena, at->offset_bytes), tensor.bytes.data(), at->bytes);
}

std::vector<StepTime> Executor::step_times() const {
  std::vector<StepTime> times;
  for (const BoundPlan& on : impl_->bound) {
    if (on.profiled_runs == 0) continue;
    for (size_t s = 0; s < on.plan->steps.size(); ++s) {
      const PlanStep& step = on.plan->steps[s];
      const auto* launch = std::get_if<LaunchStep>(&step.action);
      const std::string kernel = launch ? impl_->bundle.kernels[static_cast<size_t>(launch->kernel)].name : "";
      times.push_back({on.plan->program, step.name, kernel, step.phase, step.flops, step.bytes, on.profiled_runs,
                       on.milliseconds[s]});
    }
  }
  return times;
}

}  // namespace stepc
