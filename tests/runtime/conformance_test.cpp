// What every device promises (runtime/device.h), on each of them: the host, and a GPU (tests/support/gpu.h).
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "tests/runtime/gpu_kernels.h"
#include "tests/runtime/host_kernels.h"
#include "tests/support/gpu.h"

namespace stepc {
namespace {

struct Subject {
  std::string name;
  std::unique_ptr<Device> device;
  KernelCode add;
  KernelCode divide;
};

Subject host_subject(int threads) {
  return {fmt::format("host, {} threads", threads),
          make_host_device(load_by_name, threads),
          {"add", "code of add", 0, {}},
          {"divide", "code of divide", 64, {}}};
}
Subject gpu_subject(uint64_t seed) {
  return {test::on_card() ? "card" : fmt::format("emulator, seed {}", seed), test::open_gpu(seed), gpu_add(),
          gpu_divide()};
}

void on_every_device(const std::function<void(Subject&)>& check) {
  std::vector<std::function<Subject()>> makers;
  if (!test::on_card())
    for (int threads : {1, 2, 5}) makers.emplace_back([threads] { return host_subject(threads); });
  for (uint64_t seed : {1, 7})
    if (seed == 1 || !test::on_card()) makers.emplace_back([seed] { return gpu_subject(seed); });
  for (const auto& make : makers) {
    Subject subject = make();
    CAPTURE(subject.name);
    check(subject);
  }
}

std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

void send(Device& device, DeviceAddress to, const std::vector<float>& values) {
  REQUIRE(device.copy_in(to, values.data(), static_cast<int64_t>(values.size() * 4)).has_value());
}
std::vector<float> fetch(Device& device, DeviceAddress from, size_t count) {
  std::vector<float> values(count, -1);
  const Status status = device.copy_out(values.data(), from, static_cast<int64_t>(count * 4));
  REQUIRE_MESSAGE(status.has_value(), status.error().text());
  return values;
}

TEST_CASE("devices: memory is zeroed and aligned, copies move what they should") {
  on_every_device([](Subject& subject) {
    Device& device = *subject.device;
    const DeviceAddress big = device.allocate(9 << 20).value();
    const DeviceAddress empty = device.allocate(0).value();
    CHECK(static_cast<uint64_t>(big) % 64 == 0);
    const std::vector<float> zeros = fetch(device, big + 4096, 5000);
    CHECK(std::all_of(zeros.begin(), zeros.end(), [](float x) { return x == 0; }));
    const std::vector<float> values = counted(1009);
    send(device, big + 4, values);
    REQUIRE(device.copy(big + 8192, big + 4, 1009 * 4).has_value());
    CHECK(fetch(device, big + 8192, 1009) == values);
    CHECK(fetch(device, big, 1) == std::vector<float>{0});
    CHECK(fetch(device, big + 8192 + 1009 * 4, 1) == std::vector<float>{0});
    CHECK(device.available_bytes().value() > 0);
    device.free(big);
    device.free(empty);
  });
}

TEST_CASE("devices: fills of every element size touch nothing else") {
  on_every_device([](Subject& subject) {
    Device& device = *subject.device;
    for (int64_t element : {1, 2, 4}) {
      const DeviceAddress at = device.allocate(64).value();
      REQUIRE(device.fill(at + 2 * element, 0x8765abcd, element, 3).has_value());
      std::vector<uint8_t> bytes(64), expected(64);
      REQUIRE(device.copy_out(bytes.data(), at, 64).has_value());
      for (int64_t i = 2 * element; i < 5 * element; ++i)
        expected[static_cast<size_t>(i)] = static_cast<uint8_t>(0x8765abcdu >> (i % element * 8));
      CHECK(bytes == expected);
      REQUIRE(device.fill(at, 1, element, 0).has_value());
      device.free(at);
    }
  });
}

TEST_CASE("devices: launches pass buffers and scalars, in order with copies") {
  on_every_device([](Subject& subject) {
    Device& device = *subject.device;
    const KernelHandle add = device.load(subject.add).value();
    const DeviceAddress at = device.allocate(3 * 8192).value();
    const DeviceAddress buffers[] = {at, at + 8192, at + 16384};
    const int64_t scalars[] = {1009, 64};
    std::vector<float> values = counted(1009);
    send(device, at, values);
    send(device, at + 8192, values);
    for (int turn = 0; turn < 3; ++turn) {
      REQUIRE(device.launch(add, 16, buffers, scalars).has_value());
      REQUIRE(device.copy(at, at + 16384, 1009 * 4).has_value());
    }
    for (float& value : values) value *= 4;
    CHECK(fetch(device, at + 16384, 1009) == values);
    CHECK(fetch(device, at + 16384 + 1009 * 4, 1) == std::vector<float>{0});
    device.free(at);
  });
}

TEST_CASE("devices: every task has shared memory of its own") {
  on_every_device([](Subject& subject) {
    Device& device = *subject.device;
    (void)device.load(subject.add).value();
    const KernelHandle divide = device.load(subject.divide).value();
    const DeviceAddress at = device.allocate(8192).value();
    std::vector<float> values(500), quotients(500);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(1 << (i % 10));
    for (size_t i = 0; i < values.size(); ++i) quotients[i] = 1024 / values[i];
    send(device, at, values);
    send(device, at + 2048, {1024});
    const DeviceAddress buffers[] = {at, at + 2048, at + 4096};
    for (int turn = 0; turn < 3; ++turn) REQUIRE(device.launch(divide, 500, buffers, {}).has_value());
    CHECK(fetch(device, at + 4096, 500) == quotients);
    device.free(at);
  });
}

TEST_CASE("devices: events lie in the order of calls, and can be recorded again") {
  on_every_device([](Subject& subject) {
    Device& device = *subject.device;
    const DeviceAddress at = device.allocate(1 << 16).value();
    for (int turn = 0; turn < 2; ++turn) {
      const EventHandle first = device.record_event().value();
      REQUIRE(device.fill(at, 1, 4, 1 << 14).has_value());
      const EventHandle last = device.record_event().value();
      REQUIRE(device.synchronize().has_value());
      CHECK(device.milliseconds_between(first, last).value() >= 0);
      const EventHandle both[] = {first, last};
      device.release_events(both);
    }
    device.free(at);
  });
}

TEST_CASE("devices: what cannot be had is an error that names it") {
  on_every_device([](Subject& subject) {
    Device& device = *subject.device;
    KernelCode other = subject.add;
    other.symbol = "none";
    const auto missing = device.load(other);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().text().find("none") != std::string::npos);
    const auto huge = device.allocate(int64_t{1} << 60);
    REQUIRE_FALSE(huge.has_value());
    CHECK(huge.error().exit_code() == 1);
    CHECK(huge.error().text().find("1152921504606846976 bytes") != std::string::npos);
  });
}

}  // namespace
}  // namespace stepc
