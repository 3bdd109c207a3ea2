// Walks plans on a device. Creating an executor loads the bundle's kernels and allocates its arenas: the
// persistent ones are shared by all programs and zero at first, activations and io are as large as the
// largest program needs. Then programs run by name as often as wanted.
//
// The first run of a program walks its plan. From the second on, on a device that makes graphs, its steps are two of
// them: those up to the last one that writes an output, and the rest. So outputs are there as early as they can be, and
// whoever has looked at them can start the next run while the device is still busy with this one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "runtime/bound_plan.h"
#include "runtime/device.h"

namespace stepc {

// A tensor in host memory: dense row-major, little-endian.
struct HostTensor {
  TensorType type;
  std::vector<char> bytes;
};
// The same, seen: the bytes stay their owner's.
struct HostTensorView {
  TensorType type;
  std::span<const char> bytes;
};

struct ExecutorOptions {
  bool graphs = true;             // where the device makes them; false: always walk the plan
  bool separate_buffers = false;  // memory of its own for each buffer: for tools that look for stray accesses
  std::map<std::string, HostFunction> host_functions;
};

struct RunOptions {
  bool profile = false;  // time every step (step_times); no graphs
  bool check = false;    // after every step, look for NaN in what it wrote; the error names the tensor; no graphs
  bool poison = false;   // first fill activations, inputs and outputs with NaN: reading what nobody wrote shows
};

// What a step took, over all profiled runs.
struct StepTime {
  std::string program;
  std::string step;
  std::string kernel;  // empty: a copy or fill
  Phase phase = Phase::forward;
  int64_t flops = 0;         // of one run
  int64_t matrix_flops = 0;  // of one run, on matrix units
  int64_t bytes = 0;         // of one run
  int64_t runs = 0;
  double milliseconds = 0;  // of all runs
};

// A run that was started: of one program, in one of its two places for runs in flight.
struct RunHandle {
  int program = -1;
  int slot = -1;
  int64_t number = -1;  // among the program's runs
};

class Executor {
 public:
  // The device must outlive the executor. An error of memory says what each arena needs.
  static Result<std::unique_ptr<Executor>> create(Device& device, Bundle bundle, ExecutorOptions options = {});
  ~Executor();

  const Bundle& bundle() const;
  // Whether anything is gained by starting a run before the one before is done.
  bool runs_ahead() const;
  using Inputs = std::map<std::string, HostTensorView>;
  using Outputs = std::map<std::string, HostTensor>;
  // All of the program's inputs must be given, with their types; the outputs come back by name.
  Result<Outputs> run(std::string_view program, const Inputs& inputs, const RunOptions& options = {});

  // The same in three parts. start() returns when the inputs may change and before the device is done; outputs(), to
  // be called once, when the steps that make them are done; finish() when all steps are. The next run may be started
  // once the outputs of the one before have been fetched; a run that two later ones of its program have been started
  // after is finished.
  Result<RunHandle> start(std::string_view program, const Inputs& inputs, const RunOptions& options = {});
  Result<Outputs> outputs(RunHandle run);
  Status finish(RunHandle run);

  Result<HostTensor> read_persistent(std::string_view name) const;
  // The same, in pieces: no more than one of them is in host memory at a time.
  Status read_persistent(std::string_view name, const std::function<Status(std::span<const char>)>& sink) const;
  Status write_persistent(std::string_view name, const HostTensorView& tensor);
  // In order of programs and steps; empty where nothing was profiled.
  std::vector<StepTime> step_times() const;

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stepc
