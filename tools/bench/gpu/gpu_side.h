// Our side of a measurement on a GPU: a case compiled as any program is, on memory of its own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/lower_gpu.h"
#include "runtime/cuda/cuda_device.h"
#include "tools/bench/gpu/gpu_cases.h"

namespace stepc::bench {

class GpuSide : public GpuData {
 public:
  // Runs everything once. run() times the steps of the last phase there is.
  static Result<std::unique_ptr<GpuSide>> make(const GpuCase& test, CudaDevice& device, const GpuTarget& target);
  ~GpuSide() override;

  // Milliseconds of each of `count` runs.
  Result<std::vector<double>> run(int count);
  std::string config() const;  // of the kernels that are timed

  double input(std::string_view name, int64_t index) const override;
  Result<std::vector<double>> output(std::string_view name, int64_t first, int64_t count) override;

 private:
  explicit GpuSide(CudaDevice& device) : device_(device) {}
  Status allocate();
  Status fill_inputs(const GpuCase& test);
  Status launch(std::optional<Phase> phase);  // of all, where none is given
  bool is_timed(const PlanStep& step) const { return !timed_ || step.phase == *timed_; }
  const Plan& plan() const { return bundle_.plans[0]; }
  DeviceAddress address(int buffer) const;

  CudaDevice& device_;
  Bundle bundle_;
  std::vector<KernelHandle> kernels_;
  std::map<PlanArena, DeviceAddress> arenas_;
  std::map<std::string, std::vector<uint16_t>, std::less<>> inputs_;   // bf16, also of f32
  std::map<std::string, std::vector<int32_t>, std::less<>> integers_;  // each below how many there are
  std::optional<Phase> timed_;
};

}  // namespace stepc::bench
