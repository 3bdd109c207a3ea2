// The verifier: declarations, and the structure of bodies. What each op asks of its operands is in
// verify_ops.cpp and verify_targets.cpp, bounds are in verify_bounds.cpp.
#include "ir/kernel/verify.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "ir/kernel/index_facts.h"
#include "ir/kernel/layout.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify_rules.h"
#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

template <class Id, class T>
bool is_in(Id id, const std::vector<T>& pool) {
  return id != Id::none && stepc::kernel::index_of(id) < pool.size();
}

// ---- ids: everything after this may follow them ------------------------------------------------------------------

Status check_expr_ids(const Kernel& kernel) {
  for (size_t i = 0; i < kernel.exprs.size(); ++i) {
    const Expr& expr = kernel.exprs[i];
    const bool is_leaf = expr.kind == ExprKind::constant || expr.kind == ExprKind::task;
    if (expr.kind == ExprKind::variable) {
      if (!is_in(expr.variable, kernel.variables)) return user_error("expression {} of a variable that is none", i);
    } else if (!is_leaf) {
      const bool ordered =
          is_in(expr.a, kernel.exprs) && is_in(expr.b, kernel.exprs) && index_of(expr.a) < i && index_of(expr.b) < i;
      if (!ordered) return user_error("expression {} before its operands", i);
    }
  }
  return {};
}

bool has_valid_ids(const Kernel& kernel, const KOp& op) {
  const auto is_frag = [&](FragId id) { return is_in(id, kernel.frags); };
  const auto is_expr = [&](ExprId id) { return is_in(id, kernel.exprs); };
  bool valid = std::all_of(op.frags.begin(), op.frags.end(), is_frag) &&
               std::all_of(op.results.begin(), op.results.end(), is_frag) &&
               std::all_of(op.indices.begin(), op.indices.end(), is_expr);
  for (const Ref& ref : op.refs)
    valid = valid && is_in(ref.buffer, kernel.buffers) && std::all_of(ref.at.begin(), ref.at.end(), is_expr);
  for (const Body& body : op.bodies) valid = valid && std::all_of(body.carried.begin(), body.carried.end(), is_frag);
  return valid && (op.variable == VarId::none || is_in(op.variable, kernel.variables));
}

Status check_ids(const Kernel& kernel) {
  STEPC_TRY(check_expr_ids(kernel));
  if (!is_in(kernel.grid, kernel.exprs)) return user_error("@{} has no grid", kernel.name);
  for (VarId id : kernel.scalars)
    if (!is_in(id, kernel.variables)) return user_error("@{} has a scalar that is no variable", kernel.name);
  for (size_t i = 0; i < kernel.ops.size(); ++i)
    if (!has_valid_ids(kernel, kernel.ops[i])) return user_error("op {} has an id out of range", i);
  return {};
}

// ---- declarations --------------------------------------------------------------------------------------------------

Status check_strides(const Buffer& buffer) {
  if (buffer.strides.empty()) return {};
  if (buffer.strides.size() != buffer.shape.size())
    return user_error("%{} has {} strides, expected {}", buffer.name, buffer.strides.size(), buffer.shape.size());
  if (std::any_of(buffer.strides.begin(), buffer.strides.end(), [](int64_t stride) { return stride < 0; }))
    return user_error("%{} has a negative stride", buffer.name);
  if (buffer.strides.back() != 1)
    return user_error("%{} has stride {} in its last dimension, expected 1", buffer.name, buffer.strides.back());
  return {};
}

Status check_map(const Kernel& kernel, const Buffer& map) {
  if (!is_in(map.map_of, kernel.buffers) || kernel.buffer(map.map_of).space != Space::global)
    return user_error("map %{} is not of a global tensor", map.name);
  const Buffer& tensor = kernel.buffer(map.map_of);
  if (map.shape != tensor.shape || map.dtype != tensor.dtype)
    return user_error("map %{} is not of the type of %{}", map.name, tensor.name);
  if (map.box.size() != tensor.shape.size() || tensor.shape.empty() || tensor.shape.size() > 5)
    return user_error("map %{} has a box of {} dimensions, expected the {} (1 to 5) of %{}", map.name, map.box.size(),
                      tensor.shape.size(), tensor.name);
  for (int64_t extent : map.box)
    if (extent < 1 || extent > 256)
      return user_error("map %{} has box {}, expected extents of 1 to 256", map.name, shape_text(map.box));
  const int64_t row_bytes = map.box.back() * dtype_bytes(map.dtype);
  if (map.swizzle_bytes != 0 && row_bytes > map.swizzle_bytes)
    return user_error("map %{} has box rows of {} bytes, expected at most its swizzle, {}", map.name, row_bytes,
                      map.swizzle_bytes);
  return {};
}

Status check_over(const Kernel& kernel, const Buffer& buffer) {
  if (buffer.over == BufferId::none) return {};
  if (kernel.target != Target::sm90 || buffer.space != Space::shared)
    return user_error("%{} lies over another buffer, which only shared ones of sm90 may", buffer.name);
  if (!is_in(buffer.over, kernel.buffers) || kernel.buffer(buffer.over).space != Space::shared ||
      kernel.buffer(buffer.over).over != BufferId::none)
    return user_error("%{} does not lie over a shared buffer with memory of its own", buffer.name);
  const Buffer& below = kernel.buffer(buffer.over);
  const auto bytes = [](const Buffer& of) { return numel(of.shape) * dtype_bytes(of.dtype); };
  if (bytes(buffer) > bytes(below))
    return user_error("%{} takes {} bytes, more than the {} of %{} below it", buffer.name, bytes(buffer), bytes(below),
                      below.name);
  if (buffer.swizzle_bytes != 0 && below.swizzle_bytes == 0)
    return user_error("%{} has a swizzle, but %{} below it has none", buffer.name, below.name);
  return {};
}

Status check_buffer(const Kernel& kernel, const Buffer& buffer) {
  constexpr int64_t kMaxBytes = int64_t{1} << 56;
  const auto elements = checked_numel(buffer.shape);
  if (!elements || *elements > kMaxBytes)
    return user_error("%{} has too many elements: {}", buffer.name, shape_text(buffer.shape));
  const int64_t swizzle = buffer.swizzle_bytes;
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    return user_error("%{} has swizzle {}, expected 32, 64 or 128", buffer.name, swizzle);
  if (kernel.target != Target::sm90 && (buffer.space == Space::map || buffer.space == Space::barrier))
    return user_error("%{} is of sm90, found in a kernel for {}", buffer.name, target_name(kernel.target));
  if (kernel.target == Target::host && swizzle != 0)
    return user_error("%{} has a swizzle, found in a kernel for the host", buffer.name);
  switch (buffer.space) {
    case Space::global: return check_strides(buffer);
    case Space::shared:
      if (!buffer.strides.empty()) return user_error("shared %{} has strides", buffer.name);
      return check_over(kernel, buffer);
    case Space::map: return check_map(kernel, buffer);
    case Space::barrier:
      if (buffer.shape.size() != 1 || *elements < 1 || *elements > 64)
        return user_error("%{} has {} barriers, expected 1 to 64", buffer.name, *elements);
      if (buffer.arrivals < 1 || buffer.arrivals > 1024)
        return user_error("%{} completes after {} arrivals, expected 1 to 1024", buffer.name, buffer.arrivals);
      return {};
  }
  STEPC_UNREACHABLE("space {}", static_cast<int>(buffer.space));
}

Status check_roles(const Kernel& kernel) {
  if (kernel.roles.empty()) return user_error("@{} has no role", kernel.name);
  int64_t warps = 0;
  for (const Role& role : kernel.roles) {
    if (role.copies < 1) return user_error("role @{} has no copies", role.name);
    if ((role.copy == VarId::none) != (role.copies == 1) && !is_in(role.copy, kernel.variables))
      return user_error("role @{} has copies without an index", role.name);
    if (kernel.target != Target::host && role.warps < 1) return user_error("role @{} has no warps", role.name);
    if (role.registers % 8 != 0)
      return user_error("role @{} has {} registers, expected a multiple of 8", role.name, role.registers);
    warps += int64_t{role.copies} * role.warps;
  }
  const Role& first = kernel.roles[0];
  if (kernel.target == Target::host &&
      (kernel.roles.size() != 1 || first.copies != 1 || first.warps != 0 || first.registers != 0))
    return user_error("a kernel for the host has one role, without warps and registers");
  if (warps > 32) return user_error("@{} has {} warps, expected at most 32", kernel.name, warps);
  if (kernel.cluster < 1 || kernel.cluster > 8 || (kernel.cluster > 1 && kernel.target != Target::sm90))
    return user_error("@{} has clusters of {}, expected 1{}", kernel.name, kernel.cluster,
                      kernel.target == Target::sm90 ? " to 8" : "");
  return {};
}

Status check_declarations(const Kernel& kernel) {
  bool past_globals = false;
  for (const Buffer& buffer : kernel.buffers) {
    if (buffer.space == Space::global && past_globals)
      return user_error("global %{} after buffers that are none", buffer.name);
    past_globals = buffer.space != Space::global;
    STEPC_TRY(check_buffer(kernel, buffer));
  }
  return check_roles(kernel);
}

// ---- bodies
// ----------------------------------------------------------------------------------------------------------

class BodyVerifier {
 public:
  explicit BodyVerifier(const Kernel& kernel)
      : kernel_(kernel),
        frag_visible_(kernel.frags.size()),
        variable_visible_(kernel.variables.size()),
        frag_defined_(kernel.frags.size()),
        flying_(kernel.frags.size()),
        op_used_(kernel.ops.size()) {}

  Status whole() {
    for (const Buffer& buffer : kernel_.buffers) STEPC_TRY(take_name(KOp{}, buffer.name));
    for (VarId id : kernel_.scalars) {
      STEPC_TRY(take_name(KOp{}, kernel_.variables[index_of(id)].name));
      variable_visible_[index_of(id)] = true;
    }
    STEPC_TRY(check_index(KOp{}, kernel_.grid, true));
    for (const Role& role : kernel_.roles) {
      if (role.copy != VarId::none) variable_visible_[index_of(role.copy)] = true;
      STEPC_TRY(body(KOp{.op = Op::once}, role.body, {}));
      if (role.copy != VarId::none) variable_visible_[index_of(role.copy)] = false;
    }
    return {};
  }

 private:
  Status take_name(const KOp& op, std::string_view name) {
    if (!taken_.insert(name).second) return op_error(op, "%{} is defined twice", name);
    names_.push_back(name);
    return {};
  }

  Status define(const KOp& op, FragId id) {
    if (frag_defined_[index_of(id)]) return op_error(op, "%{} is defined twice", kernel_.frag(id).name);
    frag_defined_[index_of(id)] = frag_visible_[index_of(id)] = true;
    flying_[index_of(id)] = op.op == Op::wgmma || op.op == Op::wgmma_rs;
    visible_frags_.push_back(id);
    return take_name(op, kernel_.frag(id).name);
  }

  Status define(const KOp& op, VarId id) {
    if (variable_visible_[index_of(id)])
      return op_error(op, "%{} is defined twice", kernel_.variables[index_of(id)].name);
    variable_visible_[index_of(id)] = true;
    visible_variables_.push_back(id);
    return take_name(op, kernel_.variables[index_of(id)].name);
  }

  Status check_index(const KOp& op, ExprId id, bool is_grid = false) const {
    const Expr& expr = kernel_.expr(id);
    if (expr.kind == ExprKind::constant) return {};
    if (expr.kind == ExprKind::task) return is_grid ? Status(op_error(op, "the grid depends on task")) : Status();
    if (expr.kind == ExprKind::variable) {
      if (variable_visible_[index_of(expr.variable)]) return {};
      return op_error(op, "%{} is not defined here", kernel_.variables[index_of(expr.variable)].name);
    }
    STEPC_TRY(check_index(op, expr.a, is_grid));
    STEPC_TRY(check_index(op, expr.b, is_grid));
    const bool divides = expr.kind == ExprKind::div || expr.kind == ExprKind::rem;
    const int64_t lowest = divides ? range_of(kernel_, expr.b).low : 1;
    if (lowest > 0) return {};
    if (lowest == INT64_MIN)
      return op_error(op, "the divisor {} is not known to be positive", expr_text(kernel_, expr.b));
    return op_error(op, "the divisor {} may be {}, expected a positive number", expr_text(kernel_, expr.b), lowest);
  }

  // Accumulators of products under way go through loops and branches as they are.
  static bool may_fly(const KOp& op, size_t operand) {
    if (op.op == Op::wgmma || op.op == Op::wgmma_rs) return operand == 0;
    return op.op == Op::wgmma_wait || op.op == Op::loop || op.op == Op::yield;
  }

  const KOp* yield_of(const Body& body) const {
    const KOp* last = body.ops.empty() ? nullptr : &kernel_.op(body.ops.back());
    return last && last->op == Op::yield ? last : nullptr;
  }

  // Is this result of a loop or branch under way after it, on some path?
  bool flies_after(const KOp& op, size_t result) const {
    if (op.op == Op::loop) return flying_[index_of(op.frags[result])];
    return std::any_of(op.bodies.begin(), op.bodies.end(), [&](const Body& body) {
      const KOp* yield = yield_of(body);
      return yield && flying_[index_of(yield->frags[result])];
    });
  }

  // What one thread does, and what a role's threads do together.
  Status check_place(const KOp& op) const {
    constexpr std::array kOfOneThread = {Op::expect,        Op::tma_load,     Op::tma_store,
                                         Op::bulk_load,     Op::bulk_reduce,  Op::bulk_commit,
                                         Op::progress_wait, Op::progress_add, Op::progress_end};
    constexpr std::array kOfAll = {Op::once,     Op::sync,        Op::sync_arrive, Op::sync_task, Op::stmatrix,
                                   Op::mma_sync, Op::mma_sync_rs, Op::wgmma,       Op::wgmma_rs,  Op::wgmma_wait};
    const auto is_in_list = [&](const auto& list) { return std::find(list.begin(), list.end(), op.op) != list.end(); };
    if (once_depth_ == 0 && is_in_list(kOfOneThread)) return op_error(op, "outside `once`: one thread starts it");
    if (once_depth_ > 0 && is_in_list(kOfAll)) return op_error(op, "inside `once`: it takes all threads of the role");
    return {};
  }

  Status check_uses(const KOp& op) const {
    for (size_t i = 0; i < op.frags.size(); ++i) {
      const Frag& frag = kernel_.frag(op.frags[i]);
      if (!frag_visible_[index_of(op.frags[i])]) return op_error(op, "%{} is not defined here", frag.name);
      if (flying_[index_of(op.frags[i])] && !may_fly(op, i))
        return op_error(op, "%{} is touched before its wgmma_wait", frag.name);
    }
    for (ExprId id : op.indices) STEPC_TRY(check_index(op, id));
    for (const Ref& ref : op.refs)
      for (ExprId id : ref.at) STEPC_TRY(check_index(op, id));
    return {};
  }

  // The types of what a body yields against those it should.
  Status check_yield(const KOp& owner, const Body& body, const std::vector<FragId>& like) {
    const KOp* last = yield_of(body);
    const size_t count = last ? last->frags.size() : 0;
    if (count != like.size())
      return op_error(last ? *last : owner, "the body yields {} fragments, expected {}", count, like.size());
    for (size_t i = 0; i < count; ++i) {
      const Frag& found = kernel_.frag(last->frags[i]);
      const Frag& expected = kernel_.frag(like[i]);
      if (found.dtype != expected.dtype || found.shape != expected.shape)
        return op_error(*last, "%{} is {}, expected the {} of %{}", found.name, frag_type_text(found),
                        frag_type_text(expected), expected.name);
      if (owner.op == Op::loop && flying_[index_of(last->frags[i])] && !flying_[index_of(like[i])])
        return op_error(*last, "%{} is carried on before its wgmma_wait, but %{} starts complete", found.name,
                        expected.name);
    }
    return {};
  }

  Status body(const KOp& owner, const Body& body, const std::vector<FragId>& like) {
    const size_t names = names_.size(), frags = visible_frags_.size(), variables = visible_variables_.size();
    if (owner.op == Op::loop) STEPC_TRY(define(owner, owner.variable));
    for (size_t i = 0; i < body.carried.size(); ++i) {
      STEPC_TRY(define(owner, body.carried[i]));
      flying_[index_of(body.carried[i])] = flying_[index_of(owner.frags[i])];
    }
    for (OpId id : body.ops) {
      if (!is_in(id, kernel_.ops)) return op_error(owner, "an op of the body is out of range");
      if (op_used_[index_of(id)]) return op_error(kernel_.op(id), "the op is in two bodies");
      op_used_[index_of(id)] = true;
      if (kernel_.op(id).op == Op::yield && id != body.ops.back())
        return op_error(kernel_.op(id), "yield is not the last op of its body");
      STEPC_TRY(op(kernel_.op(id)));
    }
    STEPC_TRY(check_yield(owner, body, like));
    for (; visible_frags_.size() > frags; visible_frags_.pop_back())
      frag_visible_[index_of(visible_frags_.back())] = false;
    for (; visible_variables_.size() > variables; visible_variables_.pop_back())
      variable_visible_[index_of(visible_variables_.back())] = false;
    for (; names_.size() > names; names_.pop_back()) taken_.erase(names_.back());
    return {};
  }

  Status op(const KOp& op) {
    STEPC_TRY(check_uses(op));
    STEPC_TRY(check_form(kernel_, op));
    STEPC_TRY(check_place(op));
    if (op.op == Op::once) ++once_depth_;
    for (const Body& each : op.bodies) {
      const auto& like = op.op == Op::loop ? each.carried : op.results;
      STEPC_TRY(body(op, each, like));
    }
    if (op.op == Op::once) --once_depth_;
    STEPC_TRY(check_types(kernel_, op));
    const bool defines_variable = op.op == Op::index || op.op == Op::load_index || op.op == Op::to_index;
    if (defines_variable) STEPC_TRY(define(op, op.variable));
    for (size_t i = 0; i < op.results.size(); ++i) {
      STEPC_TRY(define(op, op.results[i]));
      if (!op.bodies.empty()) flying_[index_of(op.results[i])] = flies_after(op, i);
    }
    return {};
  }

  const Kernel& kernel_;
  std::vector<char> frag_visible_, variable_visible_, frag_defined_;
  std::vector<char> flying_;  // accumulators of products under way
  std::vector<char> op_used_;
  int once_depth_ = 0;
  std::vector<std::string_view> names_;  // in sight, in order of definition
  std::unordered_set<std::string_view> taken_;
  std::vector<FragId> visible_frags_;
  std::vector<VarId> visible_variables_;
};

}  // namespace

std::string frag_type_text(const Frag& frag) { return std::string(dtype_name(frag.dtype)) + shape_text(frag.shape); }

Status verify(const Kernel& kernel) {
  STEPC_TRY(check_ids(kernel));
  STEPC_TRY(check_declarations(kernel));
  STEPC_TRY(BodyVerifier(kernel).whole());
  if (kernel.target != Target::host) STEPC_TRY(fragment_layouts(kernel));
  return check_bounds(kernel);
}

}  // namespace stepc::kernel
