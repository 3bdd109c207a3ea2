#include "tools/bench/host_side.h"

#include <cstdlib>
#include <ctime>

#include "compiler/schedule/schedule.h"
#include "ir/graph/builder.h"
#include "ir/graph/evaluate.h"

namespace stepc::bench {
namespace {

Module product_module(const Case& test) {
  const auto matrix = [&](bool transposed, int64_t rows, int64_t columns) {
    const Shape shape = transposed ? Shape{test.batch, columns, rows} : Shape{test.batch, rows, columns};
    return TensorType{test.operands, shape};
  };
  Module module{"bench", {}, {}};
  GraphBuilder graph(module, "product");
  const ValueId a = graph.input("a", matrix(test.transpose_a, test.m, test.k));
  const ValueId b = graph.input("b", matrix(test.transpose_b, test.k, test.n));
  const ValueId y = graph.matmul(a, b, test.result, test.transpose_a, test.transpose_b);
  const NodeId node = graph.program().value(y).producer;
  graph.output("y", y);
  graph.program().groups.push_back({"product", Template::matmul, {node}});
  return module;
}

// Numbers in [-1/2, 1/2).
void fill(void* memory, const TensorType& type, uint32_t stream) {
  const int64_t count = numel(type.shape);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = philox_word(1, stream, 0, static_cast<uint64_t>(i));
    const float value = static_cast<float>(word >> 8) * 0x1p-24f - 0.5f;
    if (type.dtype == Dtype::f32)
      static_cast<float*>(memory)[i] = value;
    else
      static_cast<uint16_t*>(memory)[i] = bf16_from_f32(value);
  }
}

double now(bool cpu_time) {
  timespec time{};
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

void HostSide::Free::operator()(void* memory) const { std::free(memory); }

HostSide::Memory HostSide::allocate(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  return Memory(std::aligned_alloc(kPage, static_cast<size_t>((bytes + kPage) / kPage * kPage)));
}

Result<HostSide> HostSide::make(const Case& test, ThreadPool& pool, bool cpu_time) {
  const Module module = product_module(test);
  const Program& program = module.programs[0];
  const HostTarget target = detect_host_target();
  STEPC_ASSIGN(const ScheduledKernel scheduled, schedule_host(program, program.groups[0], target));
  STEPC_ASSIGN(const HostCode code, emit_host(scheduled.kernel, target));
  HostSide side;
  side.pool_ = &pool;
  STEPC_ASSIGN(side.function_, side.loader_.load(code.object, scheduled.kernel.name));
  side.grid_ = scheduled.grid;
  side.cpu_time_ = cpu_time;
  side.config_ = scheduled.config;
  std::vector<ValueId> values = scheduled.operands;
  values.insert(values.end(), scheduled.results.begin(), scheduled.results.end());
  for (size_t i = 0; i < values.size(); ++i) {
    const TensorType& type = program.type(values[i]);
    side.buffers_.push_back(allocate(numel(type.shape) * dtype_bytes(type.dtype)));
    fill(side.buffers_.back().get(), type, static_cast<uint32_t>(i));
  }
  for (int thread = 0; thread < pool.threads(); ++thread)
    side.scratch_.push_back(allocate(kernel::shared_layout(scheduled.kernel).total_bytes));
  return side;
}

std::vector<double> HostSide::run(int count) {
  std::vector<void*> buffers;
  for (const Memory& memory : buffers_) buffers.push_back(memory.get());
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    const double start = now(cpu_time_);
    pool_->parallel_for(grid_, [&](int64_t task, int thread) {
      function_(buffers.data(), nullptr, task, scratch_[static_cast<size_t>(thread)].get());
    });
    seconds.push_back(now(cpu_time_) - start);
  }
  return seconds;
}

}  // namespace stepc::bench
