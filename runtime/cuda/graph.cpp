#include "runtime/cuda/graph.h"

#include <utility>

#include "runtime/cuda/driver_errors.h"

namespace stepc {

CudaGraph& CudaGraph::operator=(CudaGraph&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(instance_, other.instance_);
  std::swap(name_, other.name_);
  std::swap(kernels_, other.kernels_);
  std::swap(last_kernel_, other.last_kernel_);
  return *this;
}

CudaGraph::~CudaGraph() {
  if (instance_) driver_->cuGraphExecDestroy(instance_);
}

Result<CudaGraph> CudaGraph::begin(const Driver& driver, CUstream stream) {
  CudaGraph graph;
  graph.driver_ = &driver;
  STEPC_DRIVER(driver, cuStreamBeginCapture, "", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return graph;
}

Status CudaGraph::end(CUstream stream, const std::string& name) {
  name_ = name;
  const std::string purpose = fmt::format("graph {} of {} kernels", name, kernels_);
  CUgraph graph = nullptr;
  STEPC_DRIVER(*driver_, cuStreamEndCapture, purpose, stream, &graph);
  const CUresult result = driver_->cuGraphInstantiate(&instance_, graph, 0);
  driver_->cuGraphDestroy(graph);
  if (result == CUDA_SUCCESS) return {};
  instance_ = nullptr;
  return tl::unexpected(driver_error(*driver_, "cuGraphInstantiate", result, purpose));
}

}  // namespace stepc
