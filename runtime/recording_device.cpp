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
    log_ += fmt::format("{} = allocate {}\n", add(address, 'a', bytes), bytes);
    return address;
  }
  Result<DeviceAddress> allocate_unset(int64_t bytes) override {
    STEPC_ASSIGN(const DeviceAddress address, device_.allocate_unset(bytes));
    log_ += fmt::format("{} = allocate_unset {}\n", add(address, 'a', bytes), bytes);
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
  Result<void*> allocate_host(int64_t bytes) override {
    STEPC_ASSIGN(void* const memory, device_.allocate_host(bytes));
    log_ += fmt::format("{} = allocate_host {}\n", add(of_host(memory), 'h', bytes), bytes);
    return memory;
  }
  void free_host(void* memory) override {
    log_ += fmt::format("free_host {}\n", text(of_host(memory)));
    allocations_.erase(of_host(memory));
    device_.free_host(memory);
  }
  Status copy_in_later(DeviceAddress to, const void* from, int64_t bytes) override {
    log_ += fmt::format("copy_in_later {} <- {}, {}\n", text(to), text(of_host(from)), bytes);
    return device_.copy_in_later(to, from, bytes);
  }
  Status copy_out_later(void* to, DeviceAddress from, int64_t bytes) override {
    log_ += fmt::format("copy_out_later {} <- {}, {}\n", text(of_host(to)), text(from), bytes);
    return device_.copy_out_later(to, from, bytes);
  }
  Result<EventHandle> record_event() override {
    STEPC_ASSIGN(const EventHandle event, device_.record_event());
    log_ += fmt::format("e{} = record_event\n", static_cast<int>(event));
    return event;
  }
  Status wait_for(EventHandle event) override {
    log_ += fmt::format("wait_for e{}\n", static_cast<int>(event));
    return device_.wait_for(event);
  }
  Result<double> milliseconds_between(EventHandle from, EventHandle to) override {
    return device_.milliseconds_between(from, to);
  }
  void release_events(std::span<const EventHandle> events) override { device_.release_events(events); }
  bool runs_ahead() const override { return device_.runs_ahead(); }
  Status begin_graph() override {
    log_ += "begin_graph\n";
    return device_.begin_graph();
  }
  Result<GraphHandle> end_graph(const std::string& name) override {
    STEPC_ASSIGN(const GraphHandle graph, device_.end_graph(name));
    log_ += fmt::format("g{} = end_graph {}\n", static_cast<int>(graph), name);
    return graph;
  }
  Status run_graph(GraphHandle graph) override {
    log_ += fmt::format("run_graph g{}\n", static_cast<int>(graph));
    return device_.run_graph(graph);
  }
  void free_graph(GraphHandle graph) override {
    log_ += fmt::format("free_graph g{}\n", static_cast<int>(graph));
    device_.free_graph(graph);
  }
  Status synchronize() override {
    log_ += "synchronize\n";
    return device_.synchronize();
  }

 private:
  struct Allocation {
    std::string name;
    int64_t bytes;
  };

  // Host memory has a name of its own, but lies among the other addresses.
  static DeviceAddress of_host(const void* memory) {
    return static_cast<DeviceAddress>(reinterpret_cast<uintptr_t>(memory));
  }
  const std::string& add(DeviceAddress address, char kind, int64_t bytes) {
    int& made = kind == 'h' ? host_allocations_made_ : allocations_made_;
    return (allocations_[address] = {fmt::format("{}{}", kind, made++), bytes}).name;
  }

  // "a1+64": the allocation that holds the address, and the distance from its start.
  std::string text(DeviceAddress address) const {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return "unknown";
    const auto& [base, allocation] = *std::prev(after);
    const uint64_t distance = static_cast<uint64_t>(address) - static_cast<uint64_t>(base);
    if (distance > static_cast<uint64_t>(allocation.bytes)) return "unknown";
    return distance == 0 ? allocation.name : fmt::format("{}+{}", allocation.name, distance);
  }

  Device& device_;
  std::string& log_;
  std::map<DeviceAddress, Allocation> allocations_;
  std::map<KernelHandle, std::string> symbols_;
  int allocations_made_ = 0;
  int host_allocations_made_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_recording_device(Device& device, std::string& log) {
  return std::make_unique<RecordingDevice>(device, log);
}

}  // namespace stepc
