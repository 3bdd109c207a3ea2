// Tasks in step: waits end, whether or not the others come, and a launch leaves its counters as it found them.
#include "compiler/emit/nvptx.h"
#include "ir/kernel/builder_hopper.h"
#include "ir/kernel/launch.h"
#include "tests/emulator/ptx_launch.h"

namespace stepc::sm90 {
namespace {

using kernel::Index;

constexpr int64_t kTasks = 3;

// Each task counts `turns` times, and waits before each for what all have counted by then.
kernel::Kernel steps_kernel(int64_t turns) {
  kernel::KernelBuilder b("steps", kernel::Target::sm90);
  const kernel::BufferId y = b.global("y", Dtype::f32, {kTasks});
  b.set_grid(kTasks);
  b.begin_role("main", 1);
  b.once([&] {
    b.loop("turn", 0, turns, 1, [&](Index turn) {
      kernel::hopper::progress_wait(b, turn * kTasks);
      kernel::hopper::progress_add(b);
    });
    kernel::hopper::progress_end(b);
  });
  b.store(b.constant(1, Dtype::f32), y, {b.task()});
  return b.finish();
}

std::string ptx_of(const kernel::Kernel& kernel) {
  const auto code = emit_ptx(kernel, {"sm_90a"});
  REQUIRE_MESSAGE(code.has_value(), code.error().text());
  return code->ptx;
}

TEST_CASE("a launch leaves the counters of its tasks' progress at 0") {
  const std::string ptx = ptx_of(steps_kernel(4));
  emulator::PtxLaunch machine(1);
  const uint64_t y = machine.upload(std::vector<float>(kTasks));
  CHECK(machine.launch(ptx, "steps", {.grid = kTasks, .threads = 32}, {&y}) == "");
  CHECK(machine.download<float>(y, kTasks) == std::vector<float>(kTasks, 1));
  REQUIRE(machine.variables().size() == 1);
  CHECK(machine.download<uint32_t>(machine.variables()[0].address, 2) == std::vector<uint32_t>{0, 0});
}

// The emulator runs one task after the other here: the first meets nobody.
TEST_CASE("a task that waits in vain goes on") {
  const std::string ptx = ptx_of(steps_kernel(2));
  CHECK(ptx.find("ld.relaxed.gpu.global.u32") != std::string::npos);
  emulator::PtxLaunch machine(2);
  const uint64_t y = machine.upload(std::vector<float>(kTasks));
  CHECK(machine.launch(ptx, "steps", {.grid = 1, .threads = 32}, {&y}) == "");
  CHECK(machine.download<uint32_t>(machine.variables()[0].address, 2) == std::vector<uint32_t>{2, 1});
}

}  // namespace
}  // namespace stepc::sm90
