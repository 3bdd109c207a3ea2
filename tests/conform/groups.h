// Kernel groups on the GPU of tests (tests/support/gpu.h), each on the evaluator's own values, so that errors do not
// add up from one to the next. Results lie between guard bytes and start as NaN: all of a result must be written,
// nothing else, and no operand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/schedule/schedule.h"
#include "ir/graph/evaluate.h"
#include "ir/graph/graph.h"

namespace stepc::test {

// A fused module with the values that kernels read and write, by program: empty where a program is not run.
struct Traced {
  std::string label;  // in messages
  Module module;
  std::vector<TensorMap> traces;
};

// One group to be run. `error` says why it has no kernel.
struct GroupJob {
  std::shared_ptr<const Traced> from;
  size_t program = 0;
  size_t group = 0;
  ScheduledKernel scheduled;
  std::string error;
};

// The values that are operands or results of some group.
TensorMap between_groups(const Program& program, TensorMap trace);

// A job for every group of the programs that have a trace.
std::vector<GroupJob> jobs_of(std::shared_ptr<const Traced> traced, const GpuTarget& target);

// Runs `task` for 0 <= i < count on all processors.
void in_parallel(size_t count, const std::function<void(size_t)>& task);

enum class Repeats : uint8_t { all, first };

struct GroupResults {
  int groups = 0;
  int kernels = 0;                  // distinct ones
  std::vector<std::string> faults;  // each names its group
};

// Compiles every distinct kernel, to cubins where there is a card and an assembler for it, and runs the jobs. `first`:
// the emulator, which takes its time, runs each kernel with the data of the first job alone.
GroupResults run_jobs(const std::vector<GroupJob>& jobs, const GpuTarget& target, Repeats repeats = Repeats::all);
// CHECKs that there is no fault.
void check_jobs(const std::vector<GroupJob>& jobs, const GpuTarget& target, Repeats repeats = Repeats::all);

}  // namespace stepc::test
