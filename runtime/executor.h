// Walks plans on a device. Creating an executor loads the bundle's kernels and allocates its arenas: the
// persistent ones are shared by all programs and zero at first, activations and io are as large as the
// largest program needs. Then programs run by name as often as wanted.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
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

struct RunOptions {
  bool profile = false;  // time every step (step_times)
  bool check = false;    // after every step, look for NaN in what it wrote; the error names the tensor
  bool poison = false;   // first fill activations with NaN, so that reading what nobody wrote shows
};

// What a step took, over all profiled runs.
struct StepTime {
  std::string program;
  std::string step;
  std::string kernel;  // empty: a copy or fill
  Phase phase = Phase::forward;
  int64_t flops = 0;  // of one run
  int64_t bytes = 0;  // of one run
  int64_t runs = 0;
  double milliseconds = 0;  // of all runs
};

// Gets the addresses that a host_call step reads and writes.
using HostFunction =
    std::function<Status(Device&, std::span<const DeviceAddress> reads, std::span<const DeviceAddress> writes)>;

class Executor {
 public:
  // The device must outlive the executor. An error of memory says what each arena needs.
  static Result<std::unique_ptr<Executor>> create(Device& device, Bundle bundle,
                                                  std::map<std::string, HostFunction> host_functions = {});
  ~Executor();

  const Bundle& bundle() const;
  // All of the program's inputs must be given, with their types; the outputs come back by name.
  Result<std::map<std::string, HostTensor>> run(std::string_view program,
                                                const std::map<std::string, HostTensorView>& inputs,
                                                const RunOptions& options = {});
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
