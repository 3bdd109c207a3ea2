#include <doctest/doctest.h>

#include "runtime/host/host_memory.h"
#include "tests/runtime/host_kernels.h"

namespace stepc {
namespace {

TEST_CASE("errors of the host device name the call") {
  const auto device = make_host_device(load_by_name, 1);
  CHECK(device->load({"none", "code of none", 0}).error().text() == "no symbol none");
  CHECK(device->allocate(INT64_MAX - 5).error().text() == "cannot allocate 9223372036854775802 bytes of host memory");
  const auto huge = device->allocate(int64_t{1} << 60);
  CHECK(huge.error().text() == "cannot allocate 1152921504606846976 bytes of host memory: Cannot allocate memory");
  CHECK(huge.error().exit_code() == 1);
}

TEST_CASE("available memory is read from the system") {
  CHECK(parse_mem_available("MemTotal:  9 kB\nMemAvailable:    7 kB\nX: 1 kB\n").value() == 7168);
  CHECK(parse_mem_available("MemTotal:  9 kB\n").error().text() ==
        "/proc/meminfo: expected a line MemAvailable, found none");
  CHECK(available_host_bytes().value() > 0);
}

TEST_CASE("a recording device writes every call") {
  const auto host = make_host_device(load_by_name, 1);
  std::string log;
  const auto device = make_recording_device(*host, log);
  const DeviceAddress a = device->allocate(256).value();
  const DeviceAddress b = device->allocate(64).value();
  const KernelHandle add = device->load({"add", "code of add", 128}).value();
  const float one = 1;
  REQUIRE(device->copy_in(a + 64, &one, 4).has_value());
  const DeviceAddress buffers[] = {a, a + 64, b};
  const int64_t scalars[] = {1, 64};
  REQUIRE(device->launch(add, 1, buffers, scalars).has_value());
  float sum = 0;
  REQUIRE(device->copy_out(&sum, b, 4).has_value());
  CHECK(sum == 1);
  REQUIRE(device->copy(a, b, 4).has_value());
  REQUIRE(device->fill(b + 4, 0x7f, 1, 3).has_value());
  REQUIRE(device->synchronize().has_value());
  device->free(b);
  CHECK(log ==
        "a0 = allocate 256\n"
        "a1 = allocate 64\n"
        "load add, 128 shared bytes\n"
        "copy_in a0+64, 4\n"
        "launch add x 1 (a0, a0+64, a1, 1, 64)\n"
        "copy_out a1, 4\n"
        "copy a0 <- a1, 4\n"
        "fill a1+4, 0x7f x 3, 1 bytes each\n"
        "synchronize\n"
        "free a1\n");
  device->free(a);
}

}  // namespace
}  // namespace stepc
