// A driver table for tests of the CUDA device alone: memory is the host's, nothing runs, every launch is written
// down, and any call can be made to fail.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

namespace stepc {

struct FakeDriver {
  struct Launch {
    CUlaunchConfig config;
    unsigned cluster = 1;
    std::vector<void*> parameters;  // copied: valid only during the launch
    std::vector<uint64_t> words;    // the first `words_per_launch` of them
  };
  struct Map {
    CUtensorMapDataType type;
    std::vector<uint64_t> extents, stride_bytes, box;
    CUtensorMapSwizzle swizzle;
    uint64_t address;
  };

  int devices = 1;
  int major = 9, minor = 0;
  size_t memory_bytes = size_t{1} << 30;
  size_t used_bytes = 0;
  size_t words_per_launch = 0;
  std::map<std::string, CUresult> failures;  // by call
  CUresult lost = CUDA_SUCCESS;              // what every call says once the device is gone
  int links = 0;
  std::string jit_log;
  std::string linked, loaded;  // the last images
  std::string report;
  std::vector<Launch> launches;
  std::vector<Map> maps;
  std::map<CUdeviceptr, size_t> allocations;
  std::set<CUmodule> modules;
  int contexts = 0, streams = 0, events = 0, synchronized = 0, pinned = 0, graphs = 0, graph_instances = 0;
  int shared_asked = 0;

  Driver table();

 private:
  CUresult outcome(const std::string& call) const {
    if (lost != CUDA_SUCCESS) return lost;
    const auto failure = failures.find(call);
    return failure == failures.end() ? CUDA_SUCCESS : failure->second;
  }
  void add_devices(Driver& driver);
  void add_memory(Driver& driver);
  void add_streams(Driver& driver);
  void add_modules(Driver& driver);
  void add_graphs(Driver& driver);
  CUresult launch(const CUlaunchConfig* config, void** parameters);
};

template <class Handle>
Handle fake_handle(int number) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(number));
}

inline void FakeDriver::add_devices(Driver& driver) {
  driver.cuInit = [this](unsigned) { return outcome("cuInit"); };
  driver.cuDriverGetVersion = [](int* version) { return *version = 12040, CUDA_SUCCESS; };
  driver.cuGetErrorName = [](CUresult error, const char** name) {
    *name = error == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                  : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
  };
  driver.cuGetErrorString = [](CUresult error, const char** text) {
    *text = error == CUDA_ERROR_OUT_OF_MEMORY     ? "out of memory"
            : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                                  : "something else";
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetCount = [this](int* count) { return *count = devices, CUDA_SUCCESS; };
  driver.cuDeviceGet = [](CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; };
  driver.cuDeviceGetName = [](char* name, int, CUdevice) { return std::strcpy(name, "Fake 100"), CUDA_SUCCESS; };
  driver.cuDeviceGetAttribute = [this](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? major
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? minor
             : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 132
                                                                         : 227 * 1024;
    return CUDA_SUCCESS;
  };
  driver.cuDevicePrimaryCtxRetain = [this](CUcontext* context, CUdevice) {
    return *context = fake_handle<CUcontext>(1), ++contexts, CUDA_SUCCESS;
  };
  driver.cuDevicePrimaryCtxRelease = [this](CUdevice) { return --contexts, CUDA_SUCCESS; };
  driver.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
}

inline void FakeDriver::add_memory(Driver& driver) {
  driver.cuMemAlloc = [this](CUdeviceptr* address, size_t bytes) {
    if (bytes > memory_bytes - used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    std::memset(reinterpret_cast<void*>(*address), 0xee, bytes);
    allocations[*address] = bytes, used_bytes += bytes;
    return CUDA_SUCCESS;
  };
  driver.cuMemFree = [this](CUdeviceptr address) {
    used_bytes -= allocations.at(address);
    allocations.erase(address);
    return std::free(reinterpret_cast<void*>(address)), lost;
  };
  driver.cuMemAllocHost = [this](void** memory, size_t bytes) {
    ++pinned;
    return *memory = std::malloc(bytes), outcome("cuMemAllocHost");
  };
  driver.cuMemFreeHost = [this](void* memory) { return --pinned, std::free(memory), CUDA_SUCCESS; };
  driver.cuMemGetInfo = [this](size_t* available, size_t* total) {
    return *available = memory_bytes - used_bytes, *total = memory_bytes, CUDA_SUCCESS;
  };
  driver.cuMemcpyHtoDAsync = [this](CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    return std::memcpy(reinterpret_cast<void*>(to), from, bytes), outcome("cuMemcpyHtoDAsync");
  };
  driver.cuMemcpyDtoHAsync = [this](void* to, CUdeviceptr from, size_t bytes, CUstream) {
    return std::memcpy(to, reinterpret_cast<void*>(from), bytes), outcome("cuMemcpyDtoHAsync");
  };
  driver.cuMemcpyDtoDAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), CUDA_SUCCESS;
  };
  const auto set = [](auto value, CUdeviceptr to, size_t count) {
    return std::fill_n(reinterpret_cast<decltype(value)*>(to), count, value), CUDA_SUCCESS;
  };
  driver.cuMemsetD8Async = [set](CUdeviceptr to, unsigned char value, size_t n, CUstream) { return set(value, to, n); };
  driver.cuMemsetD16Async = [set](CUdeviceptr to, unsigned short v, size_t n, CUstream) { return set(v, to, n); };
  driver.cuMemsetD32Async = [set](CUdeviceptr to, unsigned value, size_t n, CUstream) { return set(value, to, n); };
}

inline void FakeDriver::add_streams(Driver& driver) {
  driver.cuStreamCreate = [this](CUstream* stream, unsigned) {
    return *stream = fake_handle<CUstream>(++streams), CUDA_SUCCESS;
  };
  driver.cuStreamDestroy = [this](CUstream) { return --streams, CUDA_SUCCESS; };
  driver.cuStreamSynchronize = [this](CUstream) { return ++synchronized, outcome("cuStreamSynchronize"); };
  driver.cuEventCreate = [this](CUevent* event, unsigned) {
    return *event = fake_handle<CUevent>(++events), CUDA_SUCCESS;
  };
  driver.cuEventDestroy = [this](CUevent) { return --events, CUDA_SUCCESS; };
  driver.cuEventRecord = [this](CUevent, CUstream) { return outcome("cuEventRecord"); };
  driver.cuEventSynchronize = [this](CUevent) { return outcome("cuEventSynchronize"); };
  driver.cuEventElapsedTime = [](float* milliseconds, CUevent from, CUevent to) {
    *milliseconds = 0.5F * static_cast<float>(reinterpret_cast<intptr_t>(to) - reinterpret_cast<intptr_t>(from));
    return CUDA_SUCCESS;
  };
}

inline void FakeDriver::add_graphs(Driver& driver) {
  driver.cuStreamBeginCapture = [this](CUstream, CUstreamCaptureMode) { return outcome("cuStreamBeginCapture"); };
  driver.cuStreamEndCapture = [this](CUstream, CUgraph* graph) {
    return *graph = fake_handle<CUgraph>(++graphs), outcome("cuStreamEndCapture");
  };
  driver.cuGraphInstantiate = [this](CUgraphExec* instance, CUgraph, unsigned long long) {
    *instance = fake_handle<CUgraphExec>(++graph_instances);
    return outcome("cuGraphInstantiate");
  };
  driver.cuGraphLaunch = [this](CUgraphExec, CUstream) { return outcome("cuGraphLaunch"); };
  driver.cuGraphExecDestroy = [this](CUgraphExec) { return --graph_instances, CUDA_SUCCESS; };
  driver.cuGraphDestroy = [this](CUgraph) { return --graphs, CUDA_SUCCESS; };
}

inline CUresult FakeDriver::launch(const CUlaunchConfig* config, void** parameters) {
  Launch& launch = launches.emplace_back(Launch{*config, 1, {}, {}});
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      launch.cluster = config->attrs[i].value.clusterDim.x;
  for (size_t i = 0; i < words_per_launch; ++i) launch.words.push_back(*static_cast<uint64_t*>(parameters[i]));
  return outcome("cuLaunchKernelEx");
}

inline void FakeDriver::add_modules(Driver& driver) {
  driver.cuModuleLoadDataEx = [this](CUmodule* module, const void* image, unsigned count, CUjit_option* names,
                                     void** values) {
    loaded = static_cast<const char*>(image);
    for (unsigned i = 0; i < count; ++i)
      if (names[i] == CU_JIT_ERROR_LOG_BUFFER) std::strcpy(static_cast<char*>(values[i]), jit_log.c_str());
    const CUresult result = outcome("cuModuleLoadDataEx");
    if (result == CUDA_SUCCESS) modules.insert(*module = fake_handle<CUmodule>(static_cast<int>(modules.size()) + 1));
    return result;
  };
  driver.cuLinkCreate = [this](unsigned count, CUjit_option* names, void** values, CUlinkState* state) {
    for (unsigned i = 0; i < count; ++i)
      if (names[i] == CU_JIT_ERROR_LOG_BUFFER) std::strcpy(static_cast<char*>(values[i]), jit_log.c_str());
    return *state = fake_handle<CUlinkState>(++links), outcome("cuLinkCreate");
  };
  driver.cuLinkAddData = [this](CUlinkState, CUjitInputType, void* data, size_t bytes, const char*, unsigned,
                                CUjit_option*, void**) {
    linked = "\177ELF of " + std::string(static_cast<const char*>(data), bytes - 1);
    return outcome("cuLinkAddData");
  };
  driver.cuLinkComplete = [this](CUlinkState, void** cubin, size_t* bytes) {
    return *cubin = linked.data(), *bytes = linked.size(), outcome("cuLinkComplete");
  };
  driver.cuLinkDestroy = [this](CUlinkState) { return --links, CUDA_SUCCESS; };
  driver.cuModuleUnload = [this](CUmodule module) { return modules.erase(module), CUDA_SUCCESS; };
  driver.cuModuleGetFunction = [this](CUfunction* function, CUmodule, const char*) {
    return *function = fake_handle<CUfunction>(1), outcome("cuModuleGetFunction");
  };
  driver.cuFuncSetAttribute = [this](CUfunction, CUfunction_attribute attribute, int value) {
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) shared_asked = value;
    return CUDA_SUCCESS;
  };
  driver.cuLaunchKernelEx = [this](const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
    return launch(config, parameters);
  };
  driver.cuTensorMapEncodeTiled = [this](CUtensorMap*, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                         const cuuint64_t* extents, const cuuint64_t* stride_bytes,
                                         const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                                         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    maps.push_back({type,
                    {extents, extents + rank},
                    {stride_bytes, stride_bytes + rank - 1},
                    {box, box + rank},
                    swizzle,
                    reinterpret_cast<uint64_t>(address)});
    return outcome("cuTensorMapEncodeTiled");
  };
}

inline Driver FakeDriver::table() {
  Driver driver;
  driver.origin = "fake";
  add_devices(driver);
  add_memory(driver);
  add_streams(driver);
  add_modules(driver);
  add_graphs(driver);
  driver.fault_report = [this] { return std::exchange(report, ""); };
  return driver;
}

}  // namespace stepc
