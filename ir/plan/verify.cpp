#include "ir/plan/verify.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/graph/print.h"
#include "ir/plan/launch_json.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

class PlanVerifier {
 public:
  explicit PlanVerifier(const Plan& plan) : plan_(plan) {}

  Status run() {
    if (plan_.alignment_bytes < 1) return fail("expected an alignment of at least 1, found {}", plan_.alignment_bytes);
    for (size_t b = 0; b < plan_.buffers.size(); ++b) STEPC_TRY(check_buffer(static_cast<int>(b)));
    STEPC_TRY(check_ports(plan_.inputs, "input"));
    STEPC_TRY(check_ports(plan_.outputs, "output"));
    STEPC_TRY(check_steps());
    STEPC_TRY(check_sharing(PlanArena::activations));
    return check_sharing(PlanArena::io);
  }

 private:
  template <class... Args>
  tl::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) const {
    return user_error("plan @{}: {}", plan_.program, fmt::format(format, std::forward<Args>(args)...));
  }
  const PlanBuffer& buffer(int index) const { return plan_.buffers[static_cast<size_t>(index)]; }
  bool exists(int index) const { return index >= 0 && static_cast<size_t>(index) < plan_.buffers.size(); }

  Status check_buffer(int index) const {
    const PlanBuffer& b = buffer(index);
    STEPC_ASSIGN(const int64_t bytes, checked_bytes(b.type));
    if (b.bytes != bytes)
      return fail("buffer {}: expected {} bytes for {}, found {}", b.name, bytes, type_text(b.type), b.bytes);
    const auto end = checked_add(b.offset_bytes, b.bytes);
    if (b.offset_bytes < 0 || !end) return fail("buffer {}: bad offset {}", b.name, b.offset_bytes);
    const int steps = static_cast<int>(plan_.steps.size());
    if (b.first_step < -1 || b.last_step < b.first_step || b.last_step >= steps ||
        (b.first_step < 0 && b.last_step >= 0))
      return fail("buffer {}: bad steps {} to {} of {}", b.name, b.first_step, b.last_step, steps);
    if (b.alias_of != -1) return check_alias(b);
    if (b.arena == PlanArena::activations || b.arena == PlanArena::io) {
      const int64_t size = b.arena == PlanArena::io ? plan_.io_bytes : plan_.activations_bytes;
      if (*end > size)
        return fail("buffer {}: ends at byte {} of arena {}, which has {}", b.name, *end, plan_arena_name(b.arena),
                    size);
    }
    // Scalar inputs stand side by side, aligned to themselves.
    const bool packed = b.arena == PlanArena::io && b.type.shape.empty();
    const int64_t alignment = packed ? dtype_bytes(b.type.dtype) : plan_.alignment_bytes;
    if (b.offset_bytes % alignment != 0)
      return fail("buffer {}: offset {} is not a multiple of {}", b.name, b.offset_bytes, alignment);
    return {};
  }

  Status check_alias(const PlanBuffer& b) const {
    if (!exists(b.alias_of)) return fail("buffer {}: no buffer {}", b.name, b.alias_of);
    const PlanBuffer& root = buffer(b.alias_of);
    if (root.alias_of != -1) return fail("buffer {}: its root {} is an alias", b.name, root.name);
    if (b.arena != root.arena || b.offset_bytes != root.offset_bytes || b.bytes > root.bytes)
      return fail("buffer {}: does not lie in its root {}", b.name, root.name);
    return {};
  }

  Status check_ports(const std::vector<PlanPort>& ports, std::string_view what) const {
    std::set<std::string_view> names;
    for (const PlanPort& port : ports) {
      if (!names.insert(port.name).second) return fail("{} {} appears twice", what, port.name);
      if (!exists(port.buffer)) return fail("{} {}: no buffer {}", what, port.name, port.buffer);
      if (buffer(port.buffer).arena != PlanArena::io)
        return fail("{} {}: expected arena io, found {}", what, port.name, plan_arena_name(buffer(port.buffer).arena));
    }
    return {};
  }

  // Walks the steps in order, noting which buffers have been written.
  Status check_steps() const {
    std::vector<bool> written(plan_.buffers.size(), false);
    for (size_t b = 0; b < written.size(); ++b) written[b] = buffer(static_cast<int>(b)).arena < PlanArena::activations;
    for (const PlanPort& port : plan_.inputs) written[static_cast<size_t>(root_buffer(plan_, port.buffer))] = true;
    for (int s = 0; s < static_cast<int>(plan_.steps.size()); ++s) {
      const PlanStep& step = plan_.steps[static_cast<size_t>(s)];
      if (step.flops < 0 || step.bytes < 0) return fail("step {} ({}): negative cost", s, step.name);
      if (step.matrix_flops < 0 || step.matrix_flops > step.flops)
        return fail("step {} ({}): {} of {} FLOPs on matrix units", s, step.name, step.matrix_flops, step.flops);
      for (int read : step_reads(step)) {
        STEPC_TRY(check_use(s, read));
        if (!written[static_cast<size_t>(root_buffer(plan_, read))])
          return fail("step {} ({}): reads {} before anything wrote it", s, step.name, buffer(read).name);
      }
      for (int write : step_writes(step)) {
        STEPC_TRY(check_use(s, write));
        written[static_cast<size_t>(root_buffer(plan_, write))] = true;
      }
      STEPC_TRY(check_copy(s));
    }
    for (const PlanPort& port : plan_.outputs)
      if (!written[static_cast<size_t>(root_buffer(plan_, port.buffer))])
        return fail("output {} is never written", port.name);
    return {};
  }

  Status check_use(int s, int index) const {
    const std::string& name = plan_.steps[static_cast<size_t>(s)].name;
    if (!exists(index)) return fail("step {} ({}): no buffer {}", s, name, index);
    const PlanBuffer& root = buffer(root_buffer(plan_, index));
    if (root.arena == PlanArena::activations && (s < root.first_step || s > root.last_step))
      return fail("step {} ({}): uses {}, which is live from step {} to {}", s, name, root.name, root.first_step,
                  root.last_step);
    return {};
  }

  Status check_copy(int s) const {
    const auto* copy = std::get_if<CopyStep>(&plan_.steps[static_cast<size_t>(s)].action);
    if (!copy || buffer(copy->from).bytes == buffer(copy->to).bytes) return {};
    return fail("step {}: copies {} of {} bytes to {} of {}", s, buffer(copy->from).name, buffer(copy->from).bytes,
                buffer(copy->to).name, buffer(copy->to).bytes);
  }

  // No two roots of the arena overlap while both are live: walks them by first byte, comparing each with
  // those that end after it begins.
  Status check_sharing(PlanArena arena) const {
    std::vector<int> roots;
    for (int b = 0; b < static_cast<int>(plan_.buffers.size()); ++b)
      if (buffer(b).arena == arena && buffer(b).alias_of < 0 && buffer(b).bytes > 0) roots.push_back(b);
    std::sort(roots.begin(), roots.end(), [&](int a, int b) {
      return std::pair(buffer(a).offset_bytes, a) < std::pair(buffer(b).offset_bytes, b);
    });
    std::vector<int> open;
    for (int b : roots) {
      const PlanBuffer& later = buffer(b);
      std::erase_if(open, [&](int a) { return buffer(a).offset_bytes + buffer(a).bytes <= later.offset_bytes; });
      for (int a : open) {
        const PlanBuffer& earlier = buffer(a);
        const bool together = earlier.first_step <= later.last_step && later.first_step <= earlier.last_step;
        if (arena == PlanArena::io || together)
          return fail("buffers {} and {} share bytes while both are live", earlier.name, later.name);
      }
      open.push_back(b);
    }
    return {};
  }

  const Plan& plan_;
};

Status check_launches(const Bundle& bundle, const Plan& plan) {
  for (const PlanStep& step : plan.steps) {
    const auto* launch = std::get_if<LaunchStep>(&step.action);
    if (!launch) continue;
    const std::string where = fmt::format("plan @{}: step {}", plan.program, step.name);
    if (launch->kernel < 0 || static_cast<size_t>(launch->kernel) >= bundle.kernels.size())
      return user_error("{}: no kernel {}", where, launch->kernel);
    if (launch->grid < 0) return user_error("{}: grid {}", where, launch->grid);
    const BundleKernel& kernel = bundle.kernels[static_cast<size_t>(launch->kernel)];
    const size_t buffers = launch->operands.size() + launch->results.size() + (launch->workspace >= 0 ? 1 : 0);
    if (buffers != static_cast<size_t>(kernel.buffers))
      return user_error("{}: kernel {} takes {} buffers, found {}", where, kernel.name, kernel.buffers, buffers);
    if (launch->scalars.size() != static_cast<size_t>(kernel.scalars))
      return user_error("{}: kernel {} takes {} scalars, found {}", where, kernel.name, kernel.scalars,
                        launch->scalars.size());
    if (launch->grid % kernel.launch.cluster != 0)
      return user_error("{}: a grid of {} is no multiple of the clusters of {} of kernel {}", where, launch->grid,
                        kernel.launch.cluster, kernel.name);
  }
  return {};
}

Status check_persistent_buffers(const Bundle& bundle, const Plan& plan) {
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.arena >= PlanArena::activations || buffer.alias_of >= 0) continue;
    const PersistentPlacement* tensor =
        buffer.name.starts_with('@') ? bundle.persistents.find(std::string_view(buffer.name).substr(1)) : nullptr;
    if (!tensor) return user_error("plan @{}: no persistent tensor {}", plan.program, buffer.name);
    if (tensor->arena != buffer.arena || tensor->offset_bytes != buffer.offset_bytes || tensor->type != buffer.type)
      return user_error("plan @{}: {} is not where the module has it", plan.program, buffer.name);
  }
  return {};
}

Status check_layout(const ModuleLayout& layout) {
  std::set<std::string_view> names;
  std::vector<const PersistentPlacement*> order;
  for (const PersistentPlacement& tensor : layout.tensors) {
    if (!names.insert(tensor.name).second) return user_error("@{} appears twice", tensor.name);
    STEPC_ASSIGN(const int64_t bytes, checked_bytes(tensor.type));
    if (tensor.bytes != bytes) return user_error("@{}: expected {} bytes, found {}", tensor.name, bytes, tensor.bytes);
    if (tensor.arena >= PlanArena::activations)
      return user_error("@{}: {} is no arena of persistent tensors", tensor.name, plan_arena_name(tensor.arena));
    const auto end = checked_add(tensor.offset_bytes, bytes);
    if (tensor.offset_bytes < 0 || !end || *end > layout.arena_bytes[static_cast<size_t>(tensor.arena)])
      return user_error("@{}: lies outside its arena", tensor.name);
    if (bytes > 0) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->arena, a->offset_bytes) < std::tie(b->arena, b->offset_bytes);
  });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->arena == order[i]->arena &&
        order[i - 1]->offset_bytes + order[i - 1]->bytes > order[i]->offset_bytes)
      return user_error("@{} and @{} share bytes", order[i - 1]->name, order[i]->name);
  return {};
}

}  // namespace

Status verify_plan(const Plan& plan) { return PlanVerifier(plan).run(); }

Status verify_bundle(const Bundle& bundle) {
  STEPC_TRY(check_layout(bundle.persistents));
  std::set<std::string_view> names;
  for (const BundleKernel& kernel : bundle.kernels) {
    if (!names.insert(kernel.name).second) return user_error("kernel {} appears twice", kernel.name);
    if (const Status launch = verify_gpu_launch(kernel.launch, kernel.buffers); !launch)
      return user_error("kernel {}: {}", kernel.name, launch.error().message);
  }
  std::set<std::string_view> programs;
  for (const Plan& plan : bundle.plans) {
    if (!programs.insert(plan.program).second) return user_error("plan @{} appears twice", plan.program);
    STEPC_TRY(verify_plan(plan));
    STEPC_TRY(check_launches(bundle, plan));
    STEPC_TRY(check_persistent_buffers(bundle, plan));
  }
  return {};
}

}  // namespace stepc
