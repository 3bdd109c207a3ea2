// The seam between the executor and what runs kernels. Calls are in order: each sees the effects of those
// before it. Errors name the call. Addresses are the device's own; only copy_in and copy_out and their later forms
// cross over.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ir/kernel/launch.h"
#include "ir/support/result.h"

namespace stepc {

enum class DeviceAddress : uint64_t { null = 0 };
constexpr DeviceAddress operator+(DeviceAddress base, int64_t bytes) {
  return static_cast<DeviceAddress>(static_cast<uint64_t>(base) + static_cast<uint64_t>(bytes));
}
enum class KernelHandle : int32_t {};
enum class EventHandle : int32_t {};
enum class GraphHandle : int32_t {};

// What a device is told of a kernel when it loads it.
struct KernelCode {
  std::string symbol;
  std::string code;          // the target's form: host object, PTX or cubin
  int64_t shared_bytes = 0;  // scratch of one task
  kernel::GpuLaunch launch;  // empty on the host
};

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  // Zeroed memory, aligned to 64 bytes at least; 0 bytes give an address that must not be used but freed.
  virtual Result<DeviceAddress> allocate(int64_t bytes) = 0;
  // The same with whatever the memory held before: tools that look for reads of what nobody wrote see those then.
  virtual Result<DeviceAddress> allocate_unset(int64_t bytes) = 0;
  virtual void free(DeviceAddress address) = 0;
  // What can still be allocated, as far as the system tells.
  virtual Result<int64_t> available_bytes() = 0;
  virtual Status copy_in(DeviceAddress to, const void* from, int64_t bytes) = 0;
  virtual Status copy_out(void* to, DeviceAddress from, int64_t bytes) = 0;
  virtual Status copy(DeviceAddress to, DeviceAddress from, int64_t bytes) = 0;
  // `count` elements of `element_bytes` (1, 2 or 4), each the low bytes of `pattern`.
  virtual Status fill(DeviceAddress to, uint32_t pattern, int64_t element_bytes, int64_t count) = 0;

  virtual Result<KernelHandle> load(const KernelCode& kernel) = 0;
  virtual Status launch(KernelHandle kernel, int64_t grid, std::span<const DeviceAddress> buffers,
                        std::span<const int64_t> scalars) = 0;

  // Whether calls return before their work is done, so that the host can go on meanwhile.
  virtual bool runs_ahead() const = 0;

  // Memory of the host for copies that are not waited for; pinned where that matters to the device.
  virtual Result<void*> allocate_host(int64_t bytes) = 0;
  virtual void free_host(void* memory) = 0;
  // copy_in and copy_out that may return before the bytes have moved. The host's side must lie in memory of
  // allocate_host, and is the device's until an event recorded afterwards has been waited for.
  virtual Status copy_in_later(DeviceAddress to, const void* from, int64_t bytes) = 0;
  virtual Status copy_out_later(void* to, DeviceAddress from, int64_t bytes) = 0;

  // A point in the order of calls, with its time once it is reached.
  virtual Result<EventHandle> record_event() = 0;
  virtual Status wait_for(EventHandle event) = 0;
  virtual Result<double> milliseconds_between(EventHandle from, EventHandle to) = 0;
  virtual void release_events(std::span<const EventHandle> events) = 0;

  // A graph: launches, copies and fills that were taken down once and run together as often as wanted, each after the
  // one before it. Between begin_graph and end_graph these calls are taken down instead of done, and no others made.
  // The name is for errors. Only devices that run ahead have graphs.
  virtual Status begin_graph() = 0;
  virtual Result<GraphHandle> end_graph(const std::string& name) = 0;
  virtual Status run_graph(GraphHandle graph) = 0;
  virtual void free_graph(GraphHandle graph) = 0;

  virtual Status synchronize() = 0;
};

// Passes every call on and appends it to `log` as a line of text, with allocations as a0, a1, .. and
// kernels by symbol: golden tests of what is run, on any device. The other device and `log` must outlive it.
std::unique_ptr<Device> make_recording_device(Device& device, std::string& log);

}  // namespace stepc
