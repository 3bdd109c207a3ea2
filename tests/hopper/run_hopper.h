// Runs a group's GPU kernels on the emulator (or, with STEPC_DEVICE=cuda, on a card) and compares with the graph
// evaluator. Results lie between guard bytes and start as NaN: every element must be written, and nothing else.
#pragma once

#include "compiler/emit/nvptx.h"
#include "ir/kernel/launch.h"
#include "tests/support/gpu.h"
#include "tests/support/run_group.h"

namespace stepc::test {

inline KernelHandle load_kernel(Device& device, const kernel::Kernel& kernel) {
  const auto code = emit_ptx(kernel, {"sm_90a"});
  REQUIRE_MESSAGE(code.has_value(), code.error().text() << "\n" << kernel::print_kernel(kernel));
  const auto handle =
      device.load({kernel.name, code->ptx, kernel::shared_layout(kernel).total_bytes, kernel::gpu_launch(kernel)});
  REQUIRE_MESSAGE(handle.has_value(), handle.error().text());
  return *handle;
}

inline void require(const Status& status) { REQUIRE_MESSAGE(status.has_value(), status.error().text()); }

// The kernels of a group, run in order on its buffers.
inline void run_on_gpu(const ScheduledKernel& scheduled, const std::vector<Bytes>& buffers, std::vector<Bytes>& after,
                       uint64_t seed) {
  const auto device = open_gpu(seed);
  std::vector<DeviceAddress> addresses;
  for (const Bytes& bytes : buffers) {
    const auto address = device->allocate(static_cast<int64_t>(bytes.size()));
    REQUIRE_MESSAGE(address.has_value(), address.error().text());
    require(device->copy_in(*address, bytes.data(), static_cast<int64_t>(bytes.size())));
    addresses.push_back(*address);
  }
  std::vector<DeviceAddress> inner;
  for (DeviceAddress address : addresses) inner.push_back(address + 256);
  const auto launch = [&](const kernel::Kernel& kernel, int64_t grid, const std::vector<int64_t>& scalars) {
    require(device->launch(load_kernel(*device, kernel), grid, inner, scalars));
    require(device->synchronize());
  };
  launch(scheduled.kernel, scheduled.grid, scheduled.scalars);
  for (const LaterKernel& later : scheduled.later) launch(later.kernel, later.grid, later.scalars);
  after = buffers;
  for (size_t i = 0; i < buffers.size(); ++i)
    require(device->copy_out(after[i].data(), addresses[i], static_cast<int64_t>(after[i].size())));
}

inline Bytes guarded(Bytes bytes) {
  Bytes all(bytes.size() + 512, std::byte{0xff});
  std::copy(bytes.begin(), bytes.end(), all.begin() + 256);
  return all;
}

// `schedule` gives the group's kernel.
inline void check_on_gpu(const GroupCase& test,
                         const std::function<ScheduledKernel(const Program&, const Group&)>& schedule,
                         uint64_t seed = 1) {
  CAPTURE(test.name);
  const Module module = one_group_module(test);
  require(verify(module));
  const Program& program = module.programs[0];
  TensorMap persistents, trace;
  const auto outputs = evaluate(program, persistents, random_inputs(test, program), Precision::f32, &trace);
  REQUIRE_MESSAGE(outputs.has_value(), outputs.error().text());
  const ScheduledKernel scheduled = schedule(program, program.groups[0]);
  std::vector<ValueId> values = scheduled.operands;
  values.insert(values.end(), scheduled.results.begin(), scheduled.results.end());
  std::vector<Bytes> before, after;
  for (size_t i = 0; i < values.size(); ++i) {
    Bytes bytes = to_bytes(trace.at(program.value(values[i]).name));
    if (i >= scheduled.operands.size()) std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
    before.push_back(guarded(std::move(bytes)));
  }
  if (scheduled.workspace_bytes > 0) before.push_back(guarded(Bytes(static_cast<size_t>(scheduled.workspace_bytes))));
  run_on_gpu(scheduled, before, after, seed);
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = program.value(values[i]);
    const auto end = static_cast<ptrdiff_t>(after[i].size()) - 256;
    const bool guards_whole = std::equal(after[i].begin(), after[i].begin() + 256, before[i].begin()) &&
                              std::equal(after[i].begin() + end, after[i].end(), before[i].begin() + end);
    CHECK_MESSAGE(guards_whole, "%" << value.name << " was written outside its bounds");
    if (i < scheduled.operands.size()) {
      CHECK_MESSAGE(after[i] == before[i], "operand %" << value.name << " was written");
      continue;
    }
    const std::string difference =
        differences(from_bytes(value.type, after[i].data() + 256), trace.at(value.name), test.tolerance);
    CHECK_MESSAGE(difference.empty(), "%" << value.name << ": " << difference << "; " << scheduled.config);
  }
}

}  // namespace stepc::test
