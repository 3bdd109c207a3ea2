#include "compiler/plan/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/plan/assign.h"
#include "compiler/plan/liveness.h"
#include "compiler/plan/order.h"
#include "compiler/plan/overwrite.h"
#include "compiler/plan/pack.h"
#include "ir/graph/fused.h"
#include "ir/graph/print.h"
#include "ir/plan/verify.h"
#include "ir/support/check.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

class Planner {
 public:
  Planner(const Program& program, const ModuleLayout& layout, const std::vector<GroupLaunch>& launches,
          const PlanOptions& options)
      : program_(program), layout_(layout), launches_(launches), options_(options) {}

  Result<Plan> run(const std::vector<Unit>& order) {
    STEPC_CHECK(launches_.size() == program_.groups.size(), "{} launches for {} groups", launches_.size(),
                program_.groups.size());
    plan_.program = program_.name;
    plan_.alignment_bytes = options_.alignment_bytes;
    roots_ = root_values(program_);
    buffer_of_value_.assign(program_.values.size(), -1);
    in_place_ = in_place_assigns(program_, order);
    find_last_readers(order);
    STEPC_TRY(place_leaves());
    STEPC_TRY(place_assigned());
    STEPC_TRY(place_outputs());
    for (rank_ = 0; rank_ < static_cast<int>(order.size()); ++rank_)
      STEPC_TRY(add_unit(order[static_cast<size_t>(rank_)]));
    for (PlanStep& step : last_steps_) plan_.steps.push_back(std::move(step));
    mark_live_steps(plan_);
    STEPC_TRY(layout_io());
    pack_activations();
    STEPC_TRY(verify_plan(plan_));
    return std::move(plan_);
  }

 private:
  PlanBuffer& buffer(int index) { return plan_.buffers[static_cast<size_t>(index)]; }

  Result<int> add_buffer(std::string name, PlanArena arena, TensorType type) {
    STEPC_ASSIGN(const int64_t bytes, checked_bytes(type));
    plan_.buffers.push_back({std::move(name), arena, std::move(type), bytes});
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  int add_alias(std::string name, TensorType type, int of) {
    const int root = root_buffer(plan_, of);
    PlanBuffer alias = buffer(root);
    alias.name = std::move(name);
    alias.type = std::move(type);
    alias.alias_of = root;
    plan_.buffers.push_back(std::move(alias));
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  Result<int> persistent_buffer(const std::string& name) {
    const auto known = persistent_buffers_.find(name);
    if (known != persistent_buffers_.end()) return known->second;
    const PersistentPlacement* tensor = layout_.find(name);
    STEPC_CHECK(tensor, "@{} is not in the module's layout", name);
    STEPC_ASSIGN(const int index, add_buffer("@" + name, tensor->arena, tensor->type));
    buffer(index).offset_bytes = tensor->offset_bytes;
    persistent_buffers_[name] = index;
    return index;
  }

  // The buffer of a value, made on first use: an alias of its root's where it is a reshape.
  Result<int> value_buffer(ValueId id) {
    int& index = buffer_of_value_[index_of(id)];
    if (index >= 0) return index;
    const ValueId root = roots_[index_of(id)];
    const Value& value = program_.value(id);
    if (root == id) {
      STEPC_ASSIGN(index, add_buffer(value.name, PlanArena::activations, value.type));
      return index;
    }
    STEPC_ASSIGN(const int of, value_buffer(root));
    index = add_alias(value.name, value.type, of);
    return index;
  }

  Status place_leaves() {
    for (const Node& node : program_.nodes) {
      if (node.op != Op::input && node.op != Op::param && node.op != Op::state) continue;
      const std::string& name = node.attrs.text(AttrKey::name);
      int& index = buffer_of_value_[index_of(node.results[0])];
      if (node.op == Op::input) {
        STEPC_ASSIGN(index,
                     add_buffer(program_.value(node.results[0]).name, PlanArena::io, program_.type(node.results[0])));
        plan_.inputs.push_back({name, index});
      } else {
        STEPC_ASSIGN(index, persistent_buffer(name));
      }
    }
    return {};
  }

  // The last unit that reads each root, by rank; none can where an effect hands the value on.
  void find_last_readers(const std::vector<Unit>& order) {
    constexpr int kAtTheEnd = INT32_MAX;
    const std::vector<int> group_of = group_of_nodes(program_);
    std::vector<int> rank_of_group(program_.groups.size(), -1);
    for (size_t rank = 0; rank < order.size(); ++rank)
      if (order[rank].group >= 0) rank_of_group[static_cast<size_t>(order[rank].group)] = static_cast<int>(rank);
    last_reader_.assign(program_.values.size(), -1);
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      const bool effect = op_info(program_.nodes[n].op).family == OpFamily::effect;
      const int rank = effect ? kAtTheEnd : group_of[n] < 0 ? -1 : rank_of_group[static_cast<size_t>(group_of[n])];
      for (ValueId operand : program_.nodes[n].operands) {
        int& last = last_reader_[index_of(roots_[index_of(operand)])];
        last = std::max(last, rank);
      }
    }
  }

  // Lets a result take the place of an operand that this kernel is the last to read.
  void overwrite(const Group& group, const GroupLaunch& info) {
    if (!info.later.empty()) return;
    std::set<int> taken;
    for (ValueId result : info.results) {
      if (roots_[index_of(result)] != result || buffer_of_value_[index_of(result)] >= 0) continue;
      for (ValueId old : info.operands) {
        const int place = buffer_of_value_[index_of(old)];
        if (place < 0 || roots_[index_of(old)] != old || last_reader_[index_of(old)] != rank_) continue;
        const int root = root_buffer(plan_, place);
        // Another shape of it may be read at other elements.
        const auto same = [&](ValueId operand) { return roots_[index_of(operand)] == old; };
        const bool only = std::count_if(info.operands.begin(), info.operands.end(), same) == 1;
        const bool free = only && buffer(root).arena == PlanArena::activations && !taken.contains(root);
        if (!free || !can_overwrite(program_, group, old, result)) continue;
        taken.insert(root);
        buffer_of_value_[index_of(result)] = add_alias(program_.value(result).name, program_.type(result), root);
        break;
      }
    }
  }

  // A value that lies in a parameter's, state's or input's place.
  bool is_leaf(ValueId root) const {
    const Op op = program_.producer(root).op;
    return op == Op::input || op == Op::param || op == Op::state;
  }

  bool is_assigned(ValueId leaf) const {
    const Node& source = program_.producer(leaf);
    if (source.op == Op::input) return false;
    return std::any_of(program_.nodes.begin(), program_.nodes.end(), [&](const Node& node) {
      return node.op == Op::assign && node.attrs.text(AttrKey::name) == source.attrs.text(AttrKey::name);
    });
  }

  // In-place values first: a copy may start from one of them.
  Status place_assigned() {
    for (const bool in_place : {true, false}) {
      for (size_t n = 0; n < program_.nodes.size(); ++n) {
        const Node& node = program_.nodes[n];
        if (node.op != Op::assign || in_place_[n] != in_place) continue;
        STEPC_ASSIGN(const int target, persistent_buffer(node.attrs.text(AttrKey::name)));
        const ValueId root = roots_[index_of(node.operands[0])];
        if (in_place)
          buffer_of_value_[index_of(root)] = add_alias(program_.value(root).name, program_.type(root), target);
        else
          STEPC_TRY(commit_by_copy(node, root, target));
      }
    }
    return {};
  }

  Status commit_by_copy(const Node& node, ValueId root, int target) {
    STEPC_ASSIGN(int source, value_buffer(node.operands[0]));
    if (root_buffer(plan_, source) == target) return {};  // becomes what it is
    if (is_leaf(root) && is_assigned(root)) {
      // The old value must outlive its own place: it is set aside before anything else runs.
      const Value& value = program_.value(node.operands[0]);
      STEPC_ASSIGN(const int aside, add_buffer(value.name + ".old", PlanArena::activations, value.type));
      add_copy(plan_.steps, "set aside " + buffer(source).name, source, aside, node.phase);
      source = aside;
    }
    add_copy(last_steps_, "assign " + buffer(target).name, source, target, node.phase);
    return {};
  }

  // The first output of a value that a group makes gets the value's own buffer, in io.
  Status place_outputs() {
    for (const Node& node : program_.nodes) {
      if (node.op != Op::output) continue;
      const std::string& name = node.attrs.text(AttrKey::name);
      const ValueId value = node.operands[0], root = roots_[index_of(value)];
      int& root_index = buffer_of_value_[index_of(root)];
      if (root_index < 0 || buffer(root_index).arena == PlanArena::activations) {
        STEPC_ASSIGN(root_index, value_buffer(root));
        move_to_io(root_index);
        STEPC_ASSIGN(const int index, value_buffer(value));
        plan_.outputs.push_back({name, index});
        continue;
      }
      STEPC_ASSIGN(const int source, value_buffer(value));
      STEPC_ASSIGN(const int copy, add_buffer(name, PlanArena::io, program_.type(value)));
      // An old value is handed out before anything can overwrite it, a new one when all is done.
      add_copy(is_leaf(root) ? plan_.steps : last_steps_, "output " + name, source, copy, node.phase);
      plan_.outputs.push_back({name, copy});
    }
    return {};
  }

  void move_to_io(int root) {
    for (PlanBuffer& b : plan_.buffers)
      if (b.alias_of == root) b.arena = PlanArena::io;
    buffer(root).arena = PlanArena::io;
  }

  void add_copy(std::vector<PlanStep>& steps, std::string name, int from, int to, Phase phase) {
    PlanStep step{std::move(name), CopyStep{from, to}};
    step.phase = phase;
    step.bytes = saturating_mul(2, buffer(from).bytes);
    steps.push_back(std::move(step));
  }

  Status add_unit(const Unit& unit) {
    if (unit.group >= 0) return add_launch(unit.group);
    const Node& node = program_.node(unit.node);
    switch (op_info(node.op).family) {
      case OpFamily::effect: return {};
      case OpFamily::view:
        if (node.op == Op::reshape) return {};
        break;
      case OpFamily::leaf:
        if (node.op == Op::constant) return add_fill(node);
        if (node.op == Op::input || node.op == Op::param || node.op == Op::state) return {};
        break;
      case OpFamily::pointwise:
      case OpFamily::reduction:
      case OpFamily::contraction:
      case OpFamily::rows:
      case OpFamily::structured: break;
    }
    return user_error_at(node.where, "program @{}: expected every op in a kernel, found {} outside", program_.name,
                         print_node(program_, node));
  }

  Status add_fill(const Node& node) {
    STEPC_ASSIGN(const int index, value_buffer(node.results[0]));
    PlanStep step{buffer(index).name, FillStep{index, node.attrs.real(AttrKey::value)}};
    step.phase = node.phase;
    step.bytes = buffer(index).bytes;
    plan_.steps.push_back(std::move(step));
    return {};
  }

  Status add_launch(int group_index) {
    const Group& group = program_.groups[static_cast<size_t>(group_index)];
    const GroupLaunch& info = launches_[static_cast<size_t>(group_index)];
    LaunchStep launch{info.kernel, info.grid, {}, {}, -1, info.scalars};
    for (ValueId operand : info.operands) {
      STEPC_ASSIGN(const int index, value_buffer(operand));
      launch.operands.push_back(index);
    }
    overwrite(group, info);
    for (ValueId result : info.results) {
      STEPC_ASSIGN(const int index, value_buffer(result));
      launch.results.push_back(index);
    }
    if (info.workspace_bytes > 0) {
      const TensorType type{Dtype::pred, {info.workspace_bytes}};
      STEPC_ASSIGN(launch.workspace, add_buffer(group.name + ".workspace", PlanArena::activations, type));
    }
    PlanStep step{group.name, std::move(launch)};
    step.phase = program_.node(group.nodes.back()).phase;
    step.flops = group_flops(program_, group);
    step.matrix_flops = group_matrix_flops(program_, group);
    step.bytes = group_bytes(program_, group);
    plan_.steps.push_back(step);
    add_later_launches(info, std::move(step));
    return {};
  }

  // The group's work is counted at its first step.
  void add_later_launches(const GroupLaunch& info, PlanStep step) {
    const std::string group = step.name;
    step.flops = step.matrix_flops = step.bytes = 0;
    for (size_t i = 0; i < info.later.size(); ++i) {
      auto& launch = std::get<LaunchStep>(step.action);
      launch.kernel = info.later[i].kernel;
      launch.grid = info.later[i].grid;
      launch.scalars = info.later[i].scalars;
      step.name = fmt::format("{}.{}", group, i + 2);
      plan_.steps.push_back(step);
    }
  }

  // Scalars side by side, then tensors, each in order of appearance.
  Status layout_io() {
    int64_t end = 0;
    for (const bool scalars : {true, false}) {
      for (PlanBuffer& b : plan_.buffers) {
        if (b.arena != PlanArena::io || b.alias_of >= 0 || b.type.shape.empty() != scalars) continue;
        const int64_t alignment = scalars ? dtype_bytes(b.type.dtype) : options_.alignment_bytes;
        const auto offset = checked_align_up(end, alignment);
        const auto next = offset ? checked_add(*offset, b.bytes) : std::nullopt;
        if (!next) return user_error("program @{}: inputs and outputs do not fit 64 bits", program_.name);
        b.offset_bytes = *offset;
        end = *next;
      }
    }
    plan_.io_bytes = end;
    copy_roots_to_aliases();
    return {};
  }

  void pack_activations() {
    std::vector<Interval> intervals;
    std::vector<int> packed;
    for (int b = 0; b < static_cast<int>(plan_.buffers.size()); ++b) {
      const PlanBuffer& candidate = buffer(b);
      if (candidate.arena != PlanArena::activations || candidate.alias_of >= 0 || candidate.first_step < 0) continue;
      intervals.push_back({candidate.bytes, candidate.first_step, candidate.last_step});
      packed.push_back(b);
    }
    const Packing packing = pack(intervals, options_.alignment_bytes);
    for (size_t i = 0; i < packed.size(); ++i) buffer(packed[i]).offset_bytes = packing.offsets_bytes[i];
    plan_.activations_bytes = packing.peak_bytes;
    plan_.lower_bound_bytes = packing_lower_bound(intervals, options_.alignment_bytes);
    plan_.packing = packing.method;
    copy_roots_to_aliases();
  }

  void copy_roots_to_aliases() {
    for (PlanBuffer& b : plan_.buffers)
      if (b.alias_of >= 0) b.offset_bytes = buffer(b.alias_of).offset_bytes;
  }

  const Program& program_;
  const ModuleLayout& layout_;
  const std::vector<GroupLaunch>& launches_;
  const PlanOptions& options_;
  Plan plan_;
  std::vector<PlanStep> last_steps_;  // commits of assignments and late outputs
  std::vector<ValueId> roots_;
  std::vector<bool> in_place_;  // by node
  std::vector<int> buffer_of_value_;
  std::vector<int> last_reader_;  // by value: the rank of a unit
  int rank_ = 0;                  // of the unit that is being added
  std::map<std::string, int> persistent_buffers_;
};

}  // namespace

std::vector<GroupLaunch> unscheduled_launches(const Program& program) {
  std::vector<GroupLaunch> launches;
  for (const Group& group : program.groups)
    launches.push_back({-1, 0, group_operands(program, group), group_results(program, group), {}, 0});
  return launches;
}

Result<ModuleLayout> layout_persistents(const Module& module, const PlanOptions& options) {
  ModuleLayout layout;
  for (const Persistent& persistent : module.persistents) {
    STEPC_ASSIGN(const int64_t bytes, checked_bytes(persistent.type));
    int64_t& end = layout.arena_bytes[static_cast<size_t>(persistent.arena)];
    const auto offset = checked_align_up(end, options.alignment_bytes);
    const auto next = offset ? checked_add(*offset, bytes) : std::nullopt;
    if (!next) return user_error("@{}: arena {} does not fit 64 bits", persistent.name, arena_name(persistent.arena));
    layout.tensors.push_back({persistent.name, plan_arena(persistent.arena), persistent.type, bytes, *offset});
    end = *next;
  }
  return layout;
}

Result<Plan> plan_program(const Program& program, const ModuleLayout& layout, const std::vector<GroupLaunch>& launches,
                          const PlanOptions& options) {
  const auto own_order = unit_order(program);
  STEPC_CHECK(own_order.has_value(), "program @{}: groups in a circle", program.name);
  STEPC_ASSIGN(Plan plan, Planner(program, layout, launches, options).run(*own_order));
  plan.packing += ", the program's order";
  if (!options.reorder) return plan;
  STEPC_ASSIGN(Plan reordered, Planner(program, layout, launches, options).run(memory_order(program)));
  reordered.packing += ", order for memory";
  return reordered.activations_bytes < plan.activations_bytes ? std::move(reordered) : std::move(plan);
}

}  // namespace stepc
