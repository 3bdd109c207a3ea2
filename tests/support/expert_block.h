// The experts of a mixture, forward and both gradients, with counts of the slots that are filled: every product with
// the epilogue that fusion gives it. Kernels that use the counts give the same bits as kernels that compute all rows.
#pragma once

#include "compiler/graph/autodiff.h"
#include "compiler/pipeline.h"
#include "model/layers.h"
#include "tests/support/random_tensor.h"
#include "tests/support/run_group.h"

namespace stepc::test {

struct ExpertBlock {
  int64_t capacity = 0;
  int64_t dim = 0;
  int64_t ffn = 0;
  std::vector<double> counts;  // one an expert; before dropping

  int64_t experts() const { return static_cast<int64_t>(counts.size()); }
  Shape rows() const { return {experts(), capacity, dim}; }
};

// The loss weighs every element of what the experts make by one of its own; empty slots weigh nothing.
inline Module expert_module(const ExpertBlock& block, bool counted) {
  Module module{"experts", {}, {}};
  const auto weight = [&](const char* name, Shape shape) {
    module.persistents.push_back({name, {Dtype::bf16, std::move(shape)}, true, Arena::weights});
  };
  weight("gate_up", {block.experts(), block.dim, 2 * block.ffn});
  weight("down", {block.experts(), block.ffn, block.dim});
  GraphBuilder g(module, "step");
  const ValueId x = g.input("x", {Dtype::bf16, block.rows()});
  const ValueId count = g.input("count", {Dtype::i32, {block.experts()}});
  const ValueId gate_up = g.persistent("gate_up"), down = g.persistent("down");
  const ValueId y = experts(g, x, {gate_up, down}, counted ? count : ValueId::none);
  const ValueId weights = g.input("weights", {Dtype::f32, block.rows()});
  const ValueId loss = g.reduce(Op::reduce_sum, g.mul(g.cast(y, Dtype::f32), weights), {0, 1, 2});
  const std::vector<ValueId> gradients = differentiate(g, loss, {x, gate_up, down});
  g.output("y", y);
  for (size_t i = 0; i < gradients.size(); ++i) g.output(fmt::format("gradient{}", i), gradients[i]);
  const Status passed = run_passes(module, {.for_gpu = true});
  REQUIRE_MESSAGE(passed.has_value(), passed.error().text());
  return module;
}

inline TensorMap expert_trace(const ExpertBlock& block, const Module& module) {
  std::mt19937 random(11);
  TensorMap persistents, trace;
  for (const Persistent& persistent : module.persistents)
    persistents[persistent.name] = random_tensor(random, persistent.type, -0.5, 0.5, 5);
  TensorMap inputs{{"x", random_tensor(random, {Dtype::bf16, block.rows()}, -1, 1, 5)},
                   {"weights", random_tensor(random, {Dtype::f32, block.rows()}, -1, 1, 5)},
                   {"count", {{Dtype::i32, {block.experts()}}, block.counts}}};
  for (const char* name : {"x", "weights"}) {
    std::vector<double>& data = inputs.at(name).data;
    for (size_t e = 0; e < block.counts.size(); ++e) {
      const auto filled = std::min(static_cast<int64_t>(block.counts[e]), block.capacity);
      const auto begin = data.begin() + static_cast<ptrdiff_t>(e) * block.capacity * block.dim;
      std::fill(begin + filled * block.dim, begin + block.capacity * block.dim, 0.0);
    }
  }
  const auto outputs = evaluate(module.programs[0], persistents, inputs, Precision::f32, &trace);
  REQUIRE_MESSAGE(outputs.has_value(), outputs.error().text());
  return trace;
}

// What a group's kernels make of the values in `trace`, one after the other; results start as NaN.
inline Bytes results_of(const Program& program, const Group& group, const TensorMap& trace, const Scheduler& schedule,
                        const Executor& execute) {
  const auto scheduled = schedule(program, group);
  REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
  check_kernel(scheduled->kernel, false);
  std::vector<Bytes> memory;
  for (ValueId value : scheduled->operands) memory.push_back(to_bytes(trace.at(program.value(value).name)));
  for (ValueId value : scheduled->results) {
    const TensorType& type = program.type(value);
    memory.emplace_back(static_cast<size_t>(numel(type.shape) * dtype_bytes(type.dtype)), std::byte{0xff});
  }
  if (scheduled->workspace_bytes > 0)
    memory.emplace_back(static_cast<size_t>(scheduled->workspace_bytes), std::byte{0xff});
  std::vector<std::byte*> pointers;
  for (Bytes& bytes : memory) pointers.push_back(bytes.data());
  execute(*scheduled, pointers);
  Bytes results;
  for (size_t i = 0; i < scheduled->results.size(); ++i) {
    const Bytes& made = memory[scheduled->operands.size() + i];
    results.insert(results.end(), made.begin(), made.end());
  }
  return results;
}

// `trace` with NaN in rows of the product's first operand from the count on, rounded up to a multiple of `rows`.
inline TensorMap without_unread(const ExpertBlock& block, const Program& program, const Group& group, TensorMap trace,
                                int64_t rows) {
  for (NodeId id : group.nodes) {
    if (program.node(id).op != Op::matmul) continue;
    Tensor& a = trace.at(program.value(program.node(id).operands[0]).name);
    const int64_t columns = a.type.shape[2];
    for (size_t e = 0; e < block.counts.size(); ++e) {
      const int64_t first = (static_cast<int64_t>(block.counts[e]) + rows - 1) / rows * rows;
      for (int64_t i = first * columns; i < block.capacity * columns; ++i)
        a.data[e * static_cast<size_t>(block.capacity * columns) + static_cast<size_t>(i)] = std::nan("");
    }
  }
  return trace;
}

// Both forms of every product, to the bit; and the counted form beside the evaluator. `tile_rows`: whole multiples of
// so many rows that hold nothing are not read; 0: they are.
inline void check_expert_block(const ExpertBlock& block, const Scheduler& schedule, const Executor& execute,
                               int64_t tile_rows) {
  const Module counted = expert_module(block, true), all = expert_module(block, false);
  const TensorMap trace = expert_trace(block, counted), same = expert_trace(block, all);
  const std::vector<Group>& groups = counted.programs[0].groups;
  REQUIRE(groups.size() == all.programs[0].groups.size());
  int products = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].schedule != Template::matmul) continue;
    CAPTURE(groups[i].name);
    ++products;
    const Bytes with = results_of(counted.programs[0], groups[i], trace, schedule, execute);
    CHECK(with == results_of(all.programs[0], all.programs[0].groups[i], same, schedule, execute));
    check_group(counted.programs[0], groups[i], trace, schedule, execute, {1e-4, 1e-2});
    if (tile_rows == 0) continue;
    const TensorMap poisoned = without_unread(block, counted.programs[0], groups[i], trace, tile_rows);
    CHECK(with == results_of(counted.programs[0], groups[i], poisoned, schedule, execute));
  }
  CHECK(products == 6);
}

}  // namespace stepc::test
