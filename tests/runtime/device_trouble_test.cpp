// A GPU that fails in the midst of a program, has too little memory, or a driver that has to compile: one clear message
// each, and nothing left behind. Over a driver that only takes notes.
#include <doctest/doctest.h>

#include <filesystem>

#include "ir/support/file.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/driver.h"
#include "runtime/executor.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/gpu_kernels.h"
#include "tests/support/temp_dir.h"

namespace stepc {
namespace {

constexpr const char* kPtx = ".version 8.0\n.target sm_90a\n.address_size 64\n";

KernelCode ptx_kernel(const std::string& symbol) { return {symbol, kPtx, 0, {128, 1, {}}}; }

// program @step: y = one kernel, then two kernels more over a persistent tensor.
Bundle bundle_of_three() {
  const TensorType type{Dtype::f32, {64}};
  Bundle bundle{"cuda sm_90a", "m", {}, {}, {}, {}};
  bundle.persistents.tensors = {{"w", PlanArena::weights, type, 256, 0}};
  bundle.persistents.arena_bytes = {256, 0, 0};
  for (const char* name : {"forward", "backward"})
    bundle.kernels.push_back({name, "", "", kPtx, "", "", 2, 0, 0, {128, 1, {}}});
  Plan plan;
  plan.program = "step";
  plan.buffers = {{"@w", PlanArena::weights, type, 256, 0}, {"y", PlanArena::io, type, 256, 0}};
  plan.outputs = {{"y", 1}};
  plan.steps = {{"forward", LaunchStep{0, 1, {0}, {1}, -1, {}}},
                {"backward", LaunchStep{1, 1, {1}, {0}, -1, {}}},
                {"backward again", LaunchStep{1, 1, {1}, {0}, -1, {}}}};
  plan.io_bytes = 256;
  bundle.plans = {plan};
  return bundle;
}

TEST_CASE("a device that is lost is one message with the call and the kernels; everything ends well after it") {
  for (const int good_runs : {0, 1, 3}) {
    CAPTURE(good_runs);
    FakeDriver fake;
    {
      const auto device = make_cuda_device(fake.table()).value();
      const auto executor = Executor::create(*device, bundle_of_three()).value();
      for (int i = 0; i < good_runs; ++i) REQUIRE(executor->run("step", {}).has_value());
      const RunHandle run = executor->start("step", {}).value();
      REQUIRE(executor->outputs(run).has_value());
      fake.lost = CUDA_ERROR_ILLEGAL_ADDRESS;  // shows at the next call, whatever it is
      const Status status = executor->finish(run);
      REQUIRE_FALSE(status.has_value());
      CHECK(status.error().text() ==
            "program @step: after 2 kernels, the last of them backward: cuEventSynchronize: "
            "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)");
      CHECK(status.error().exit_code() == 1);
      CHECK_FALSE(executor->start("step", {}).has_value());
      CHECK(executor->read_persistent("w").error().text() ==
            "after 2 kernels, the last of them backward: cuMemcpyDtoHAsync: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal "
            "memory access was encountered)");
    }
    CHECK(fake.allocations.empty());
    CHECK(fake.pinned == 0);
    CHECK(fake.contexts + fake.streams + fake.events + fake.graphs + fake.graph_instances == 0);
  }
}

TEST_CASE("with a wait after each launch the kernel is named, and no graph is made") {
  FakeDriver fake;
  const auto device = make_cuda_device(fake.table(), {.synchronous = true}).value();
  const auto executor = Executor::create(*device, bundle_of_three()).value();
  for (int i = 0; i < 3; ++i) REQUIRE(executor->run("step", {}).has_value());
  CHECK(fake.graph_instances == 0);
  CHECK(fake.launches.size() == 9);
  fake.failures["cuStreamSynchronize"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK(executor->run("step", {}).error().text() ==
        "program @step: step 0 (forward): after kernel forward: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (an "
        "illegal memory access was encountered)");
}

TEST_CASE("graphs that cannot be made or run are named") {
  FakeDriver fake;
  const auto device = make_cuda_device(fake.table()).value();
  const auto executor = Executor::create(*device, bundle_of_three()).value();
  REQUIRE(executor->run("step", {}).has_value());
  fake.failures["cuGraphInstantiate"] = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK(executor->run("step", {}).error().text() ==
        "program @step: graph step of 1 kernels: cuGraphInstantiate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  fake.failures = {{"cuGraphLaunch", CUDA_ERROR_LAUNCH_FAILED}};
  CHECK(executor->run("step", {}).error().text() ==
        "program @step: graph step: cuGraphLaunch: CUDA_ERROR_OTHER (something else)");
}

TEST_CASE("too little memory is told by arena before anything is allocated") {
  FakeDriver fake;
  fake.memory_bytes = 400;
  const auto device = make_cuda_device(fake.table()).value();
  const auto executor = Executor::create(*device, bundle_of_three());
  REQUIRE_FALSE(executor.has_value());
  CHECK(executor.error().text() ==
        "module \"m\" needs 512 bytes of device memory, has 400 (weights 256, optimizer 0, gradients 0, activations 0, "
        "io 256)");
  CHECK(executor.error().exit_code() == 1);
  CHECK(fake.allocations.empty());
}

TEST_CASE("what the driver compiles is kept: a second start compiles nothing, another driver compiles again") {
  const test::TempDir folder;
  const auto load = [&](FakeDriver& fake) {
    const auto device = make_cuda_device(fake.table(), {.cache_folder = folder.file("cache")}).value();
    const auto loaded = device->load(ptx_kernel("k"));
    REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
    CHECK(fake.loaded == std::string("\177ELF of ") + kPtx);
    CHECK(fake.links == 0);
    return std::pair(device->loads().compiled, device->loads().cached);
  };
  FakeDriver first, second, third, fourth;
  CHECK(load(first) == std::pair(1, 0));
  CHECK(load(second) == std::pair(0, 1));
  CHECK(second.linked.empty());
  third.major = 12;
  {
    KernelCode newer = ptx_kernel("k");
    newer.code = ".version 8.0\n.target sm_80\n";
    const auto device = make_cuda_device(third.table(), {.cache_folder = folder.file("cache")}).value();
    REQUIRE(device->load(newer).has_value());
    CHECK(device->loads().compiled == 1);
  }
  // An entry that is not what was stored counts as absent.
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("cache")))
    REQUIRE(write_file_atomic(entry.path(), *read_file(entry.path()) + "x").has_value());
  CHECK(load(fourth) == std::pair(1, 0));
}

TEST_CASE("a driver that cannot compile says why, by the call") {
  const test::TempDir folder;
  FakeDriver fake;
  const auto device = make_cuda_device(fake.table(), {.cache_folder = folder.file("cache")}).value();
  fake.jit_log = "ptxas error at line 3\n";
  fake.failures["cuLinkAddData"] = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  CHECK(
      device->load(ptx_kernel("k")).error().text() ==
      "kernel k: cuLinkAddData: CUDA_ERROR_OTHER (something else); the PTX is of version 8.0, which the driver of CUDA "
      "12.4 does not read: update the driver\nptxas error at line 3");
  CHECK(fake.links == 0);
  CHECK_FALSE(std::filesystem::exists(folder.file("cache")));
}

TEST_CASE("the emulator's linker gives what it can load") {
  const test::TempDir folder;
  for (const int compiled : {1, 0}) {
    const auto device = make_cuda_device(emulated_driver(), {.cache_folder = folder.file("cache")}).value();
    const KernelHandle add = device->load(gpu_add()).value();
    CHECK(device->loads().compiled == compiled);
    const DeviceAddress at = device->allocate(1024).value();
    const float one = 1;
    REQUIRE(device->copy_in(at, &one, 4).has_value());
    const DeviceAddress buffers[] = {at, at, at + 512};
    const int64_t scalars[] = {1, 64};
    REQUIRE(device->launch(add, 1, buffers, scalars).has_value());
    float sum = 0;
    REQUIRE(device->copy_out(&sum, at + 512, 4).has_value());
    CHECK(sum == 2);
    device->free(at);
  }
}

}  // namespace
}  // namespace stepc
