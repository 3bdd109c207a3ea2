// Where a bundle's buffers lie on a device: in arenas, as the plans say, or for tools that look for stray accesses each
// buffer in memory of its own.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "runtime/device.h"

namespace stepc {

class BufferPlaces {
 public:
  // Persistent tensors are zero at first. Separate buffers of programs hold whatever their memory held. An error of
  // memory says what each arena needs, before anything is allocated. The device must outlive the result.
  static Result<BufferPlaces> allocate(Device& device, const Bundle& bundle, bool separate);
  BufferPlaces(BufferPlaces&& other) noexcept;
  BufferPlaces& operator=(BufferPlaces&&) = delete;
  ~BufferPlaces();

  bool separate() const { return separate_; }
  DeviceAddress persistent(const PersistentPlacement& tensor) const;
  // By buffer of the plan, which must be of the bundle.
  std::vector<DeviceAddress> of_plan(const Plan& plan) const;
  // Fills what the plan's activations, inputs and outputs lie in with NaN.
  Status poison(const Plan& plan) const;

 private:
  BufferPlaces(Device& device, bool separate) : device_(&device), separate_(separate) {}
  Status allocate_arenas(const Bundle& bundle);
  Status allocate_each(const Bundle& bundle);
  Result<DeviceAddress> add(Result<DeviceAddress> allocated);

  Device* device_;
  bool separate_;
  std::vector<DeviceAddress> allocated_;
  std::array<DeviceAddress, kPlanArenas> arenas_ = {};
  std::map<std::string, DeviceAddress> persistents_;                      // where they are separate
  std::map<std::string, std::vector<DeviceAddress>> buffers_of_program_;  // the same, by buffer
};

}  // namespace stepc
