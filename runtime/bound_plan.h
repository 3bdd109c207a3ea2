// A plan whose buffers have addresses: its steps, one by one, on a device.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "runtime/device.h"

namespace stepc {

// Gets the addresses that a host_call step reads and writes.
using HostFunction =
    std::function<Status(Device&, std::span<const DeviceAddress> reads, std::span<const DeviceAddress> writes)>;

class BoundPlan {
 public:
  // `addresses` by buffer. The plan must outlive the result.
  BoundPlan(const Plan& plan, std::vector<DeviceAddress> addresses);

  const Plan& plan() const { return *plan_; }
  const std::vector<DeviceAddress>& addresses() const { return addresses_; }
  // The first step by which all outputs are written: what comes after it cannot change them.
  size_t outputs_end() const { return outputs_end_; }
  // Whether steps of this range are such that a graph can hold them, and at least one does anything.
  bool fits_graph(size_t begin, size_t end) const;

  Status run_step(Device& device, std::span<const KernelHandle> kernels,
                  const std::map<std::string, HostFunction>& host_functions, size_t index) const;
  // An error that names the first tensor with a NaN among what the step wrote.
  Status check_step(Device& device, size_t index) const;

 private:
  DeviceAddress address(int buffer) const { return addresses_[static_cast<size_t>(buffer)]; }
  const PlanBuffer& buffer(int index) const { return plan_->buffers[static_cast<size_t>(index)]; }

  const Plan* plan_;
  std::vector<DeviceAddress> addresses_;
  std::vector<std::vector<DeviceAddress>> arguments_;  // by step: a launch's buffers in order
  size_t outputs_end_ = 0;
};

}  // namespace stepc
