// The CUDA device over a driver that only takes notes: what is passed, what is kept, what its errors say.
#include "runtime/cuda/cuda_device.h"

#include <doctest/doctest.h>

#include "tests/runtime/fake_driver.h"

namespace stepc {
namespace {

constexpr const char* kPtx = ".version 8.0\n.target sm_90a\n.address_size 64\n";

KernelCode ptx_kernel(const std::string& symbol) {
  KernelCode kernel{symbol, kPtx, 1024, {}};
  kernel.launch.threads = 128;
  return kernel;
}

std::unique_ptr<CudaDevice> open(FakeDriver& fake, const CudaOptions& options = {}) {
  return make_cuda_device(fake.table(), options).value();
}

std::string open_error(FakeDriver& fake, const CudaOptions& options = {}) {
  const auto device = make_cuda_device(fake.table(), options);
  REQUIRE_FALSE(device.has_value());
  return device.error().text();
}

TEST_CASE("the CUDA device tells what it is, and gives back all that it took") {
  FakeDriver fake;
  {
    const auto device = open(fake);
    CHECK(device->info().name == "Fake 100");
    CHECK(device->info().arch == "sm_90");
    CHECK(device->info().target == "sm_90a");
    CHECK(cuda_version_text(device->info().driver_version) == "12.4");
    CHECK(device->info().processors == 132);
    CHECK(device->info().memory_bytes == 1 << 30);
    CHECK(device->load(ptx_kernel("one")).has_value());
    CHECK(device->record_event().has_value());
    CHECK(fake.contexts == 1);
    CHECK(fake.modules.size() == 1);
  }
  CHECK(fake.contexts == 0);
  CHECK(fake.streams == 0);
  CHECK(fake.events == 0);
  CHECK(fake.modules.empty());
}

TEST_CASE("each capability gets the newest target that it runs") {
  const std::pair<std::pair<int, int>, const char*> cases[] = {
      {{8, 0}, "sm_80"}, {{8, 6}, "sm_80"}, {{8, 9}, "sm_89"}, {{9, 0}, "sm_90a"}, {{10, 0}, "sm_89"}};
  for (const auto& [capability, target] : cases) {
    FakeDriver fake;
    fake.major = capability.first, fake.minor = capability.second;
    CHECK(open(fake)->info().target == target);
  }
}

TEST_CASE("a missing or unsuitable device is one clear error") {
  FakeDriver fake;
  fake.devices = 0;
  CHECK(open_error(fake) == "the NVIDIA driver sees no device");
  fake.devices = 1;
  CHECK(open_error(fake, {.ordinal = 3}) == "device 3: the NVIDIA driver sees 1 device");
  fake.major = 7, fake.minor = 5;
  CHECK(open_error(fake) == "the device Fake 100 is of compute capability 7.5; stepc needs 8.0 or later");
  fake.failures["cuInit"] = CUDA_ERROR_NO_DEVICE;
  CHECK(open_error(fake) == "cuInit: CUDA_ERROR_OTHER (something else)");
}

TEST_CASE("memory is zeroed; too much of it says what is needed and what is there") {
  FakeDriver fake;
  const auto device = open(fake);
  const DeviceAddress address = device->allocate(1000).value();
  std::vector<char> bytes(1000, 'x');
  REQUIRE(device->copy_out(bytes.data(), address, 1000).has_value());
  CHECK(std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; }));
  const auto huge = device->allocate(int64_t{1} << 40);
  CHECK(huge.error().text() ==
        "cuMemAlloc needs 1099511627776 bytes of device memory, the device Fake 100 has 1073740824 of its 1073741824 "
        "left");
  CHECK(huge.error().exit_code() == 1);
  device->free(address);
  CHECK(fake.allocations.empty());
}

TEST_CASE("a launch passes addresses, then scalars, then tensor maps made once for the addresses") {
  FakeDriver fake;
  fake.words_per_launch = 4;
  const auto device = open(fake);
  KernelCode code = ptx_kernel("gemm");
  code.shared_bytes = 200'000;
  code.launch = {384, 2, {{1, Dtype::bf16, {8, 64, 100}, {6656, 104, 1}, {1, 64, 64}, 128}}};
  const KernelHandle kernel = device->load(code).value();
  CHECK(fake.shared_asked == 200'000);
  const DeviceAddress buffers[] = {DeviceAddress{0x1000}, DeviceAddress{0x2000}, DeviceAddress{0x3000}};
  const int64_t scalars[] = {-7};
  for (int turn = 0; turn < 3; ++turn) REQUIRE(device->launch(kernel, 66, buffers, scalars).has_value());
  REQUIRE(fake.launches.size() == 3);
  const FakeDriver::Launch& launch = fake.launches[2];
  CHECK(launch.words == std::vector<uint64_t>{0x1000, 0x2000, 0x3000, static_cast<uint64_t>(-7)});
  CHECK(launch.config.gridDimX == 66);
  CHECK(launch.config.gridDimY * launch.config.gridDimZ == 1);
  CHECK(launch.config.blockDimX == 384);
  CHECK(launch.config.sharedMemBytes == 200'000);
  CHECK(launch.cluster == 2);
  REQUIRE(fake.maps.size() == 1);
  CHECK(fake.maps[0].type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  CHECK(fake.maps[0].address == 0x2000);
  CHECK(fake.maps[0].extents == std::vector<uint64_t>{100, 64, 8});
  CHECK(fake.maps[0].stride_bytes == std::vector<uint64_t>{208, 13312});
  CHECK(fake.maps[0].box == std::vector<uint64_t>{64, 64, 1});
  CHECK(fake.maps[0].swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
  const DeviceAddress others[] = {DeviceAddress{0x1000}, DeviceAddress{0x9000}, DeviceAddress{0x3000}};
  REQUIRE(device->launch(kernel, 66, others, scalars).has_value());
  CHECK(fake.maps.size() == 2);
  CHECK(device->launch(kernel, 65, buffers, scalars).error().text() ==
        "kernel gemm: a grid of 65 tasks is no multiple of its cluster of 2");
  CHECK(device->launch(kernel, int64_t{1} << 31, buffers, scalars).error().text() ==
        "kernel gemm: a grid of 2147483648 tasks, at most 2147483647 can be launched");
  fake.failures["cuTensorMapEncodeTiled"] = CUDA_ERROR_INVALID_VALUE;
  const DeviceAddress odd[] = {DeviceAddress{0x1000}, DeviceAddress{0x9008}, DeviceAddress{0x3000}};
  CHECK(device->launch(kernel, 66, odd, scalars).error().text() ==
        "kernel gemm, bf16[8, 64, 100] strides [6656, 104, 1] box [1, 64, 64] swizzle 128 at 0x9008: "
        "cuTensorMapEncodeTiled: CUDA_ERROR_OTHER (something else)");
}

TEST_CASE("kernels that cannot be loaded say why") {
  FakeDriver fake;
  const auto device = open(fake);
  const auto error = [&](KernelCode code) { return device->load(code).error().text(); };
  KernelCode other = ptx_kernel("gemm");
  other.code = ".version 8.7\n.target sm_100a, debug\n";
  CHECK(error(other) ==
        "kernel gemm was compiled for sm_100a, the device Fake 100 is sm_90: compile with --arch sm_90a");
  other.code = "what?";
  CHECK(error(other) == "kernel gemm: its code is neither PTX nor a cubin");
  KernelCode large = ptx_kernel("gemm");
  large.shared_bytes = 300'000;
  CHECK(error(large) == "kernel gemm needs 300000 bytes of shared memory, the device Fake 100 has 232448");
  fake.jit_log = "ptxas error at line 3\n";
  fake.failures["cuModuleLoadDataEx"] = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  CHECK(
      error(ptx_kernel("gemm")) ==
      "kernel gemm: cuModuleLoadDataEx: CUDA_ERROR_OTHER (something else); the PTX is of version 8.0, which the driver "
      "of CUDA 12.4 does not read: update the driver\nptxas error at line 3");
  fake.failures["cuModuleLoadDataEx"] = CUDA_ERROR_NO_BINARY_FOR_GPU;
  other.code = "\177ELF";
  CHECK(
      error(other).starts_with("kernel gemm: cuModuleLoadDataEx: CUDA_ERROR_OTHER (something else); it was compiled "
                               "for another architecture, the device Fake 100 is sm_90"));
}

TEST_CASE("an error that a kernel makes names the kernels it may come from, and tells the emulator's report") {
  FakeDriver fake;
  const auto device = open(fake);
  const KernelHandle a = device->load(ptx_kernel("a")).value(), b = device->load(ptx_kernel("b")).value();
  REQUIRE(device->launch(a, 1, {}, {}).has_value());
  REQUIRE(device->launch(b, 1, {}, {}).has_value());
  fake.failures["cuStreamSynchronize"] = CUDA_ERROR_LAUNCH_FAILED;
  fake.report = "read of data before it landed";
  CHECK(device->synchronize().error().text() ==
        "after 2 kernels, the last of them b: cuStreamSynchronize: CUDA_ERROR_OTHER (something else)\n"
        "read of data before it landed");
  FakeDriver second;
  const auto careful = open(second, {.synchronous = true});
  const KernelHandle c = careful->load(ptx_kernel("c")).value();
  second.failures["cuStreamSynchronize"] = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(careful->launch(c, 1, {}, {}).error().text() ==
        "after kernel c: cuStreamSynchronize: CUDA_ERROR_OTHER (something else)");
}

TEST_CASE("events are used again after they were released") {
  FakeDriver fake;
  const auto device = open(fake);
  for (int turn = 0; turn < 3; ++turn) {
    const EventHandle first = device->record_event().value();
    const EventHandle between = device->record_event().value();
    const EventHandle last = device->record_event().value();
    CHECK(std::abs(device->milliseconds_between(first, last).value()) == doctest::Approx(1.0));
    const EventHandle all[] = {first, between, last};
    device->release_events(all);
  }
  CHECK(fake.events == 3);
}

}  // namespace
}  // namespace stepc
