// A group's kernel under construction: its operands and results are global buffers x0, x1, .. and y0, y1, .. in order,
// its workspace is w.
#pragma once

#include <map>
#include <string>

#include "compiler/schedule/schedule.h"
#include "ir/kernel/builder.h"

namespace stepc::cuda {

class GroupKernel {
 public:
  // `shapes`: as the kernel sees values; their own where none is given.
  GroupKernel(const Program& program, const Group& group, const std::map<ValueId, Shape>& shapes,
              std::string name = "");

  kernel::KernelBuilder& builder() { return builder_; }
  const std::map<ValueId, kernel::BufferId>& buffers() const { return buffers_; }
  kernel::BufferId workspace(Dtype dtype, Shape shape);
  // none: the kernel has no such operand or result.
  kernel::BufferId buffer(ValueId value) const;
  Result<ScheduledKernel> finish(int64_t grid, std::string config);

 private:
  const Program& program_;
  const Group& group_;
  ScheduledKernel scheduled_;
  kernel::KernelBuilder builder_;
  std::map<ValueId, kernel::BufferId> buffers_;
};

}  // namespace stepc::cuda
