#include "runtime/buffer_places.h"

#include <algorithm>
#include <utility>

#include "ir/support/checked.h"

namespace stepc {
namespace {

using ArenaBytes = std::array<int64_t, kPlanArenas>;

bool is_persistent(PlanArena arena) { return arena < PlanArena::activations; }

// Shared ones are as large as the largest program needs.
ArenaBytes arena_bytes(const Bundle& bundle) {
  ArenaBytes sizes = {};
  std::copy(bundle.persistents.arena_bytes.begin(), bundle.persistents.arena_bytes.end(), sizes.begin());
  for (const Plan& plan : bundle.plans) {
    int64_t& activations = sizes[static_cast<size_t>(PlanArena::activations)];
    int64_t& io = sizes[static_cast<size_t>(PlanArena::io)];
    activations = std::max(activations, plan.activations_bytes);
    io = std::max(io, plan.io_bytes);
  }
  return sizes;
}

// Of all programs, none of which shares anything with another.
ArenaBytes separate_bytes(const Bundle& bundle) {
  ArenaBytes sizes = {};
  const auto add = [&](PlanArena arena, int64_t bytes) {
    int64_t& sum = sizes[static_cast<size_t>(arena)];
    sum = saturating_add(sum, bytes);
  };
  for (const PersistentPlacement& tensor : bundle.persistents.tensors) add(tensor.arena, tensor.bytes);
  for (const Plan& plan : bundle.plans)
    for (const PlanBuffer& buffer : plan.buffers)
      if (!is_persistent(buffer.arena) && buffer.alias_of < 0) add(buffer.arena, buffer.bytes);
  return sizes;
}

Status check_available(Device& device, const Bundle& bundle, const ArenaBytes& sizes) {
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

}  // namespace

Result<BufferPlaces> BufferPlaces::allocate(Device& device, const Bundle& bundle, bool separate) {
  STEPC_TRY(check_available(device, bundle, separate ? separate_bytes(bundle) : arena_bytes(bundle)));
  BufferPlaces places(device, separate);
  STEPC_TRY(separate ? places.allocate_each(bundle) : places.allocate_arenas(bundle));
  return places;
}

BufferPlaces::BufferPlaces(BufferPlaces&& other) noexcept
    : device_(other.device_),
      separate_(other.separate_),
      allocated_(std::exchange(other.allocated_, {})),
      arenas_(other.arenas_),
      persistents_(std::move(other.persistents_)),
      buffers_of_program_(std::move(other.buffers_of_program_)) {}

BufferPlaces::~BufferPlaces() {
  while (!allocated_.empty()) {
    device_->free(allocated_.back());
    allocated_.pop_back();
  }
}

Result<DeviceAddress> BufferPlaces::add(Result<DeviceAddress> allocated) {
  if (allocated) allocated_.push_back(*allocated);
  return allocated;
}

Status BufferPlaces::allocate_arenas(const Bundle& bundle) {
  const ArenaBytes sizes = arena_bytes(bundle);
  for (size_t arena = 0; arena < sizes.size(); ++arena) {
    auto address = add(device_->allocate(sizes[arena]));
    if (!address)
      return system_error("arena {} needs {} bytes: {}", plan_arena_name(static_cast<PlanArena>(arena)), sizes[arena],
                          address.error().message);
    arenas_[arena] = *address;
  }
  return {};
}

Status BufferPlaces::allocate_each(const Bundle& bundle) {
  for (const PersistentPlacement& tensor : bundle.persistents.tensors) {
    STEPC_ASSIGN(persistents_[tensor.name], add(device_->allocate(tensor.bytes)));
  }
  for (const Plan& plan : bundle.plans) {
    std::vector<DeviceAddress>& addresses = buffers_of_program_[plan.program];
    addresses.resize(plan.buffers.size());
    for (size_t b = 0; b < plan.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan.buffers[b];
      if (buffer.alias_of >= 0) continue;
      if (is_persistent(buffer.arena)) {
        addresses[b] = persistents_.at(buffer.name.substr(1));
        continue;
      }
      STEPC_ASSIGN(addresses[b], add(device_->allocate_unset(buffer.bytes)));
    }
    for (size_t b = 0; b < plan.buffers.size(); ++b)
      addresses[b] = addresses[static_cast<size_t>(root_buffer(plan, static_cast<int>(b)))];
  }
  return {};
}

DeviceAddress BufferPlaces::persistent(const PersistentPlacement& tensor) const {
  if (separate_) return persistents_.at(tensor.name);
  return arenas_[static_cast<size_t>(tensor.arena)] + tensor.offset_bytes;
}

std::vector<DeviceAddress> BufferPlaces::of_plan(const Plan& plan) const {
  if (separate_) return buffers_of_program_.at(plan.program);
  std::vector<DeviceAddress> addresses;
  for (const PlanBuffer& buffer : plan.buffers)
    addresses.push_back(arenas_[static_cast<size_t>(buffer.arena)] + buffer.offset_bytes);
  return addresses;
}

Status BufferPlaces::poison(const Plan& plan) const {
  constexpr uint32_t kNan = 0xff;  // in every byte: NaN as f32 and as bf16
  if (!separate_) {
    STEPC_TRY(device_->fill(arenas_[static_cast<size_t>(PlanArena::activations)], kNan, 1, plan.activations_bytes));
    return device_->fill(arenas_[static_cast<size_t>(PlanArena::io)], kNan, 1, plan.io_bytes);
  }
  const std::vector<DeviceAddress>& addresses = buffers_of_program_.at(plan.program);
  for (size_t b = 0; b < addresses.size(); ++b)
    if (plan.buffers[b].alias_of < 0 && !is_persistent(plan.buffers[b].arena))
      STEPC_TRY(device_->fill(addresses[b], kNan, 1, plan.buffers[b].bytes));
  return {};
}

}  // namespace stepc
