#include <doctest/doctest.h>

#include <algorithm>

#include "runtime/host/host_memory.h"
#include "tests/runtime/host_kernels.h"

namespace stepc {
namespace {

TEST_CASE("the host device allocates zeroed aligned memory, copies, fills and launches") {
  for (int threads : {1, 2, 5}) {
    const auto device = make_host_device(load_by_name, threads);
    const DeviceAddress big = device->allocate(9 << 20).value();
    const DeviceAddress empty = device->allocate(0).value();
    CHECK(static_cast<uint64_t>(big) % 64 == 0);
    std::vector<float> values(1009), sums(1009, -1);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const int64_t bytes = 1009 * 4;
    std::vector<char> zeros(bytes, 'x');
    REQUIRE(device->copy_out(zeros.data(), big + 4096, bytes).has_value());
    CHECK(std::all_of(zeros.begin(), zeros.end(), [](char c) { return c == 0; }));
    REQUIRE(device->copy_in(big, values.data(), bytes).has_value());
    REQUIRE(device->copy(big + 8192, big, bytes).has_value());
    const KernelHandle add = device->load({"add", "code of add", 0}).value();
    const DeviceAddress buffers[] = {big, big + 8192, big + 16384};
    const int64_t scalars[] = {1009, 64};
    REQUIRE(device->launch(add, 16, buffers, scalars).has_value());
    REQUIRE(device->copy_out(sums.data(), big + 16384, bytes).has_value());
    for (size_t i = 0; i < sums.size(); ++i) REQUIRE(sums[i] == 2 * values[i]);
    REQUIRE(device->fill(big + 2, 0xabcd, 2, 3).has_value());
    uint16_t words[5] = {};
    REQUIRE(device->copy_out(words, big, 10).has_value());
    CHECK(words[1] == 0xabcd);
    CHECK(words[3] == 0xabcd);
    CHECK(words[4] != 0xabcd);
    device->free(big);
    device->free(empty);
  }
}

TEST_CASE("every thread has aligned scratch of its own") {
  const auto device = make_host_device(load_by_name, 3);
  const KernelHandle add = device->load({"add", "code of add", 4}).value();
  const KernelHandle divide = device->load({"divide", "code of divide", 64}).value();
  (void)add;
  const DeviceAddress data = device->allocate(8192).value();
  std::vector<float> values(500);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(1 << (i % 10));
  const float numerator = 1024;
  REQUIRE(device->copy_in(data, values.data(), 2000).has_value());
  REQUIRE(device->copy_in(data + 2048, &numerator, 4).has_value());
  const DeviceAddress buffers[] = {data, data + 2048, data + 4096};
  for (int round = 0; round < 50; ++round) REQUIRE(device->launch(divide, 500, buffers, {}).has_value());
  std::vector<float> quotients(500);
  REQUIRE(device->copy_out(quotients.data(), data + 4096, 2000).has_value());
  for (size_t i = 0; i < values.size(); ++i) REQUIRE(quotients[i] == 1024 / values[i]);
}

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
