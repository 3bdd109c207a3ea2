#include "runtime/bound_plan.h"

#include <algorithm>
#include <bit>

#include "ir/graph/print.h"
#include "ir/support/check.h"
#include "runtime/nan_check.h"

namespace stepc {
namespace {

uint32_t fill_pattern(Dtype dtype, double value) {
  switch (dtype) {
    case Dtype::f32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    case Dtype::bf16: return bf16_from_f32(static_cast<float>(value));
    case Dtype::i32: return static_cast<uint32_t>(static_cast<int32_t>(value));
    case Dtype::pred: return value != 0 ? 1 : 0;
  }
  STEPC_UNREACHABLE("dtype {}", static_cast<int>(dtype));
}

size_t end_of_outputs(const Plan& plan) {
  std::vector<bool> is_output(plan.buffers.size(), false);
  for (const PlanPort& port : plan.outputs) is_output[static_cast<size_t>(root_buffer(plan, port.buffer))] = true;
  size_t end = 0;
  for (size_t s = 0; s < plan.steps.size(); ++s)
    for (int write : step_writes(plan.steps[s]))
      if (is_output[static_cast<size_t>(root_buffer(plan, write))]) end = s + 1;
  return end;
}

}  // namespace

BoundPlan::BoundPlan(const Plan& plan, std::vector<DeviceAddress> addresses)
    : plan_(&plan), addresses_(std::move(addresses)), outputs_end_(end_of_outputs(plan)) {
  for (const PlanStep& step : plan.steps) {
    std::vector<DeviceAddress>& arguments = arguments_.emplace_back();
    if (!std::holds_alternative<LaunchStep>(step.action)) continue;
    for (int buffer : step_reads(step)) arguments.push_back(address(buffer));
    for (int buffer : step_writes(step)) arguments.push_back(address(buffer));
  }
}

bool BoundPlan::fits_graph(size_t begin, size_t end) const {
  bool works = false;
  for (size_t s = begin; s < end; ++s) {
    const auto& action = plan_->steps[s].action;
    if (std::holds_alternative<HostCallStep>(action)) return false;
    const auto* launch = std::get_if<LaunchStep>(&action);
    works = works || !launch || launch->grid > 0;
  }
  return works;
}

Status BoundPlan::run_step(Device& device, std::span<const KernelHandle> kernels,
                           const std::map<std::string, HostFunction>& host_functions, size_t index) const {
  const PlanStep& step = plan_->steps[index];
  if (const auto* launch = std::get_if<LaunchStep>(&step.action)) {
    if (launch->grid == 0) return {};
    return device.launch(kernels[static_cast<size_t>(launch->kernel)], launch->grid, arguments_[index],
                         launch->scalars);
  }
  if (const auto* copy = std::get_if<CopyStep>(&step.action))
    return device.copy(address(copy->to), address(copy->from), buffer(copy->to).bytes);
  if (const auto* fill = std::get_if<FillStep>(&step.action)) {
    const TensorType& type = buffer(fill->buffer).type;
    return device.fill(address(fill->buffer), fill_pattern(type.dtype, fill->value), dtype_bytes(type.dtype),
                       numel(type.shape));
  }
  const auto& call = std::get<HostCallStep>(step.action);
  const auto function = host_functions.find(call.function);
  if (function == host_functions.end()) return user_error("no host function {}", call.function);
  std::vector<DeviceAddress> reads, writes;
  for (int read : call.reads) reads.push_back(address(read));
  for (int write : call.writes) writes.push_back(address(write));
  return function->second(device, reads, writes);
}

Status BoundPlan::check_step(Device& device, size_t index) const {
  const PlanStep& step = plan_->steps[index];
  std::vector<int> written = step_writes(step);
  if (const auto* launch = std::get_if<LaunchStep>(&step.action)) written = launch->results;
  for (int result : written) {
    const PlanBuffer& tensor = buffer(result);
    std::vector<char> bytes(static_cast<size_t>(tensor.bytes));
    STEPC_TRY(device.copy_out(bytes.data(), address(result), tensor.bytes));
    if (const auto element = find_nan(tensor.type.dtype, bytes))
      return system_error("program @{}: step {} ({}) made NaN in %{} {}, first at element {}", plan_->program, index,
                          step.name, tensor.name, type_text(tensor.type), *element);
  }
  return {};
}

}  // namespace stepc
