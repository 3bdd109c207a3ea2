// A graph of the driver's: what was put into a stream while it was captured, made ready to be launched as one.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/cuda/driver.h"

namespace stepc {

// Owns its instance; the driver must outlive it.
class CudaGraph {
 public:
  // From here to end() the stream takes its work down instead of doing it.
  static Result<CudaGraph> begin(const Driver& driver, CUstream stream);
  Status end(CUstream stream, const std::string& name);
  void add_kernel(const std::string& symbol) { ++kernels_, last_kernel_ = symbol; }

  CudaGraph() = default;
  CudaGraph(CudaGraph&& other) noexcept { *this = std::move(other); }
  CudaGraph& operator=(CudaGraph&& other) noexcept;
  ~CudaGraph();

  CUgraphExec instance() const { return instance_; }
  const std::string& name() const { return name_; }
  int64_t kernels() const { return kernels_; }
  const std::string& last_kernel() const { return last_kernel_; }

 private:
  const Driver* driver_ = nullptr;
  CUgraphExec instance_ = nullptr;
  std::string name_;
  int64_t kernels_ = 0;
  std::string last_kernel_;
};

}  // namespace stepc
