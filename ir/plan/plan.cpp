#include "ir/plan/plan.h"

#include "ir/graph/print.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

constexpr std::array<std::string_view, kPlanArenas> kArenaNames = {"weights", "optimizer", "gradients", "activations",
                                                                   "io"};

}  // namespace

std::string_view plan_arena_name(PlanArena arena) { return kArenaNames[static_cast<size_t>(arena)]; }

std::optional<PlanArena> plan_arena_from_name(std::string_view name) {
  for (size_t i = 0; i < kArenaNames.size(); ++i)
    if (kArenaNames[i] == name) return static_cast<PlanArena>(i);
  return std::nullopt;
}

std::vector<int> step_reads(const PlanStep& step) {
  return std::visit(Overloaded{[](const LaunchStep& launch) { return launch.operands; },
                               [](const CopyStep& copy) { return std::vector<int>{copy.from}; },
                               [](const FillStep&) { return std::vector<int>{}; },
                               [](const HostCallStep& call) { return call.reads; }},
                    step.action);
}

std::vector<int> step_writes(const PlanStep& step) {
  return std::visit(Overloaded{[](const LaunchStep& launch) {
                                 std::vector<int> writes = launch.results;
                                 if (launch.workspace >= 0) writes.push_back(launch.workspace);
                                 return writes;
                               },
                               [](const CopyStep& copy) { return std::vector<int>{copy.to}; },
                               [](const FillStep& fill) { return std::vector<int>{fill.buffer}; },
                               [](const HostCallStep& call) { return call.writes; }},
                    step.action);
}

const PersistentPlacement* ModuleLayout::find(std::string_view name) const {
  for (const PersistentPlacement& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

const Plan* Bundle::find_plan(std::string_view program) const {
  for (const Plan& plan : plans)
    if (plan.program == program) return &plan;
  return nullptr;
}

Result<int64_t> checked_bytes(const TensorType& type) {
  const auto count = checked_numel(type.shape);
  const auto bytes = count ? checked_mul(*count, dtype_bytes(type.dtype)) : std::nullopt;
  if (!bytes) return user_error("the bytes of {} do not fit 64 bits", type_text(type));
  return *bytes;
}

int root_buffer(const Plan& plan, int buffer) {
  const int root = plan.buffers[static_cast<size_t>(buffer)].alias_of;
  return root < 0 ? buffer : root;
}

}  // namespace stepc
