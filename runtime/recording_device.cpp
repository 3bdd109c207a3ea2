#include <map>
#include <vector>

#include "runtime/device.h"

namespace stepc {
namespace {

class RecordingDevice : public Device {
 public:
  RecordingDevice(Device& device, std::string& log) : device_(device), log_(log) {}

  Result<DeviceAddress> allocate(int64_t bytes) override {
    STEPC_ASSIGN(const DeviceAddress address, device_.allocate(bytes));
    const int number = allocations_made_++;
    allocations_[address] = {number, bytes};
    log_ += fmt::format("a{} = allocate {}\n", number, bytes);
    return address;
  }
  void free(DeviceAddress address) override {
    log_ += fmt::format("free {}\n", text(address));
    allocations_.erase(address);
    device_.free(address);
  }
  Result<int64_t> available_bytes() override { return device_.available_bytes(); }
  Status copy_in(DeviceAddress to, const void* from, int64_t bytes) override {
    log_ += fmt::format("copy_in {}, {}\n", text(to), bytes);
    return device_.copy_in(to, from, bytes);
  }
  Status copy_out(void* to, DeviceAddress from, int64_t bytes) override {
    log_ += fmt::format("copy_out {}, {}\n", text(from), bytes);
    return device_.copy_out(to, from, bytes);
  }
  Status copy(DeviceAddress to, DeviceAddress from, int64_t bytes) override {
    log_ += fmt::format("copy {} <- {}, {}\n", text(to), text(from), bytes);
    return device_.copy(to, from, bytes);
  }
  Status fill(DeviceAddress to, uint32_t pattern, int64_t element_bytes, int64_t count) override {
    log_ += fmt::format("fill {}, {:#x} x {}, {} bytes each\n", text(to), pattern, count, element_bytes);
    return device_.fill(to, pattern, element_bytes, count);
  }
  Result<KernelHandle> load(const KernelCode& kernel) override {
    STEPC_ASSIGN(const KernelHandle handle, device_.load(kernel));
    symbols_[handle] = kernel.symbol;
    log_ += fmt::format("load {}, {} shared bytes\n", kernel.symbol, kernel.shared_bytes);
    return handle;
  }
  Status launch(KernelHandle kernel, int64_t grid, std::span<const DeviceAddress> buffers,
                std::span<const int64_t> scalars) override {
    std::string arguments;
    for (DeviceAddress buffer : buffers) arguments += (arguments.empty() ? "" : ", ") + text(buffer);
    for (int64_t scalar : scalars) arguments += (arguments.empty() ? "" : ", ") + std::to_string(scalar);
    log_ += fmt::format("launch {} x {} ({})\n", symbols_[kernel], grid, arguments);
    return device_.launch(kernel, grid, buffers, scalars);
  }
  Result<EventHandle> record_event() override {
    log_ += "record_event\n";
    return device_.record_event();
  }
  Result<double> milliseconds_between(EventHandle from, EventHandle to) override {
    return device_.milliseconds_between(from, to);
  }
  void release_events() override { device_.release_events(); }
  Status synchronize() override {
    log_ += "synchronize\n";
    return device_.synchronize();
  }

 private:
  struct Allocation {
    int number;
    int64_t bytes;
  };

  // "a1+64": the allocation that holds the address, and the distance from its start.
  std::string text(DeviceAddress address) const {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return "unknown";
    const auto& [base, allocation] = *std::prev(after);
    const uint64_t distance = static_cast<uint64_t>(address) - static_cast<uint64_t>(base);
    if (distance > static_cast<uint64_t>(allocation.bytes)) return "unknown";
    return distance == 0 ? fmt::format("a{}", allocation.number) : fmt::format("a{}+{}", allocation.number, distance);
  }

  Device& device_;
  std::string& log_;
  std::map<DeviceAddress, Allocation> allocations_;
  std::map<KernelHandle, std::string> symbols_;
  int allocations_made_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_recording_device(Device& device, std::string& log) {
  return std::make_unique<RecordingDevice>(device, log);
}

}  // namespace stepc
