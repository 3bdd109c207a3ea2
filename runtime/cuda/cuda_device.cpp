#include "runtime/cuda/cuda_device.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ir/support/check.h"
#include "runtime/cuda/driver_errors.h"
#include "runtime/cuda/graph.h"
#include "runtime/cuda/module.h"
#include "runtime/cuda/tensor_map.h"
#include "runtime/handle_pool.h"

namespace stepc {
namespace {

constexpr int64_t kAllocationAlignment = 256;
constexpr int64_t kMaxGrid = INT32_MAX;

std::string joined(const std::string& a, const std::string& b) { return b.empty() ? a : a + ", " + b; }

CUdeviceptr driver_address(DeviceAddress address) { return static_cast<CUdeviceptr>(address); }

// A loaded kernel, and the tensor maps made for the addresses that it has been launched with: in a training run
// each kernel sees a few sets of addresses, again and again.
struct LoadedKernel {
  std::string symbol;
  kernel::GpuLaunch launch;
  int64_t shared_bytes = 0;
  CudaModule module;
  std::map<std::vector<DeviceAddress>, std::vector<CUtensorMap>> maps;
};

// A recorded event, and what had been launched before it.
struct Event {
  CUevent event = nullptr;
  int64_t launched = 0;
};

// What a launch passes, kept in place while the driver reads it.
struct Arguments {
  std::vector<uint64_t> words;  // addresses, then scalars
  std::vector<void*> pointers;
};

class Cuda final : public CudaDevice {
 public:
  Cuda(Driver driver, const CudaOptions& options) : driver_(std::move(driver)), options_(options) {}
  ~Cuda() override;
  Status open();

  const CudaDeviceInfo& info() const override { return info_; }
  const CudaLoads& loads() const override { return loads_; }
  Result<DeviceAddress> allocate(int64_t bytes) override;
  Result<DeviceAddress> allocate_unset(int64_t bytes) override;
  void free(DeviceAddress address) override { driver_.cuMemFree(driver_address(address)); }
  Result<int64_t> available_bytes() override;
  Status copy_in(DeviceAddress to, const void* from, int64_t bytes) override;
  Status copy_out(void* to, DeviceAddress from, int64_t bytes) override;
  Status copy(DeviceAddress to, DeviceAddress from, int64_t bytes) override;
  Status fill(DeviceAddress to, uint32_t pattern, int64_t element_bytes, int64_t count) override;
  Result<KernelHandle> load(const KernelCode& kernel) override;
  Status launch(KernelHandle kernel, int64_t grid, std::span<const DeviceAddress> buffers,
                std::span<const int64_t> scalars) override;
  Result<void*> allocate_host(int64_t bytes) override;
  void free_host(void* memory) override { driver_.cuMemFreeHost(memory); }
  Status copy_in_later(DeviceAddress to, const void* from, int64_t bytes) override;
  Status copy_out_later(void* to, DeviceAddress from, int64_t bytes) override;
  Result<EventHandle> record_event() override;
  Status wait_for(EventHandle event) override;
  Result<double> milliseconds_between(EventHandle from, EventHandle to) override;
  void release_events(std::span<const EventHandle> events) override;
  bool runs_ahead() const override { return !options_.synchronous; }
  Status begin_graph() override;
  Result<GraphHandle> end_graph(const std::string& name) override;
  Status run_graph(GraphHandle graph) override;
  void free_graph(GraphHandle graph) override { graphs_.take(graph); }
  Status synchronize() override;

 private:
  Status describe();
  std::string unfinished() const;
  Result<const std::vector<CUtensorMap>*> tensor_maps(LoadedKernel& kernel, std::span<const DeviceAddress> buffers);
  void gather(std::span<const DeviceAddress> buffers, std::span<const int64_t> scalars,
              const std::vector<CUtensorMap>& maps);
  Status submit(const LoadedKernel& kernel, int64_t grid);

  Driver driver_;
  CudaOptions options_;
  CudaDeviceInfo info_;
  CudaLoads loads_;
  CUdevice device_ = 0;
  bool has_context_ = false;
  CUstream stream_ = nullptr;
  std::vector<LoadedKernel> kernels_;
  HandlePool<EventHandle, Event> events_;
  std::vector<CUevent> all_events_, spare_events_;
  HandlePool<GraphHandle, CudaGraph> graphs_;
  std::optional<CudaGraph> taking_down_;
  Arguments arguments_;
  int64_t launched_ = 0;  // kernels
  int64_t finished_ = 0;  // of them, known to have ended well
  std::string last_launched_;
};

// ---- opening and closing -----------------------------------------------------------------------------------------

// The newest target of ours that a device of this capability runs.
std::string target_for(int major, int minor) {
  if (major == 9) return "sm_90a";
  return major > 8 || (major == 8 && minor == 9) ? "sm_89" : "sm_80";
}

Status Cuda::open() {
  STEPC_DRIVER(driver_, cuInit, "", 0);
  int count = 0;
  STEPC_DRIVER(driver_, cuDeviceGetCount, "", &count);
  if (count == 0) return system_error("the NVIDIA driver sees no device");
  if (options_.ordinal >= count)
    return user_error("device {}: the NVIDIA driver sees {} device{}", options_.ordinal, count, count == 1 ? "" : "s");
  STEPC_DRIVER(driver_, cuDeviceGet, "", &device_, options_.ordinal);
  CUcontext context = nullptr;
  STEPC_DRIVER(driver_, cuDevicePrimaryCtxRetain, "", &context, device_);
  has_context_ = true;
  STEPC_DRIVER(driver_, cuCtxSetCurrent, "", context);
  STEPC_TRY(describe());
  STEPC_DRIVER(driver_, cuStreamCreate, "", &stream_, CU_STREAM_NON_BLOCKING);
  return {};
}

Status Cuda::describe() {
  const auto attribute = [&](CUdevice_attribute which) -> Result<int> {
    int value = 0;
    STEPC_DRIVER(driver_, cuDeviceGetAttribute, "", &value, which, device_);
    return value;
  };
  char name[256] = {};
  STEPC_DRIVER(driver_, cuDeviceGetName, "", name, sizeof name - 1, device_);
  info_.name = name;
  STEPC_DRIVER(driver_, cuDriverGetVersion, "", &info_.driver_version);
  STEPC_ASSIGN(const int major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  STEPC_ASSIGN(const int minor, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  if (major < 8)
    return system_error("the device {} is of compute capability {}.{}; stepc needs 8.0 or later", name, major, minor);
  info_.arch = fmt::format("sm_{}{}", major, minor);
  info_.target = target_for(major, minor);
  STEPC_ASSIGN(info_.processors, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  STEPC_ASSIGN(info_.shared_bytes, attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  size_t available = 0, total = 0;
  STEPC_DRIVER(driver_, cuMemGetInfo, "", &available, &total);
  info_.memory_bytes = static_cast<int64_t>(total);
  return {};
}

Cuda::~Cuda() {
  kernels_.clear();
  graphs_ = {};
  for (CUevent event : all_events_) driver_.cuEventDestroy(event);
  if (stream_) driver_.cuStreamDestroy(stream_);
  if (has_context_) driver_.cuDevicePrimaryCtxRelease(device_);
}

// ---- memory ------------------------------------------------------------------------------------------------------

Result<int64_t> Cuda::available_bytes() {
  size_t available = 0, total = 0;
  STEPC_DRIVER(driver_, cuMemGetInfo, "", &available, &total);
  return static_cast<int64_t>(available);
}

Result<DeviceAddress> Cuda::allocate(int64_t bytes) {
  STEPC_ASSIGN(const DeviceAddress address, allocate_unset(bytes));
  STEPC_DRIVER(driver_, cuMemsetD8Async, unfinished(), driver_address(address), 0,
               static_cast<size_t>(std::max<int64_t>(bytes, 1)), stream_);
  return address;
}

Result<DeviceAddress> Cuda::allocate_unset(int64_t bytes) {
  STEPC_CHECK(bytes >= 0, "{} bytes", bytes);
  CUdeviceptr address = 0;
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const CUresult result = driver_.cuMemAlloc(&address, size);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    STEPC_ASSIGN(const int64_t available, available_bytes());
    return system_error("cuMemAlloc needs {} bytes of device memory, the device {} has {} of its {} left", size,
                        info_.name, available, info_.memory_bytes);
  }
  if (result != CUDA_SUCCESS)
    return tl::unexpected(
        driver_error(driver_, "cuMemAlloc", result, joined(fmt::format("{} bytes", size), unfinished())));
  STEPC_CHECK(address % kAllocationAlignment == 0, "cuMemAlloc gave {:#x}", address);
  return static_cast<DeviceAddress>(address);
}

// The caller's memory is free to change when this returns.
Status Cuda::copy_in(DeviceAddress to, const void* from, int64_t bytes) {
  STEPC_TRY(copy_in_later(to, from, bytes));
  return bytes > 0 ? synchronize() : Status();
}

Status Cuda::copy_out(void* to, DeviceAddress from, int64_t bytes) {
  STEPC_TRY(copy_out_later(to, from, bytes));
  return bytes > 0 ? synchronize() : Status();
}

Result<void*> Cuda::allocate_host(int64_t bytes) {
  void* memory = nullptr;
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  STEPC_DRIVER(driver_, cuMemAllocHost, fmt::format("{} bytes of pinned host memory", size), &memory, size);
  return memory;
}

Status Cuda::copy_in_later(DeviceAddress to, const void* from, int64_t bytes) {
  if (bytes <= 0) return {};
  STEPC_DRIVER(driver_, cuMemcpyHtoDAsync, unfinished(), driver_address(to), from, static_cast<size_t>(bytes), stream_);
  return {};
}

Status Cuda::copy_out_later(void* to, DeviceAddress from, int64_t bytes) {
  if (bytes <= 0) return {};
  STEPC_DRIVER(driver_, cuMemcpyDtoHAsync, unfinished(), to, driver_address(from), static_cast<size_t>(bytes), stream_);
  return {};
}

Status Cuda::copy(DeviceAddress to, DeviceAddress from, int64_t bytes) {
  if (bytes <= 0) return {};
  STEPC_DRIVER(driver_, cuMemcpyDtoDAsync, unfinished(), driver_address(to), driver_address(from),
               static_cast<size_t>(bytes), stream_);
  return {};
}

Status Cuda::fill(DeviceAddress to, uint32_t pattern, int64_t element_bytes, int64_t count) {
  if (count <= 0) return {};
  const CUdeviceptr address = driver_address(to);
  const size_t elements = static_cast<size_t>(count);
  switch (element_bytes) {
    case 1:
      STEPC_DRIVER(driver_, cuMemsetD8Async, unfinished(), address, static_cast<unsigned char>(pattern), elements,
                   stream_);
      return {};
    case 2:
      STEPC_DRIVER(driver_, cuMemsetD16Async, unfinished(), address, static_cast<unsigned short>(pattern), elements,
                   stream_);
      return {};
    case 4: STEPC_DRIVER(driver_, cuMemsetD32Async, unfinished(), address, pattern, elements, stream_); return {};
    default: STEPC_UNREACHABLE("elements of {} bytes", element_bytes);
  }
}

// ---- kernels -----------------------------------------------------------------------------------------------------

Result<KernelHandle> Cuda::load(const KernelCode& kernel) {
  STEPC_CHECK(kernel.launch.threads > 0, "kernel {} is not for a GPU", kernel.symbol);
  STEPC_ASSIGN(CudaModule module, CudaModule::load(driver_, info_, kernel, options_.cache_folder, loads_));
  kernels_.push_back({kernel.symbol, kernel.launch, kernel.shared_bytes, std::move(module), {}});
  return static_cast<KernelHandle>(kernels_.size() - 1);
}

Result<const std::vector<CUtensorMap>*> Cuda::tensor_maps(LoadedKernel& kernel,
                                                          std::span<const DeviceAddress> buffers) {
  std::vector<DeviceAddress> addresses;
  for (const kernel::TensorMapSpec& spec : kernel.launch.maps) {
    STEPC_CHECK(spec.buffer >= 0 && static_cast<size_t>(spec.buffer) < buffers.size(),
                "kernel {}: a tensor map of buffer {} of {}", kernel.symbol, spec.buffer, buffers.size());
    addresses.push_back(buffers[static_cast<size_t>(spec.buffer)]);
  }
  const auto known = kernel.maps.find(addresses);
  if (known != kernel.maps.end()) return &known->second;
  std::vector<CUtensorMap> maps;
  for (size_t i = 0; i < addresses.size(); ++i) {
    STEPC_ASSIGN(const CUtensorMap map, encode_tensor_map(driver_, kernel.launch.maps[i], addresses[i], kernel.symbol));
    maps.push_back(map);
  }
  return &kernel.maps.emplace(std::move(addresses), std::move(maps)).first->second;
}

void Cuda::gather(std::span<const DeviceAddress> buffers, std::span<const int64_t> scalars,
                  const std::vector<CUtensorMap>& maps) {
  arguments_.words.clear();
  arguments_.pointers.clear();
  for (DeviceAddress buffer : buffers) arguments_.words.push_back(static_cast<uint64_t>(buffer));
  for (int64_t scalar : scalars) arguments_.words.push_back(static_cast<uint64_t>(scalar));
  for (uint64_t& word : arguments_.words) arguments_.pointers.push_back(&word);
  for (const CUtensorMap& map : maps) arguments_.pointers.push_back(const_cast<CUtensorMap*>(&map));
}

Status Cuda::submit(const LoadedKernel& kernel, int64_t grid) {
  CUlaunchAttribute cluster = {};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {static_cast<unsigned>(kernel.launch.cluster), 1, 1};
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(grid), config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(kernel.launch.threads), config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(kernel.shared_bytes);
  config.hStream = stream_;
  config.attrs = &cluster;
  config.numAttrs = kernel.launch.cluster > 1 ? 1 : 0;
  STEPC_DRIVER(driver_, cuLaunchKernelEx, joined(fmt::format("kernel {} x {}", kernel.symbol, grid), unfinished()),
               &config, kernel.module.function(), arguments_.pointers.data(), nullptr);
  return {};
}

Status Cuda::launch(KernelHandle handle, int64_t grid, std::span<const DeviceAddress> buffers,
                    std::span<const int64_t> scalars) {
  LoadedKernel& kernel = kernels_[static_cast<size_t>(handle)];
  if (grid == 0) return {};
  if (grid > kMaxGrid)
    return system_error("kernel {}: a grid of {} tasks, at most {} can be launched", kernel.symbol, grid, kMaxGrid);
  if (grid % kernel.launch.cluster != 0)
    return system_error("kernel {}: a grid of {} tasks is no multiple of its cluster of {}", kernel.symbol, grid,
                        kernel.launch.cluster);
  STEPC_ASSIGN(const std::vector<CUtensorMap>* const maps, tensor_maps(kernel, buffers));
  gather(buffers, scalars, *maps);
  STEPC_TRY(submit(kernel, grid));
  if (taking_down_) {
    taking_down_->add_kernel(kernel.symbol);
    return {};
  }
  ++launched_;
  last_launched_ = kernel.symbol;
  return options_.synchronous ? synchronize() : Status();
}

// ---- graphs ------------------------------------------------------------------------------------------------------

Status Cuda::begin_graph() {
  STEPC_CHECK(!taking_down_, "a graph inside a graph");
  STEPC_ASSIGN(taking_down_, CudaGraph::begin(driver_, stream_));
  return {};
}

Result<GraphHandle> Cuda::end_graph(const std::string& name) {
  STEPC_CHECK(taking_down_, "graph {} was not begun", name);
  CudaGraph graph = *std::exchange(taking_down_, std::nullopt);
  STEPC_TRY(graph.end(stream_, name));
  return graphs_.put(std::move(graph));
}

Status Cuda::run_graph(GraphHandle handle) {
  CudaGraph& graph = graphs_[handle];
  STEPC_DRIVER(driver_, cuGraphLaunch, joined(fmt::format("graph {}", graph.name()), unfinished()), graph.instance(),
               stream_);
  launched_ += graph.kernels();
  if (graph.kernels() > 0) last_launched_ = graph.last_kernel();
  return {};
}

// ---- order and time ----------------------------------------------------------------------------------------------

// Which kernels an error may come from: it shows at whatever is called after it.
std::string Cuda::unfinished() const {
  const int64_t count = launched_ - finished_;
  if (count == 0) return "";
  if (count == 1) return fmt::format("after kernel {}", last_launched_);
  return fmt::format("after {} kernels, the last of them {}", count, last_launched_);
}

Status Cuda::synchronize() {
  STEPC_DRIVER(driver_, cuStreamSynchronize, unfinished(), stream_);
  finished_ = launched_;
  return {};
}

Result<EventHandle> Cuda::record_event() {
  if (spare_events_.empty()) {
    CUevent event = nullptr;
    STEPC_DRIVER(driver_, cuEventCreate, "", &event, CU_EVENT_DEFAULT);
    all_events_.push_back(event);
    spare_events_.push_back(event);
  }
  const CUevent event = spare_events_.back();
  STEPC_DRIVER(driver_, cuEventRecord, unfinished(), event, stream_);
  spare_events_.pop_back();
  return events_.put({event, launched_});
}

Status Cuda::wait_for(EventHandle handle) {
  const Event& event = events_[handle];
  STEPC_DRIVER(driver_, cuEventSynchronize, unfinished(), event.event);
  finished_ = std::max(finished_, event.launched);
  return {};
}

void Cuda::release_events(std::span<const EventHandle> events) {
  for (EventHandle event : events) spare_events_.push_back(events_.take(event).event);
}

Result<double> Cuda::milliseconds_between(EventHandle from, EventHandle to) {
  STEPC_TRY(wait_for(to));
  float milliseconds = 0;
  STEPC_DRIVER(driver_, cuEventElapsedTime, "", &milliseconds, events_[from].event, events_[to].event);
  return milliseconds;
}

}  // namespace

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Result<std::unique_ptr<CudaDevice>> make_cuda_device(Driver driver, const CudaOptions& options) {
  auto device = std::make_unique<Cuda>(std::move(driver), options);
  STEPC_TRY(device->open());
  return device;
}

}  // namespace stepc
