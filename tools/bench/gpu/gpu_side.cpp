#include "tools/bench/gpu/gpu_side.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/graph/evaluate.h"
#include "ir/support/thread_pool.h"

namespace stepc::bench {
namespace {

// Sums of uniform numbers: near to normal, of variance 1, as activations are. Splitmix64 is fast and any seed does.
std::vector<uint16_t> random_bf16(int64_t count, uint64_t seed) {
  std::vector<uint16_t> numbers(static_cast<size_t>(count));
  constexpr int64_t kPiece = 1 << 20;
  ThreadPool pool(0);
  pool.parallel_for((count + kPiece - 1) / kPiece, [&](int64_t piece) {
    uint64_t state = (seed << 40) + static_cast<uint64_t>(piece) * 0x9e3779b97f4a7c15;
    const int64_t end = std::min(count, (piece + 1) * kPiece);
    for (int64_t i = piece * kPiece; i < end; ++i) {
      uint64_t z = state += 0x9e3779b97f4a7c15;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      const double sum = static_cast<double>(z & 0xffff) + static_cast<double>(z >> 16 & 0xffff) +
                         static_cast<double>(z >> 32 & 0xffff) + static_cast<double>(z >> 48);
      numbers[static_cast<size_t>(i)] = bf16_from_f32(static_cast<float>((sum / 65536 - 2) * std::sqrt(3.0)));
    }
  });
  return numbers;
}

// Zeros where a batch's rows are not filled.
void empty_rows(std::vector<uint16_t>& numbers, const Shape& shape, const std::vector<int32_t>& filled) {
  for (size_t batch = 0; batch < filled.size(); ++batch) {
    const auto begin = numbers.begin() + static_cast<ptrdiff_t>(batch) * shape[1] * shape[2];
    std::fill(begin + filled[batch] * shape[2], begin + shape[1] * shape[2], uint16_t{0});
  }
}

}  // namespace

GpuSide::~GpuSide() {
  for (const auto& [arena, address] : arenas_) device_.free(address);
}

DeviceAddress GpuSide::address(int buffer) const {
  const PlanBuffer& at = plan().buffers[static_cast<size_t>(buffer)];
  return arenas_.at(at.arena) + at.offset_bytes;
}

Result<std::unique_ptr<GpuSide>> GpuSide::make(const GpuCase& test, CudaDevice& device, const GpuTarget& target) {
  Module module{"bench", {}, {}};
  GraphBuilder graph(module, "case");
  test.build(graph);
  std::unique_ptr<GpuSide> side(new GpuSide(device));
  GpuLowerOptions options;
  if (test.updates_apart) options.common.passes.updates_apart = true;
  STEPC_ASSIGN(GpuLowered lowered, lower_gpu(std::move(module), target, options));
  side->bundle_ = std::move(lowered.bundle);
  for (const BundleKernel& kernel : side->bundle_.kernels) {
    STEPC_ASSIGN(const KernelHandle handle,
                 device.load({kernel.name, kernel.object, kernel.shared_bytes, kernel.launch}));
    side->kernels_.push_back(handle);
  }
  if (!test.whole) {
    side->timed_ = Phase::forward;
    for (const PlanStep& step : side->plan().steps) side->timed_ = std::max(*side->timed_, step.phase);
  }
  STEPC_TRY(side->allocate());
  STEPC_TRY(side->fill_inputs(test));
  STEPC_TRY(side->launch(std::nullopt));
  STEPC_TRY(device.synchronize());
  return side;
}

Status GpuSide::allocate() {
  for (auto [arena, bytes] :
       {std::pair(PlanArena::activations, plan().activations_bytes), std::pair(PlanArena::io, plan().io_bytes)}) {
    STEPC_ASSIGN(arenas_[arena], device_.allocate(bytes));
    STEPC_TRY(device_.fill(arenas_[arena], 0xff, 1, bytes));  // NaN: what nobody writes shows
  }
  return {};
}

Status GpuSide::fill_inputs(const GpuCase& test) {
  for (const PlanPort& port : plan().inputs) {
    const PlanBuffer& buffer = plan().buffers[static_cast<size_t>(port.buffer)];
    if (port.name == "count") {
      STEPC_TRY(device_.copy_in(address(port.buffer), test.filled.data(), buffer.bytes));
      continue;
    }
    const int64_t count = numel(buffer.type.shape);
    if (buffer.type.dtype == Dtype::i32) {
      std::vector<int32_t>& integers = integers_[port.name];
      for (int64_t i = 0; i < count; ++i)
        integers.push_back(static_cast<int32_t>(philox_word(7, 13, 0, static_cast<uint64_t>(i)) % count));
      STEPC_TRY(device_.copy_in(address(port.buffer), integers.data(), buffer.bytes));
      continue;
    }
    std::vector<uint16_t>& numbers = inputs_[port.name];
    numbers = random_bf16(count, inputs_.size());
    constexpr uint16_t kSign = 0x8000;
    if (port.name == "squares")
      for (uint16_t& number : numbers) number &= static_cast<uint16_t>(~kSign);
    if (port.name == "a") empty_rows(numbers, buffer.type.shape, test.filled);
    std::vector<float> wide;
    if (buffer.type.dtype == Dtype::f32)
      for (uint16_t number : numbers) wide.push_back(f32_from_bf16(number));
    const void* source = wide.empty() ? static_cast<const void*>(numbers.data()) : wide.data();
    STEPC_TRY(device_.copy_in(address(port.buffer), source, buffer.bytes));
  }
  return {};
}

Status GpuSide::launch(std::optional<Phase> phase) {
  for (const PlanStep& step : plan().steps) {
    if (phase && step.phase != *phase) continue;
    const auto* launch = std::get_if<LaunchStep>(&step.action);
    if (!launch) return user_error("step {} of a benchmark is no launch", step.name);
    std::vector<DeviceAddress> buffers;
    for (int buffer : launch->operands) buffers.push_back(address(buffer));
    for (int buffer : launch->results) buffers.push_back(address(buffer));
    if (launch->workspace >= 0) buffers.push_back(address(launch->workspace));
    STEPC_TRY(device_.launch(kernels_[static_cast<size_t>(launch->kernel)], launch->grid, buffers, launch->scalars));
  }
  return {};
}

Result<std::vector<double>> GpuSide::run(int count) {
  std::vector<EventHandle> events;
  for (int i = 0; i <= count; ++i) {
    STEPC_ASSIGN(const EventHandle event, device_.record_event());
    events.push_back(event);
    if (i < count) STEPC_TRY(launch(timed_));
  }
  STEPC_TRY(device_.synchronize());
  std::vector<double> times;
  for (size_t i = 1; i < events.size(); ++i) {
    STEPC_ASSIGN(const double milliseconds, device_.milliseconds_between(events[i - 1], events[i]));
    times.push_back(milliseconds);
  }
  device_.release_events(events);
  return times;
}

std::string GpuSide::config() const {
  std::string text;
  for (const PlanStep& step : plan().steps)
    if (const auto* launch = std::get_if<LaunchStep>(&step.action); launch && is_timed(step))
      text += (text.empty() ? "" : "; ") + bundle_.kernels[static_cast<size_t>(launch->kernel)].config;
  return text;
}

double GpuSide::input(std::string_view name, int64_t index) const {
  const auto at = static_cast<size_t>(index);
  if (const auto found = integers_.find(name); found != integers_.end()) return found->second[at];
  return double{f32_from_bf16(inputs_.find(name)->second[at])};
}

Result<std::vector<double>> GpuSide::output(std::string_view name, int64_t first, int64_t count) {
  for (const PlanPort& port : plan().outputs) {
    if (port.name != name) continue;
    const Dtype dtype = plan().buffers[static_cast<size_t>(port.buffer)].type.dtype;
    const int64_t bytes = dtype_bytes(dtype);
    std::vector<char> raw(static_cast<size_t>(count * bytes));
    STEPC_TRY(device_.copy_out(raw.data(), address(port.buffer) + first * bytes, count * bytes));
    std::vector<double> numbers;
    for (int64_t i = 0; i < count; ++i) {
      uint16_t narrow = 0;
      float wide = 0;
      std::memcpy(dtype == Dtype::bf16 ? static_cast<void*>(&narrow) : &wide, raw.data() + i * bytes,
                  static_cast<size_t>(bytes));
      numbers.push_back(dtype == Dtype::bf16 ? double{f32_from_bf16(narrow)} : double{wide});
    }
    return numbers;
  }
  return user_error("the case has no output {}", name);
}

}  // namespace stepc::bench
