// A compiled module on a device, ready to run: compile with the cache, load, allocate.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "compiler/lower_gpu.h"
#include "ir/text/json.h"
#include "runtime/executor.h"
#include "runtime/safetensors.h"
#include "tools/stepc/devices.h"

namespace stepc {

// How to compile, and for commands that run something, on what.
struct DeviceOptions {
  DeviceChoice choice;
  int threads = 0;  // 0: one per core
  std::string cache_folder;
  bool graphs = true;             // run the steps of a GPU's programs as graphs
  bool separate_buffers = false;  // each in memory of its own
  bool updates_apart = false;     // kernels of their own for an optimizer's updates
  RecomputeChoice recompute;

  void add_to(CLI::App& command);
  void add_device_to(CLI::App& command);
  std::string cache() const;  // the folder
  int thread_count() const { return threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency()); }
};

// Compiles every program of the module, with progress on a terminal. Cubins are made where they are wanted and there
// is a ptxas; otherwise a GPU's bundle holds PTX. Reports come from ptxas, if it is there and they are asked for.
struct CompileWishes {
  bool prefer_cubins = false;
  bool need_cubins = false;  // an error without ptxas
  bool want_reports = false;
  std::optional<int64_t> memory_bytes = std::nullopt;  // to fit; as --recompute says
};
Result<GpuLowered> compile_module(Module module, const CodeTarget& target, const DeviceOptions& options,
                                  const CompileWishes& wishes = {}, LowerReport* report = nullptr);

// Where the time from the command's start to the first run went.
struct StartTimes {
  double device_seconds = 0;  // opened
  LowerReport lower;
  double load_seconds = 0;  // memory, and kernels into the device
  CudaLoads driver;         // what the driver itself compiled from PTX

  // By LLVM, and what there is after it: ptxas or the driver.
  int compiled() const { return std::max(lower.kernels - lower.cached, driver.compiled); }
  double seconds() const;  // of all of it
  // "156 kernels ready in 6.8 s: 156 compiled, 0 cached; device 0.3, passes 0.4, ..".
  std::string text() const;
  JsonValue json() const;
};

class Session {
 public:
  static Result<Session> create(Module module, const DeviceOptions& options);

  Executor& executor() const { return *executor_; }
  const StartTimes& start_times() const { return times_; }
  // The architecture that GPU code was made for; empty on the host.
  const std::string& arch() const { return arch_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
  StartTimes times_;
  std::string arch_;
};

// A scalar input of a program.
class ScalarInput {
 public:
  explicit ScalarInput(float value) : real_(value), type_{Dtype::f32, {}} {}
  explicit ScalarInput(int32_t value) : integer_(value), type_{Dtype::i32, {}} {}
  HostTensorView view() const {
    const void* address = type_.dtype == Dtype::f32 ? static_cast<const void*>(&real_) : &integer_;
    return {type_, {static_cast<const char*>(address), 4}};
  }

 private:
  float real_ = 0;
  int32_t integer_ = 0;
  TensorType type_;
};

// The elements of an f32 or i32 output.
template <class T>
std::vector<T> elements(const HostTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::copy(tensor.bytes.begin(), tensor.bytes.end(), reinterpret_cast<char*>(values.data()));
  return values;
}

// Every parameter and state, to be written to a file tensor by tensor.
std::vector<TensorStream> persistent_streams(const Executor& executor);

// An f32 output of shape [].
double scalar_of(const Executor::Outputs& outputs, const std::string& name);
// Token ids as an input.
HostTensorView ids_view(const std::vector<int32_t>& ids, Shape shape);

double seconds_now();         // monotonic
double seconds_of_process();  // since it started

}  // namespace stepc
