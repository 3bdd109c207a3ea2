#include "compiler/schedule/cuda/group_kernel.h"

#include "compiler/kernel/drop_unused.h"
#include "ir/graph/fused.h"

namespace stepc::cuda {

GroupKernel::GroupKernel(const Program& program, const Group& group, const std::map<ValueId, Shape>& shapes,
                         std::string name)
    : program_(program),
      group_(group),
      builder_(name.empty() ? std::string(template_name(group.schedule)) : std::move(name), kernel::Target::cuda) {
  scheduled_.operands = group_operands(program, group);
  scheduled_.results = group_results(program, group);
  const auto declare = [&](const std::vector<ValueId>& values, const char* letter) {
    for (size_t i = 0; i < values.size(); ++i) {
      const TensorType& type = program.type(values[i]);
      const auto given = shapes.find(values[i]);
      buffers_[values[i]] = builder_.global(fmt::format("{}{}", letter, i), type.dtype,
                                            given == shapes.end() ? type.shape : given->second);
    }
  };
  declare(scheduled_.operands, "x");
  declare(scheduled_.results, "y");
}

kernel::BufferId GroupKernel::workspace(Dtype dtype, Shape shape) {
  scheduled_.workspace_bytes = numel(shape) * dtype_bytes(dtype);
  return builder_.global("w", dtype, std::move(shape));
}

kernel::BufferId GroupKernel::buffer(ValueId value) const {
  const auto found = buffers_.find(value);
  return found == buffers_.end() ? kernel::BufferId::none : found->second;
}

Result<ScheduledKernel> GroupKernel::finish(int64_t grid, std::string config) {
  STEPC_ASSIGN(scheduled_.problem, group_problem(program_, group_));
  scheduled_.kernel = drop_unused(builder_.finish());
  scheduled_.grid = grid;
  scheduled_.config = std::move(config);
  return std::move(scheduled_);
}

}  // namespace stepc::cuda
