// A module compiled for this machine or a GPU and run by the executor, with tensors as the evaluator has them.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "compiler/emit/host.h"
#include "compiler/lower.h"
#include "ir/graph/evaluate.h"
#include "runtime/executor.h"
#include "runtime/host/host_device.h"
#include "test_paths.h"

namespace stepc::test {

HostTensor to_host(const Tensor& tensor);
Tensor from_host(const HostTensor& tensor);

class Machine {
 public:
  // Kernels come from the cache of the build's tests where they are there.
  explicit Machine(Module module, int threads = 2, const HostTarget& target = detect_host_target(),
                   const FitOptions& fit = {});
  // On the GPU of tests (tests/support/gpu.h).
  Machine(Module module, const GpuTarget& target, uint64_t seed = 1, const FitOptions& fit = {},
          bool updates_apart = false);

  // Starts from activations full of NaN.
  TensorMap run(std::string_view program, const TensorMap& inputs);
  Tensor read(const std::string& persistent) const;
  void write(const std::string& persistent, const Tensor& tensor);
  const Bundle& bundle() const { return executor_->bundle(); }

 private:
  void start(Result<Bundle> bundle);

  HostLoader loader_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace stepc::test
