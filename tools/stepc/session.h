// A compiled module on a device, ready to run: compile with the cache, load, allocate.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "compiler/emit/host.h"
#include "compiler/lower.h"
#include "runtime/executor.h"

namespace stepc {

struct DeviceOptions {
  int threads = 0;  // 0: one per core
  std::string cache_folder;
  bool baseline = false;

  void add_to(CLI::App& command);
  int thread_count() const { return threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency()); }
  HostTarget target() const { return baseline ? baseline_host_target() : detect_host_target(); }
};

// Compiles every program of the module, with progress on a terminal.
Result<Bundle> compile_module(Module module, const DeviceOptions& options);

class Session {
 public:
  static Result<Session> create(Module module, const DeviceOptions& options);

  Executor& executor() { return *executor_; }
  double compile_seconds() const { return compile_seconds_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
  double compile_seconds_ = 0;
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

double seconds_now();  // monotonic

}  // namespace stepc
