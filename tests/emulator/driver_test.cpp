// The emulated driver: memory, streams that run late, launches, graphs, errors.
#include "runtime/emulator/driver.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "tests/emulator/machine.h"

using namespace stepc;
using namespace stepc::emulator;

namespace {

// to[i] = from[i] + 1
const std::string kAddOne = kernel_text(
    2,
    "add.s64 %rd10, %rd0, %rd100; ld.global.u32 %r1, [%rd10]; add.s32 %r1, %r1, 1; add.s64 %rd11, %rd1, %rd100; "
    "st.global.u32 [%rd11], %r1;");

struct Gpu {
  explicit Gpu(const EmulatorOptions& options = {}) : driver(emulated_driver(options)) {
    CUcontext context;
    REQUIRE(driver.cuInit(0) == CUDA_SUCCESS);
    REQUIRE(driver.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(driver.cuCtxSetCurrent(context) == CUDA_SUCCESS);
    REQUIRE(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(driver.cuMemAlloc(&a, 128) == CUDA_SUCCESS);
    REQUIRE(driver.cuMemAlloc(&b, 128) == CUDA_SUCCESS);
    REQUIRE(driver.cuMemsetD32Async(a, 5, 32, stream) == CUDA_SUCCESS);
    function = load(kAddOne);
  }
  CUfunction load(const std::string& text) {
    CUmodule module;
    CUfunction f;
    REQUIRE(driver.cuModuleLoadDataEx(&module, text.c_str(), 0, nullptr, nullptr) == CUDA_SUCCESS);
    REQUIRE(driver.cuModuleGetFunction(&f, module, "k") == CUDA_SUCCESS);
    return f;
  }
  CUresult launch(CUstream on, CUdeviceptr from, CUdeviceptr to, unsigned threads = 32, unsigned shared = 0) {
    CUlaunchConfig config{1, 1, 1, threads, 1, 1, shared, on, nullptr, 0};
    void* parameters[] = {&from, &to};
    return driver.cuLaunchKernelEx(&config, function, parameters, nullptr);
  }
  uint32_t first(CUdeviceptr from, CUstream on) {
    uint32_t value = 0;
    CHECK(driver.cuMemcpyDtoHAsync(&value, from, 4, on) == CUDA_SUCCESS);
    CHECK(driver.cuStreamSynchronize(on) == CUDA_SUCCESS);
    return value;
  }

  Driver driver;
  CUstream stream, other;
  CUdeviceptr a, b;
  CUfunction function;
};

}  // namespace

TEST_CASE("a stream's work is in order, and done when somebody waits") {
  Gpu gpu;
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b) == CUDA_SUCCESS);
  CHECK(gpu.launch(gpu.stream, gpu.b, gpu.a) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuStreamQuery(gpu.stream) == CUDA_ERROR_NOT_READY);
  CHECK(gpu.first(gpu.a, gpu.stream) == 7);
  CHECK(gpu.driver.cuStreamQuery(gpu.stream) == CUDA_SUCCESS);
}

TEST_CASE("a module's variable is 0 at first, and keeps what launches leave") {
  const std::string text = kernel_text(2,
                                       "mov.u64 %rd10, count; atom.relaxed.gpu.global.add.u32 %r1, [%rd10+4], 2; "
                                       "st.global.u32 [%rd1], %r1;");
  const size_t entry = text.find(".visible .entry");
  REQUIRE(entry != std::string::npos);
  const std::string module = text.substr(0, entry) + ".global .align 8 .b8 count[8];\n" + text.substr(entry);
  Gpu gpu;
  const auto count = [&] {
    CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b, 1) == CUDA_SUCCESS);
    return gpu.first(gpu.b, gpu.stream);
  };
  gpu.function = gpu.load(module);
  CHECK(count() == 0);
  CHECK(count() == 2);
  gpu.function = gpu.load(module);  // another module, with a variable of its own
  CHECK(count() == 0);
  CHECK(decode_error(".version 8.0\n.target sm_90a\n.address_size 64\n.global .b8 none[0];\n") ==
        "module.ptx:4:1: a variable of 0 bytes");
}

TEST_CASE("another stream sees the work only through an event") {
  Gpu gpu;
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b) == CUDA_SUCCESS);
  CHECK(gpu.first(gpu.b, gpu.other) == 0xffffffff);  // nobody waited
  CUevent event;
  REQUIRE(gpu.driver.cuEventCreate(&event, 0) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuEventRecord(event, gpu.stream) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(gpu.driver.cuStreamWaitEvent(gpu.other, event, 0) == CUDA_SUCCESS);
  CHECK(gpu.first(gpu.b, gpu.other) == 6);
  CHECK(gpu.driver.cuEventQuery(event) == CUDA_SUCCESS);
  float milliseconds = -1;
  CHECK(gpu.driver.cuEventElapsedTime(&milliseconds, event, event) == CUDA_SUCCESS);
  CHECK(milliseconds == 0);
}

TEST_CASE("pinned host memory is read late, pageable memory at the call") {
  Gpu gpu;
  void* address;
  REQUIRE(gpu.driver.cuMemAllocHost(&address, 4) == CUDA_SUCCESS);
  auto* pinned = static_cast<uint32_t*>(address);
  uint32_t pageable = 11;
  *pinned = 21;
  CHECK(gpu.driver.cuMemcpyHtoDAsync(gpu.a, &pageable, 4, gpu.stream) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuMemcpyHtoDAsync(gpu.b, pinned, 4, gpu.stream) == CUDA_SUCCESS);
  pageable = 12;
  *pinned = 22;
  CHECK(gpu.first(gpu.a, gpu.stream) == 11);
  CHECK(gpu.first(gpu.b, gpu.stream) == 22);
  CHECK(gpu.driver.cuMemFreeHost(address) == CUDA_SUCCESS);
}

TEST_CASE("a captured graph runs when launched, each time anew") {
  Gpu gpu;
  CUgraph graph;
  CUgraphExec instance;
  CUevent forked, joined;
  REQUIRE(gpu.driver.cuEventCreate(&forked, 0) == CUDA_SUCCESS);
  REQUIRE(gpu.driver.cuEventCreate(&joined, 0) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuStreamSynchronize(gpu.stream) == CUDA_SUCCESS);
  REQUIRE(gpu.driver.cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuEventRecord(forked, gpu.stream) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuStreamWaitEvent(gpu.other, forked, 0) == CUDA_SUCCESS);
  CHECK(gpu.launch(gpu.other, gpu.b, gpu.a) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuEventRecord(joined, gpu.other) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuStreamWaitEvent(gpu.stream, joined, 0) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuStreamSynchronize(gpu.stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  REQUIRE(gpu.driver.cuStreamEndCapture(gpu.stream, &graph) == CUDA_SUCCESS);
  REQUIRE(gpu.driver.cuGraphInstantiate(&instance, graph, 0) == CUDA_SUCCESS);
  CHECK(gpu.first(gpu.a, gpu.stream) == 5);
  for (int k = 0; k < 3; ++k) CHECK(gpu.driver.cuGraphLaunch(instance, gpu.stream) == CUDA_SUCCESS);
  CHECK(gpu.first(gpu.a, gpu.stream) == 11);
  CHECK(gpu.driver.cuGraphExecDestroy(instance) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("a fault fails the call that waits and every later one; its report comes once") {
  Gpu gpu;
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b, 64) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuStreamSynchronize(gpu.stream) == CUDA_ERROR_LAUNCH_FAILED);
  const std::string report = gpu.driver.fault_report();
  CHECK(report.find("address out of bounds: 4 bytes at global address") == 0);
  CHECK(report.find("kernel k, PTX line 6, CTA 0, warp 1") != std::string::npos);
  CHECK(gpu.driver.fault_report() == "");
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(gpu.driver.cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("calls are refused as the driver refuses them") {
  Gpu gpu({.memory_bytes = 1 << 20});
  CUdeviceptr p;
  CHECK(gpu.driver.cuMemAlloc(&p, 2 << 20) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(gpu.driver.cuMemAlloc(&p, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.driver.cuMemFree(gpu.a + 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.driver.cuMemsetD8Async(gpu.a + 100, 0, 29, gpu.stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.driver.cuMemsetD32Async(gpu.a + 2, 0, 1, gpu.stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b, 1056) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b, 32, 49153) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.driver.cuFuncSetAttribute(gpu.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.driver.cuFuncSetAttribute(gpu.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448) ==
        CUDA_SUCCESS);
  CHECK(gpu.launch(gpu.stream, gpu.a, gpu.b, 32, 232448) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuStreamSynchronize(gpu.stream) == CUDA_SUCCESS);

  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {2, 1, 1};
  CUlaunchConfig config{3, 1, 1, 32, 1, 1, 0, gpu.stream, &cluster, 1};
  void* parameters[] = {&gpu.a, &gpu.b};
  CHECK(gpu.driver.cuLaunchKernelEx(&config, gpu.function, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
  config.gridDimX = 32;
  cluster.value.clusterDim.x = 16;
  CHECK(gpu.driver.cuLaunchKernelEx(&config, gpu.function, parameters, nullptr) == CUDA_ERROR_INVALID_CLUSTER_SIZE);

  char log[200] = "";
  CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule module;
  const std::string bad = kernel_text(0, "tex.1d.v4.f32.s32 %r1;");
  CHECK(gpu.driver.cuModuleLoadDataEx(&module, bad.c_str(), 2, names, values) == CUDA_ERROR_INVALID_PTX);
  CHECK(std::string(log) == "module.ptx:6:1: unknown instruction tex.1d.v4.f32.s32");
  CHECK(gpu.driver.cuModuleLoadDataEx(&module,
                                      "\x7f"
                                      "ELF",
                                      2, names, values) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CUfunction f;
  REQUIRE(gpu.driver.cuModuleLoadDataEx(&module, kAddOne.c_str(), 0, nullptr, nullptr) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuModuleGetFunction(&f, module, "nothing") == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("linking gives back an image that loads") {
  Gpu gpu;
  CUlinkState state;
  void* image;
  size_t bytes;
  REQUIRE(gpu.driver.cuLinkCreate(0, nullptr, nullptr, &state) == CUDA_SUCCESS);
  std::string text = kAddOne;
  CHECK(gpu.driver.cuLinkAddData(state, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "k", 0, nullptr, nullptr) ==
        CUDA_SUCCESS);
  CHECK(gpu.driver.cuLinkComplete(state, &image, &bytes) == CUDA_SUCCESS);
  CUmodule module;
  CHECK(gpu.driver.cuModuleLoadDataEx(&module, image, 0, nullptr, nullptr) == CUDA_SUCCESS);
  CHECK(gpu.driver.cuLinkDestroy(state) == CUDA_SUCCESS);
}
