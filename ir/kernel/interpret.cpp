// The interpreter: memory, indices and control. Ops on fragments are in interpret_ops.cpp, contractions in
// interpret_host.cpp.
#include "ir/kernel/interpret.h"

#include "ir/kernel/index_facts.h"
#include "ir/kernel/interpret_state.h"
#include "ir/kernel/types.h"
#include "ir/kernel/verify.h"
#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

int64_t span_elements(const Buffer& buffer, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t i = 0; i < buffer.shape.size(); ++i) {
    if (buffer.shape[i] == 0) return 0;
    last += (buffer.shape[i] - 1) * strides[i];
  }
  return last + 1;
}

std::optional<int64_t> apply(ExprKind kind, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (kind) {
    case ExprKind::add: return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case ExprKind::sub: return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case ExprKind::mul: return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case ExprKind::div: return b > 0 ? std::optional(floor_div(a, b)) : std::nullopt;
    case ExprKind::rem: return b > 0 ? std::optional(floor_rem(a, b)) : std::nullopt;
    case ExprKind::min: return std::min(a, b);
    case ExprKind::max: return std::max(a, b);
    case ExprKind::less: return a < b;
    case ExprKind::equal: return a == b;
    case ExprKind::constant:
    case ExprKind::variable:
    case ExprKind::task: break;
  }
  STEPC_UNREACHABLE("expression kind {}", static_cast<int>(kind));
}

}  // namespace

Status Machine::start(const std::vector<Tensor*>& globals, const std::vector<int64_t>& scalars) {
  size_t next = 0;
  for (const Buffer& buffer : kernel_.buffers) {
    Memory memory;
    memory.strides = buffer.strides.empty() ? row_major_strides(buffer.shape) : buffer.strides;
    const auto span = static_cast<size_t>(span_elements(buffer, memory.strides));
    if (buffer.space == Space::global) {
      if (next == globals.size())
        return user_error("@{} has more globals than the {} given", kernel_.name, globals.size());
      Tensor& tensor = *globals[next++];
      if (tensor.type.dtype != buffer.dtype || tensor.data.size() < span)
        return user_error("%{} of @{} is {}{}, found {} elements of {}", buffer.name, kernel_.name,
                          dtype_name(buffer.dtype), shape_text(buffer.shape), tensor.data.size(),
                          dtype_name(tensor.type.dtype));
      memory.data = &tensor.data;
      memory.writer.assign(span, -1);
      memory.reader.assign(span, -1);
    } else {
      memory.own.assign(span, 0);
    }
    memories_.push_back(std::move(memory));
  }
  for (Memory& memory : memories_)
    if (!memory.data) memory.data = &memory.own;
  if (next != globals.size()) return user_error("@{} has {} globals, found {}", kernel_.name, next, globals.size());
  if (scalars.size() != kernel_.scalars.size())
    return user_error("@{} has {} scalars, found {}", kernel_.name, kernel_.scalars.size(), scalars.size());
  for (size_t i = 0; i < scalars.size(); ++i) STEPC_TRY(set_variable(KOp{}, kernel_.scalars[i], scalars[i]));
  return {};
}

Status Machine::run() {
  STEPC_ASSIGN(const int64_t tasks, index(KOp{}, kernel_.grid));
  for (task_ = 0; task_ < tasks; ++task_) {
    for (Memory& memory : memories_)
      if (memory.data == &memory.own) memory.undefined.assign(memory.own.size(), true);
    STEPC_TRY(body(kernel_.roles[0].body));
  }
  return {};
}

Result<int64_t> Machine::index(const KOp& op, ExprId id) const {
  const Expr& expr = kernel_.expr(id);
  if (expr.kind == ExprKind::constant) return expr.value;
  if (expr.kind == ExprKind::variable) return variables_[index_of(expr.variable)];
  if (expr.kind == ExprKind::task) return task_;
  STEPC_ASSIGN(const int64_t a, index(op, expr.a));
  STEPC_ASSIGN(const int64_t b, index(op, expr.b));
  if (const auto value = apply(expr.kind, a, b)) return *value;
  return error(op, "{} of {} and {} is no index", expr_text(kernel_, id), a, b);
}

// What was concluded of the variable when the kernel was built must hold.
Status Machine::set_variable(const KOp& op, VarId id, int64_t value) {
  const Variable& variable = kernel_.variables[index_of(id)];
  variables_[index_of(id)] = value;
  if (value >= variable.range.low && value <= variable.range.high && value % variable.multiple_of == 0) return {};
  return error(op, "%{} is {}, expected a multiple of {} from {} to {}", variable.name, value, variable.multiple_of,
               variable.range.low, variable.range.high);
}

Status Machine::body(const Body& body) {
  for (OpId id : body.ops) STEPC_TRY(run_op(kernel_.op(id)));
  return {};
}

void Machine::take_yielded(const Body& body, const std::vector<FragId>& into) {
  if (into.empty()) return;
  std::vector<Lanes> values;  // all are read before any is written: a yield may swap
  for (FragId id : kernel_.op(body.ops.back()).frags) values.push_back(frag(id));
  for (size_t i = 0; i < into.size(); ++i) frag(into[i]) = std::move(values[i]);
}

Status Machine::loop(const KOp& op) {
  STEPC_ASSIGN(const int64_t low, index(op, op.indices[0]));
  STEPC_ASSIGN(const int64_t high, index(op, op.indices[1]));
  STEPC_ASSIGN(const int64_t step, index(op, op.indices[2]));
  const Body& turn = op.bodies[0];
  for (size_t i = 0; i < op.frags.size(); ++i) frag(turn.carried[i]) = frag(op.frags[i]);
  for (int64_t i = low; i < high; i += step) {
    STEPC_TRY(set_variable(op, op.variable, i));
    STEPC_TRY(body(turn));
    take_yielded(turn, turn.carried);
  }
  for (size_t i = 0; i < op.results.size(); ++i) frag(op.results[i]) = frag(turn.carried[i]);
  return {};
}

Status Machine::branch(const KOp& op) {
  STEPC_ASSIGN(const int64_t condition, index(op, op.indices[0]));
  const size_t which = condition != 0 ? 0 : 1;
  if (which == op.bodies.size()) return {};
  STEPC_TRY(body(op.bodies[which]));
  take_yielded(op.bodies[which], op.results);
  return {};
}

Status Machine::run_op(const KOp& op) {
  if (is_pointwise(op.op)) return pointwise(op);
  if (op.op == Op::index) {
    STEPC_ASSIGN(const int64_t value, index(op, op.indices[0]));
    return set_variable(op, op.variable, value);
  }
  if (op.op == Op::load_index) return load_index(op);
  if (op.op == Op::to_index) return to_index(op);
  if (op.op == Op::loop) return loop(op);
  if (op.op == Op::branch) return branch(op);
  if (op.op == Op::load || op.op == Op::store) return load_or_store(op);
  if (op.op == Op::gather) return gather(op);
  if (op.op == Op::scatter) return scatter(op);
  if (op.op == Op::pack) return pack(op);
  if (op.op == Op::mma) return mma(op);
  if (op.op == Op::yield || op.op == Op::prefetch) return {};
  if (op.op == Op::reduce_sum || op.op == Op::reduce_max || op.op == Op::reduce_min) {
    reduce(op);
    return {};
  }
  return make_lanes(op);
}

Status interpret(const Kernel& kernel, const std::vector<Tensor*>& globals, const std::vector<int64_t>& scalars) {
  if (kernel.target != Target::host)
    return user_error("@{} is for {}, not the host", kernel.name, target_name(kernel.target));
  STEPC_TRY(verify(kernel));
  Machine machine(kernel);
  STEPC_TRY(machine.start(globals, scalars));
  return machine.run();
}

}  // namespace stepc::kernel
