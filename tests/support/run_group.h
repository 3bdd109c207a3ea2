// Runs the kernels of a fused program's groups on data and compares them with the graph evaluator. What runs
// a kernel is a function, so that the interpreter of kernel IR and compiled code go through the same cases.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compiler/emit/host.h"
#include "compiler/schedule/schedule.h"
#include "ir/graph/builder.h"
#include "ir/graph/evaluate.h"
#include "ir/graph/fused.h"
#include "ir/graph/verify.h"
#include "ir/kernel/interpret.h"
#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"

namespace stepc::test {

using Bytes = std::vector<std::byte>;

// Runs the kernel: `buffers` are its global buffers, in order.
using Executor = std::function<void(const ScheduledKernel&, const std::vector<std::byte*>& buffers)>;

inline Bytes to_bytes(const Tensor& tensor) {
  Bytes bytes(tensor.data.size() * static_cast<size_t>(dtype_bytes(tensor.type.dtype)));
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    const auto put = [&](auto element) { std::memcpy(bytes.data() + i * sizeof(element), &element, sizeof(element)); };
    switch (tensor.type.dtype) {
      case Dtype::f32: put(static_cast<float>(tensor.data[i])); break;
      case Dtype::bf16: put(bf16_from_f32(static_cast<float>(tensor.data[i]))); break;
      case Dtype::i32: put(static_cast<int32_t>(tensor.data[i])); break;
      case Dtype::pred: put(static_cast<uint8_t>(tensor.data[i] != 0)); break;
    }
  }
  return bytes;
}

inline Tensor from_bytes(const TensorType& type, const std::byte* bytes) {
  Tensor tensor{type, std::vector<double>(static_cast<size_t>(numel(type.shape)))};
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    const auto get = [&](auto element) {
      std::memcpy(&element, bytes + i * sizeof(element), sizeof(element));
      return element;
    };
    switch (type.dtype) {
      case Dtype::f32: tensor.data[i] = get(float{}); break;
      case Dtype::bf16: tensor.data[i] = f32_from_bf16(get(uint16_t{})); break;
      case Dtype::i32: tensor.data[i] = get(int32_t{}); break;
      case Dtype::pred: tensor.data[i] = get(uint8_t{}); break;
    }
  }
  return tensor;
}

// Makes the group's kernel.
using Scheduler = std::function<Result<ScheduledKernel>(const Program&, const Group&)>;

inline Scheduler for_host(const HostTarget& target) {
  return [target](const Program& program, const Group& group) { return schedule_host(program, group, target); };
}

// Runs emitted code, tasks in an order that is not theirs.
inline Executor compiled(const HostTarget& target) {
  return [target](const ScheduledKernel& scheduled, const std::vector<std::byte*>& buffers) {
    const auto code = emit_host(scheduled.kernel, target);
    REQUIRE_MESSAGE(code.has_value(), code.error().text());
    HostLoader loader;
    const auto function = loader.load(code->object, scheduled.kernel.name);
    REQUIRE_MESSAGE(function.has_value(), function.error().text());
    const int64_t shared_bytes = kernel::shared_layout(scheduled.kernel).total_bytes;
    Bytes shared(static_cast<size_t>(shared_bytes) + 64, std::byte{0xff});  // NaN: nothing may rely on zeros
    void* aligned = shared.data() + (64 - reinterpret_cast<uintptr_t>(shared.data()) % 64) % 64;
    std::vector<void*> pointers(buffers.begin(), buffers.end());
    for (int64_t task = scheduled.grid - 1; task >= 0; --task)
      (*function)(pointers.data(), scheduled.scalars.data(), task, aligned);
  };
}

// Runs the kernel IR itself, which checks every access, undefined lanes and what tasks share.
inline Executor interpreted() {
  return [](const ScheduledKernel& scheduled, const std::vector<std::byte*>& buffers) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const kernel::Buffer& buffer = scheduled.kernel.buffers[i];
      tensors.push_back(from_bytes({buffer.dtype, buffer.shape}, buffers[i]));
    }
    std::vector<Tensor*> pointers;
    for (Tensor& tensor : tensors) pointers.push_back(&tensor);
    const Status status = kernel::interpret(scheduled.kernel, pointers, scheduled.scalars);
    REQUIRE_MESSAGE(status.has_value(), status.error().text());
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Bytes bytes = to_bytes(tensors[i]);
      std::copy(bytes.begin(), bytes.end(), buffers[i]);
    }
  };
}

// What is allowed between a kernel and the evaluator. `relative` 0 means the same bits (any NaN equals any).
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

inline std::string differences(const Tensor& found, const Tensor& wanted, Tolerance tolerance) {
  for (size_t i = 0; i < wanted.data.size(); ++i) {
    const double a = found.data[i];
    const double b = wanted.data[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    double relative = tolerance.relative;
    if (relative > 0 && wanted.type.dtype == Dtype::bf16) relative += 1.0 / 128;  // the rounding may fall the other way
    if (std::abs(a - b) <= relative * std::abs(b) + tolerance.absolute) continue;
    return fmt::format("element {} of {}: {} where the evaluator has {}", i, wanted.data.size(), a, b);
  }
  return "";
}

// The kernel is well formed, its text reads back, and every access is proved to be in bounds (`proved`).
inline void check_kernel(const kernel::Kernel& kernel, bool proved) {
  const Status verified = kernel::verify(kernel);
  REQUIRE_MESSAGE(verified.has_value(), verified.error().text() << "\n" << kernel::print_kernel(kernel));
  const std::string text = kernel::print_kernel(kernel);
  if (proved) {
    for (const std::string& access : kernel::unproved_accesses(kernel)) CHECK_MESSAGE(false, access << "\n" << text);
  }
  const auto parsed = kernel::parse_kernel(text, "kernel.kir");
  REQUIRE_MESSAGE(parsed.has_value(), parsed.error().text() << "\n" << text);
  CHECK(kernel::print_kernel(*parsed) == text);
}

// Schedules and runs one group on the evaluator's values; buffers lie between guard bytes.
inline void check_group(const Program& program, const Group& group, const TensorMap& trace, const Scheduler& schedule,
                        const Executor& execute, Tolerance tolerance) {
  const auto scheduled = schedule(program, group);
  REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
  // The tails of contractions are in bounds by remainders that ranges do not know.
  const bool contracts = group.schedule == Template::matmul || group.schedule == Template::attention ||
                         group.schedule == Template::attention_grad;
  check_kernel(scheduled->kernel, !contracts);
  constexpr size_t kGuard = 256;
  std::vector<Bytes> memory;
  std::vector<ValueId> values = scheduled->operands;
  values.insert(values.end(), scheduled->results.begin(), scheduled->results.end());
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor& tensor = trace.at(program.value(values[i]).name);
    Bytes bytes = to_bytes(tensor);
    if (i >= scheduled->operands.size()) std::fill(bytes.begin(), bytes.end(), std::byte{0xa5});
    Bytes guarded(bytes.size() + 2 * kGuard, std::byte{0xff});
    std::copy(bytes.begin(), bytes.end(), guarded.begin() + kGuard);
    memory.push_back(std::move(guarded));
  }
  if (scheduled->workspace_bytes > 0) memory.emplace_back(static_cast<size_t>(scheduled->workspace_bytes) + 2 * kGuard);
  const std::vector<Bytes> before = memory;
  std::vector<std::byte*> pointers;
  for (Bytes& bytes : memory) pointers.push_back(bytes.data() + kGuard);
  execute(*scheduled, pointers);
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = program.value(values[i]);
    const size_t end = memory[i].size() - kGuard;
    const bool guards_whole = std::equal(memory[i].begin(), memory[i].begin() + kGuard, before[i].begin()) &&
                              std::equal(memory[i].begin() + static_cast<ptrdiff_t>(end), memory[i].end(),
                                         before[i].begin() + static_cast<ptrdiff_t>(end));
    CHECK_MESSAGE(guards_whole, "%" << value.name << " was written outside its bounds");
    if (i < scheduled->operands.size()) {
      CHECK_MESSAGE(memory[i] == before[i], "operand %" << value.name << " was written");
      continue;
    }
    const std::string difference = differences(from_bytes(value.type, pointers[i]), trace.at(value.name), tolerance);
    CHECK_MESSAGE(difference.empty(), group.name << ": %" << value.name << ": " << difference);
  }
}

// A program of one group: `declare` makes inputs and outputs, every node that needs code is in the group.
struct GroupCase {
  std::string name;
  Template schedule = Template::pointwise;
  std::function<void(GraphBuilder&)> declare;
  Tolerance tolerance = {};
  std::map<std::string, std::pair<double, double>> ranges = {};  // of inputs, by name; i32: [low, high] whole numbers
};

inline Module one_group_module(const GroupCase& test) {
  Module module{"test", {}, {}};
  GraphBuilder builder(module, "p");
  test.declare(builder);
  Program& program = module.programs[0];
  Group group{"k", test.schedule, {}};
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const Node& node = program.nodes[n];
    const bool no_code = node.op == Op::input || node.op == Op::param || node.op == Op::state;
    if (!no_code && op_info(node.op).family != OpFamily::effect) group.nodes.push_back(static_cast<NodeId>(n));
  }
  program.groups.push_back(std::move(group));
  return module;
}

inline TensorMap random_inputs(const GroupCase& test, const Program& program) {
  std::mt19937 random(static_cast<uint32_t>(program.nodes.size() * 7919 + 17));
  TensorMap inputs;
  for (const Node& node : program.nodes) {
    if (node.op != Op::input) continue;
    const std::string& name = node.attrs.text(AttrKey::name);
    const TensorType& type = program.type(node.results[0]);
    const auto range = test.ranges.find(name);
    const auto [low, high] = range == test.ranges.end() ? std::pair(-2.0, 2.0) : range->second;
    Tensor tensor{type, std::vector<double>(static_cast<size_t>(numel(type.shape)))};
    for (double& x : tensor.data) {
      const double unit = static_cast<double>(random()) / 4294967296.0;
      switch (type.dtype) {
        case Dtype::f32: x = static_cast<float>(low + (high - low) * unit); break;
        case Dtype::bf16: x = round_to_bf16(low + (high - low) * unit); break;
        case Dtype::i32: x = std::floor(low + (high - low + 1) * unit); break;
        case Dtype::pred: x = unit < 0.5 ? 0 : 1; break;
      }
    }
    inputs[name] = std::move(tensor);
  }
  return inputs;
}

// `inputs`, where given, replace the random ones; `misled` replace them for the kernel alone.
inline void run_case(const GroupCase& test, const Scheduler& schedule, const Executor& execute,
                     const TensorMap& inputs = {}, const TensorMap& misled = {}) {
  CAPTURE(test.name);
  const Module module = one_group_module(test);
  const Status verified = verify(module);
  REQUIRE_MESSAGE(verified.has_value(), verified.error().text());
  const Program& program = module.programs[0];
  TensorMap given = random_inputs(test, program);
  for (const auto& [name, tensor] : inputs) given[name] = tensor;
  TensorMap persistents;
  TensorMap trace;
  const auto outputs = evaluate(program, persistents, given, Precision::f32, &trace);
  REQUIRE_MESSAGE(outputs.has_value(), outputs.error().text());
  for (const auto& [name, tensor] : misled) trace[name] = tensor;
  check_group(program, program.groups[0], trace, schedule, execute, test.tolerance);
}

// The case on this machine's CPU and without its widest vectors, compiled and, unless it is large, interpreted.
inline void run_everywhere(const GroupCase& test, const TensorMap& inputs = {}, const TensorMap& misled = {}) {
  constexpr double kInterpretedFlops = 3e7;
  const Module module = one_group_module(test);
  const bool is_small =
      static_cast<double>(group_flops(module.programs[0], module.programs[0].groups[0])) < kInterpretedFlops;
  for (const HostTarget& target : {detect_host_target(), baseline_host_target()}) {
    if (is_small) run_case(test, for_host(target), interpreted(), inputs, misled);
    run_case(test, for_host(target), compiled(target), inputs, misled);
  }
}

}  // namespace stepc::test
