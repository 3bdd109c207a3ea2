// Programs over tensors that no host would hold twice: their elements are a function of their number, tensors are
// filled on the device, and pieces of the results are read back.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "compiler/schedule/schedule.h"
#include "ir/graph/builder.h"
#include "ir/graph/evaluate.h"
#include "runtime/cuda/cuda_device.h"

namespace stepc::test {

// Element `number` of every large tensor: multiples of 1/8 in [-2, 2), again after a prime number of elements, so that
// none is what lies 2^31 or 2^32 elements away.
double repeated(int64_t number);

// A program's kernels, in order.
struct LargeSchedule {
  Module module{"large", {}, {}};
  std::vector<ScheduledKernel> kernels;
};
LargeSchedule schedule_large(const std::function<void(GraphBuilder&)>& declare, const GpuTarget& target);

class LargeRun {
 public:
  LargeRun();
  ~LargeRun();

  void input(const std::string& name, const TensorType& type);  // of repeated()
  void given(const std::string& name, const Tensor& tensor);
  // Compiles and runs the program.
  void execute(const std::function<void(GraphBuilder&)>& declare);
  // Elements [first, first + count) of an input or an output.
  Tensor read(const std::string& name, int64_t first, int64_t count);

 private:
  struct Held {
    TensorType type;
    DeviceAddress address = DeviceAddress::null;
  };
  Held allocate(const TensorType& type);

  std::unique_ptr<CudaDevice> device_;
  std::map<std::string, Held> held_;
};

}  // namespace stepc::test
