#include "runtime/host/host_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <vector>

#include "ir/support/check.h"
#include "ir/support/thread_pool.h"
#include "runtime/handle_pool.h"
#include "runtime/host/host_memory.h"

namespace stepc {
namespace {

// Calling convention of host kernels: docs/kernel_abi.md.
using HostKernel = void (*)(void* const* buffers, const int64_t* scalars, int64_t task, void* shared);

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

template <class Pointer = void>
Pointer* pointer(DeviceAddress address) {
  return reinterpret_cast<Pointer*>(static_cast<uintptr_t>(address));  // NOLINT: addresses are pointers here
}
DeviceAddress address_of(void* data) { return static_cast<DeviceAddress>(reinterpret_cast<uintptr_t>(data)); }

// Anonymous zeroed memory. Large blocks start on a huge page and ask for them: arenas are read end to end
// many times a step and the TLB is small.
class Memory {
 public:
  static Result<Memory> map(int64_t bytes) {
    const bool huge = bytes >= 2 * kHugePageBytes;
    const int64_t alignment = huge ? kHugePageBytes : kPageBytes;
    if (bytes > INT64_MAX - 2 * alignment) return system_error("cannot allocate {} bytes of host memory", bytes);
    Memory memory;
    memory.size_ = static_cast<size_t>(bytes + alignment);
    void* base = ::mmap(nullptr, memory.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
      return system_error("cannot allocate {} bytes of host memory: {}", bytes, std::strerror(errno));
    memory.base_ = base;
    const uintptr_t start = reinterpret_cast<uintptr_t>(base);
    memory.data_ = reinterpret_cast<void*>((start + static_cast<uintptr_t>(alignment) - 1) /
                                           static_cast<uintptr_t>(alignment) * static_cast<uintptr_t>(alignment));
    if (huge) ::madvise(memory.data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return memory;
  }
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Memory() {
    if (base_) ::munmap(base_, size_);
  }
  void* data() const { return data_; }

 private:
  Memory() = default;
  void* base_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

class HostDevice : public Device {
 public:
  HostDevice(ObjectLoader loader, int threads) : loader_(std::move(loader)), pool_(threads) {}

  Result<DeviceAddress> allocate(int64_t bytes) override {
    STEPC_CHECK(bytes >= 0, "{} bytes", bytes);
    STEPC_ASSIGN(Memory memory, Memory::map(bytes));
    const DeviceAddress address = address_of(memory.data());
    memory_.emplace(address, std::move(memory));
    return address;
  }
  Result<DeviceAddress> allocate_unset(int64_t bytes) override { return allocate(bytes); }
  void free(DeviceAddress address) override { memory_.erase(address); }
  Result<int64_t> available_bytes() override { return available_host_bytes(); }

  Status copy_in(DeviceAddress to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(pointer(to), from, static_cast<size_t>(bytes));
    return {};
  }
  Status copy_out(void* to, DeviceAddress from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, pointer(from), static_cast<size_t>(bytes));
    return {};
  }
  Status copy(DeviceAddress to, DeviceAddress from, int64_t bytes) override {
    constexpr int64_t kPiece = int64_t{1} << 20;
    pool_.parallel_for((bytes + kPiece - 1) / kPiece, [&](int64_t piece) {
      const int64_t begin = piece * kPiece, count = std::min(kPiece, bytes - begin);
      std::memcpy(pointer(to + begin), pointer(from + begin), static_cast<size_t>(count));
    });
    return {};
  }
  Status fill(DeviceAddress to, uint32_t pattern, int64_t element_bytes, int64_t count) override {
    switch (element_bytes) {
      case 1: std::fill_n(pointer<uint8_t>(to), count, static_cast<uint8_t>(pattern)); return {};
      case 2: std::fill_n(pointer<uint16_t>(to), count, static_cast<uint16_t>(pattern)); return {};
      case 4: std::fill_n(pointer<uint32_t>(to), count, pattern); return {};
      default: STEPC_UNREACHABLE("elements of {} bytes", element_bytes);
    }
  }

  Result<KernelHandle> load(const KernelCode& kernel) override {
    STEPC_ASSIGN(void* const function, loader_(kernel.code, kernel.symbol));
    if (kernel.shared_bytes > shared_bytes_) STEPC_TRY(grow_shared(kernel.shared_bytes));
    kernels_.push_back(reinterpret_cast<HostKernel>(function));
    return static_cast<KernelHandle>(kernels_.size() - 1);
  }

  Status launch(KernelHandle kernel, int64_t grid, std::span<const DeviceAddress> buffers,
                std::span<const int64_t> scalars) override {
    const HostKernel function = kernels_[static_cast<size_t>(kernel)];
    pointers_.clear();
    for (DeviceAddress buffer : buffers) pointers_.push_back(pointer(buffer));
    void* const* const arguments = pointers_.data();
    const int64_t* const numbers = scalars.data();
    pool_.parallel_for(grid, [&](int64_t task, int thread) {
      function(arguments, numbers, task, shared_[static_cast<size_t>(thread)].data());
    });
    return {};
  }

  Result<void*> allocate_host(int64_t bytes) override {
    STEPC_ASSIGN(const DeviceAddress address, allocate(bytes));
    return pointer(address);
  }
  void free_host(void* memory) override { free(address_of(memory)); }
  Status copy_in_later(DeviceAddress to, const void* from, int64_t bytes) override { return copy_in(to, from, bytes); }
  Status copy_out_later(void* to, DeviceAddress from, int64_t bytes) override { return copy_out(to, from, bytes); }

  Result<EventHandle> record_event() override { return events_.put(std::chrono::steady_clock::now()); }
  Status wait_for(EventHandle) override { return {}; }
  Result<double> milliseconds_between(EventHandle from, EventHandle to) override {
    return std::chrono::duration<double, std::milli>(events_[to] - events_[from]).count();
  }
  void release_events(std::span<const EventHandle> events) override {
    for (EventHandle event : events) events_.take(event);
  }

  bool runs_ahead() const override { return false; }
  Status begin_graph() override { STEPC_UNREACHABLE("a graph on the host"); }
  Result<GraphHandle> end_graph(const std::string& name) override { STEPC_UNREACHABLE("graph {} on the host", name); }
  Status run_graph(GraphHandle) override { STEPC_UNREACHABLE("a graph on the host"); }
  void free_graph(GraphHandle) override {}

  Status synchronize() override { return {}; }

 private:
  Status grow_shared(int64_t bytes) {
    shared_.clear();
    for (int thread = 0; thread < pool_.threads(); ++thread) {
      STEPC_ASSIGN(Memory memory, Memory::map(bytes));
      shared_.push_back(std::move(memory));
    }
    shared_bytes_ = bytes;
    return {};
  }

  ObjectLoader loader_;
  ThreadPool pool_;
  std::map<DeviceAddress, Memory> memory_;
  std::vector<HostKernel> kernels_;
  std::vector<Memory> shared_;  // per thread
  int64_t shared_bytes_ = -1;
  std::vector<void*> pointers_;
  HandlePool<EventHandle, std::chrono::steady_clock::time_point> events_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(ObjectLoader loader, int threads) {
  return std::make_unique<HostDevice>(std::move(loader), threads);
}

}  // namespace stepc
