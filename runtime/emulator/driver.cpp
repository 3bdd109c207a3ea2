#include "runtime/emulator/driver.h"

#include <cstring>

#include "runtime/emulator/driver_state.h"

namespace stepc {
namespace emulator {
namespace {

struct ErrorName {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "cluster misconfiguration"},
};

const ErrorName* find_error(CUresult code) {
  for (const ErrorName& e : kErrors)
    if (e.code == code) return &e;
  return nullptr;
}

template <class... Args>
std::function<CUresult(Args...)> bind_call(const std::shared_ptr<EmulatedDevice>& device,
                                           CUresult (EmulatedDevice::*call)(Args...)) {
  return [device, call](Args... args) {
    const std::lock_guard lock(device->mutex());
    return (device.get()->*call)(args...);
  };
}

}  // namespace

EmulatedDevice::EmulatedDevice(const EmulatorOptions& options)
    : options_(options), memory_(options.memory_bytes), pool_(options.threads) {}

std::string EmulatedDevice::take_report() { return std::exchange(report_, ""); }

// ---- the device
CUresult EmulatedDevice::cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult EmulatedDevice::cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuGetErrorName(CUresult error, const char** name) {
  const ErrorName* e = find_error(error);
  *name = e ? e->name : nullptr;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult EmulatedDevice::cuGetErrorString(CUresult error, const char** text) {
  const ErrorName* e = find_error(error);
  *text = e ? e->text : nullptr;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult EmulatedDevice::cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuDeviceGet(CUdevice* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult EmulatedDevice::cuDeviceGetName(char* name, int bytes, CUdevice device) {
  if (device != 0 || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string text =
      fmt::format("stepc emulator, compute capability {}.{}", options_.capability_major, options_.capability_minor);
  const size_t n = std::min(text.size(), static_cast<size_t>(bytes) - 1);
  std::memcpy(name, text.data(), n);
  name[n] = '\0';
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 * 1024; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1'000'000; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = static_cast<int>(options_.sm_count); return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = options_.capability_major; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = options_.capability_minor; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = kMaxSharedBytes; return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult EmulatedDevice::cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, "stepc-emulator-0", 16);
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(this);
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult EmulatedDevice::cuDevicePrimaryCtxRelease(CUdevice device) {
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult EmulatedDevice::cuCtxSetCurrent(CUcontext context) {
  return context == nullptr || context == reinterpret_cast<CUcontext>(this) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace emulator

Driver emulated_driver(const EmulatorOptions& options) {
  const auto device = std::make_shared<emulator::EmulatedDevice>(options);
  Driver driver;
#define DRIVER_CALL(name, symbol, parameters) \
  driver.name = emulator::bind_call(device, &emulator::EmulatedDevice::name);
#include "runtime/cuda/driver_calls.def"
#undef DRIVER_CALL
  driver.fault_report = [device] {
    const std::lock_guard lock(device->mutex());
    return device->take_report();
  };
  driver.origin = "emulator";
  driver.owner = device;
  return driver;
}

}  // namespace stepc
