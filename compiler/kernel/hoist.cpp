#include "compiler/kernel/hoist.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace stepc {
namespace {

using kernel::BufferId;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::FragId;
using kernel::Kernel;
using kernel::KOp;
using kernel::Op;
using kernel::OperandKind;
using kernel::OpId;
using kernel::VarId;

// What a loop's body defines and writes.
struct Inside {
  std::set<FragId> frags;
  std::set<VarId> variables;
  std::set<BufferId> written;
};

void collect(const Kernel& kernel, const KOp& op, Inside& inside) {
  inside.frags.insert(op.results.begin(), op.results.end());
  if (op.variable != VarId::none) inside.variables.insert(op.variable);
  const bool reads = op.op == Op::load || op.op == Op::gather || op.op == Op::load_index || op.op == Op::mma;
  if (!reads)
    for (const kernel::Ref& ref : op.refs) inside.written.insert(ref.buffer);
  for (const kernel::Body& body : op.bodies) {
    inside.frags.insert(body.carried.begin(), body.carried.end());
    for (OpId id : body.ops) collect(kernel, kernel.op(id), inside);
  }
}

bool uses(const Kernel& kernel, ExprId id, const std::set<VarId>& variables) {
  if (id == ExprId::none) return false;
  const kernel::Expr& expr = kernel.expr(id);
  if (expr.kind == ExprKind::variable) return variables.contains(expr.variable);
  return uses(kernel, expr.a, variables) || uses(kernel, expr.b, variables);
}

// Can this op stand before the loop? Ops with bodies, effects or results carried elsewhere stay.
bool invariant(const Kernel& kernel, const KOp& op, const Inside& inside) {
  const bool memory = op.op == Op::load || op.op == Op::gather || op.op == Op::load_index;
  if (!op.bodies.empty() || op.op == Op::yield || (!memory && !op.refs.empty())) return false;
  if (op.results.empty() && op.variable == VarId::none) return false;
  const auto is_inside = [&](FragId id) { return inside.frags.contains(id); };
  if (std::any_of(op.frags.begin(), op.frags.end(), is_inside)) return false;
  for (const kernel::Ref& ref : op.refs) {
    if (inside.written.contains(ref.buffer)) return false;
    for (ExprId id : ref.at)
      if (uses(kernel, id, inside.variables)) return false;
  }
  return std::none_of(op.indices.begin(), op.indices.end(),
                      [&](ExprId id) { return uses(kernel, id, inside.variables); });
}

void forget(const KOp& op, Inside& inside) {
  for (FragId id : op.results) inside.frags.erase(id);
  if (op.variable != VarId::none) inside.variables.erase(op.variable);
}

std::vector<OpId> hoist_body(Kernel& kernel, const std::vector<OpId>& ops, std::vector<OpId>& moved) {
  std::vector<OpId> result;
  for (OpId id : ops) {
    const size_t place = index_of(id);
    for (size_t b = 0; b < kernel.ops[place].bodies.size(); ++b) {
      const std::vector<OpId> inner = hoist_body(kernel, kernel.ops[place].bodies[b].ops, moved);
      kernel.ops[place].bodies[b].ops = inner;
    }
    if (kernel.ops[place].op == Op::loop) {
      Inside inside;
      collect(kernel, kernel.ops[place], inside);
      std::vector<OpId>& body = kernel.ops[place].bodies[0].ops;
      std::vector<OpId> staying;
      for (OpId inner : body) {
        if (invariant(kernel, kernel.op(inner), inside)) {
          forget(kernel.op(inner), inside);
          result.push_back(inner);
          moved.push_back(inner);
        } else {
          staying.push_back(inner);
        }
      }
      body = std::move(staying);
    }
    result.push_back(id);
  }
  return result;
}

std::string* name_of(Kernel& kernel, const KOp& op) {
  if (op.variable != VarId::none) return &kernel.variables[index_of(op.variable)].name;
  return op.results.empty() ? nullptr : &kernel.frags[index_of(op.results[0])].name;
}

// Names are unique where they are seen, and what moved is seen by more: it gets a name that nothing else has.
void rename_moved(Kernel& kernel, const std::vector<OpId>& moved) {
  std::map<std::string, int> uses;
  for (const kernel::Frag& frag : kernel.frags) ++uses[frag.name];
  for (const kernel::Variable& variable : kernel.variables) ++uses[variable.name];
  for (const kernel::Buffer& buffer : kernel.buffers) ++uses[buffer.name];
  std::set<OpId> done;
  for (OpId id : moved) {
    std::string* name = name_of(kernel, kernel.op(id));
    if (!name || !done.insert(id).second || uses[*name] == 1) continue;
    std::string unique;
    for (int i = 2; unique.empty() || uses.contains(unique); ++i) unique = fmt::format("{}_{}", *name, i);
    --uses[*name];
    ++uses[unique];
    *name = unique;
  }
}

}  // namespace

Kernel hoist_invariants(Kernel kernel) {
  std::vector<OpId> moved;
  for (kernel::Role& role : kernel.roles) role.body.ops = hoist_body(kernel, role.body.ops, moved);
  rename_moved(kernel, moved);
  return kernel;
}

}  // namespace stepc
