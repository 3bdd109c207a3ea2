#include "ir/kernel/builder.h"

#include <algorithm>

#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"
#include "ir/support/check.h"
#include "ir/text/names.h"

namespace stepc::kernel {
namespace {

ExprId make(ExprKind kind, Index a, Index b) {
  KernelBuilder* builder = a.builder() ? a.builder() : b.builder();
  return builder->make_expr(kind, a.id(*builder), b.id(*builder));
}

// Constants without a builder are folded with plain arithmetic.
template <class Fold>
Index combine(ExprKind kind, Index a, Index b, Fold fold) {
  if (!a.builder() && !b.builder()) return Index(fold(a.constant(), b.constant()));
  KernelBuilder* builder = a.builder() ? a.builder() : b.builder();
  return Index(builder, make(kind, a, b));
}

int64_t checked_divisor(int64_t divisor) {
  STEPC_CHECK(divisor > 0, "division of an index by {}", divisor);
  return divisor;
}

}  // namespace

bool Index::is_constant() const { return !builder_ || builder_->kernel().expr(id_).kind == ExprKind::constant; }

int64_t Index::constant() const {
  STEPC_CHECK(is_constant(), "an index that is no constant");
  return builder_ ? builder_->kernel().expr(id_).value : constant_;
}

ExprId Index::id(KernelBuilder& builder) const {
  STEPC_CHECK(!builder_ || builder_ == &builder, "an index of another kernel");
  return builder_ ? id_ : builder.make_constant(constant_);
}

Index operator+(Index a, Index b) {
  return combine(ExprKind::add, a, b, [](int64_t x, int64_t y) { return x + y; });
}
Index operator-(Index a, Index b) {
  return combine(ExprKind::sub, a, b, [](int64_t x, int64_t y) { return x - y; });
}
Index operator*(Index a, Index b) {
  return combine(ExprKind::mul, a, b, [](int64_t x, int64_t y) { return x * y; });
}
Index operator/(Index a, Index b) {
  return combine(ExprKind::div, a, b, [](int64_t x, int64_t y) { return floor_div(x, checked_divisor(y)); });
}
Index operator%(Index a, Index b) {
  return combine(ExprKind::rem, a, b, [](int64_t x, int64_t y) { return floor_rem(x, checked_divisor(y)); });
}
Index min(Index a, Index b) {
  return combine(ExprKind::min, a, b, [](int64_t x, int64_t y) { return std::min(x, y); });
}
Index max(Index a, Index b) {
  return combine(ExprKind::max, a, b, [](int64_t x, int64_t y) { return std::max(x, y); });
}
Index less(Index a, Index b) {
  return combine(ExprKind::less, a, b, [](int64_t x, int64_t y) { return static_cast<int64_t>(x < y); });
}
Index equal(Index a, Index b) {
  return combine(ExprKind::equal, a, b, [](int64_t x, int64_t y) { return static_cast<int64_t>(x == y); });
}
Index ceil_div(Index a, int64_t b) { return (a + (b - 1)) / b; }

KernelBuilder::KernelBuilder(std::string name, Target target) {
  kernel_.name = name_from(name);
  kernel_.target = target;
}

// ---- names and declarations ------------------------------------------------------------------------------

std::string KernelBuilder::unique_name(std::string base) {
  base = name_from(base);
  const auto is_taken = [&](const std::string& name) {
    return global_names_.contains(name) ||
           std::any_of(open_.begin(), open_.end(), [&](const OpenBody& body) { return body.names.contains(name); });
  };
  const auto numbered = [&](int i) { return i == 1 ? base : fmt::format("{}_{}", base, i); };
  int i = 1;
  for (const OpenBody& body : open_)
    if (const auto it = body.first_free.find(base); it != body.first_free.end()) i = std::max(i, it->second);
  while (is_taken(numbered(i))) ++i;
  if (!open_.empty()) open_.back().first_free[base] = i;
  return numbered(i);
}

void KernelBuilder::free_name(const std::string& name) {
  OpenBody& body = open_.back();
  STEPC_CHECK(body.names.erase(name) == 1, "%{} is not of the innermost body", name);
  body.first_free.erase(name);
  // name may be base_number.
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == name.size() || digits < 2 || name[digits - 1] != '_' || name.size() - digits > 9) return;
  const auto it = body.first_free.find(name.substr(0, digits - 1));
  if (it != body.first_free.end()) it->second = std::min(it->second, std::max(1, std::stoi(name.substr(digits))));
}

BufferId KernelBuilder::add_buffer(std::string name, Space space, Dtype dtype, Shape shape,
                                   std::vector<int64_t> strides) {
  std::string unique = unique_name(name);
  for (int i = 2; all_names_.contains(unique); ++i) unique = unique_name(fmt::format("{}_{}", name, i));
  global_names_.insert(unique);
  const auto id = static_cast<BufferId>(kernel_.buffers.size());
  Buffer& buffer = kernel_.buffers.emplace_back();
  buffer.name = std::move(unique);
  buffer.space = space;
  buffer.dtype = dtype;
  buffer.shape = std::move(shape);
  buffer.strides = std::move(strides);
  return id;
}

BufferId KernelBuilder::global(std::string name, Dtype dtype, Shape shape, std::vector<int64_t> strides) {
  STEPC_CHECK(kernel_.buffers.empty() || kernel_.buffers.back().space == Space::global, "globals come first");
  return add_buffer(std::move(name), Space::global, dtype, std::move(shape), std::move(strides));
}

BufferId KernelBuilder::shared(std::string name, Dtype dtype, Shape shape, int64_t swizzle_bytes) {
  const BufferId id = add_buffer(std::move(name), Space::shared, dtype, std::move(shape), {});
  kernel_.buffers.back().swizzle_bytes = swizzle_bytes;
  return id;
}

BufferId KernelBuilder::shared_over(std::string name, Dtype dtype, Shape shape, int64_t swizzle_bytes, BufferId over) {
  const BufferId id = shared(std::move(name), dtype, std::move(shape), swizzle_bytes);
  kernel_.buffers.back().over = over;
  return id;
}

BufferId KernelBuilder::tensor_map(std::string name, BufferId global, Shape box, int64_t swizzle_bytes) {
  const Buffer& tensor = kernel_.buffer(global);
  const BufferId id = add_buffer(std::move(name), Space::map, tensor.dtype, tensor.shape, {});
  kernel_.buffers.back().map_of = global;
  kernel_.buffers.back().box = std::move(box);
  kernel_.buffers.back().swizzle_bytes = swizzle_bytes;
  return id;
}

BufferId KernelBuilder::barriers(std::string name, int64_t count, int64_t arrivals) {
  const BufferId id = add_buffer(std::move(name), Space::barrier, Dtype::i32, {count}, {});
  kernel_.buffers.back().arrivals = arrivals;
  return id;
}

VarId KernelBuilder::add_variable(Variable variable) {
  const auto id = static_cast<VarId>(kernel_.variables.size());
  kernel_.variables.push_back(std::move(variable));
  return id;
}

Index KernelBuilder::scalar(std::string name, Range range, int64_t multiple_of) {
  const std::string unique = unique_name(std::move(name));
  global_names_.insert(unique);
  const VarId id = add_variable({unique, range, multiple_of});
  kernel_.scalars.push_back(id);
  return Index(this, simplifier_.variable(id));
}

void KernelBuilder::set_grid(Index tasks) {
  STEPC_CHECK(kernel_.roles.empty() && open_.empty(), "the grid of @{} is set after its first role began",
              kernel_.name);
  kernel_.grid = tasks.id(*this);
}

Index KernelBuilder::task() {
  STEPC_CHECK(kernel_.grid != ExprId::none, "task() of @{} before set_grid()", kernel_.name);
  return Index(this, simplifier_.task());
}

void KernelBuilder::end_role() {
  if (kernel_.roles.empty()) return;
  STEPC_CHECK(open_.size() == 1, "a role of @{} ends inside a loop or branch", kernel_.name);
  kernel_.roles.back().body = close_body({}, {});
}

void KernelBuilder::set_cluster(int64_t tasks) { kernel_.cluster = tasks; }

void KernelBuilder::begin_role(std::string name, int warps, int registers, int copies) {
  STEPC_CHECK(kernel_.grid != ExprId::none, "begin_role() of @{} before set_grid()", kernel_.name);
  end_role();
  Role& role = kernel_.roles.emplace_back();
  role.name = name_from(name);
  role.warps = warps;
  role.registers = registers;
  role.copies = copies;
  if (copies > 1) role.copy = add_variable({"copy", {0, copies - 1}, 1});
  open_body();
}

Index KernelBuilder::copy() {
  STEPC_CHECK(!kernel_.roles.empty(), "copy() of @{} outside a role", kernel_.name);
  const VarId id = kernel_.roles.back().copy;
  return id == VarId::none ? Index(0) : index_of_variable(id);
}

Kernel KernelBuilder::finish() {
  end_role();
  STEPC_CHECK(open_.empty(), "@{} is finished inside a loop or branch", kernel_.name);
  const Status valid = verify(kernel_);
  STEPC_CHECK(valid.has_value(), "{}\n{}", valid.error().text(), print_kernel(kernel_));
  return std::move(kernel_);
}

// ---- ops ---------------------------------------------------------------------------------------------------

FragId KernelBuilder::add_frag(std::string name, Dtype dtype, Shape shape) {
  STEPC_CHECK(!open_.empty(), "an op of @{} outside a role", kernel_.name);
  all_names_.insert(name);
  open_.back().names.insert(name);
  const auto id = static_cast<FragId>(kernel_.frags.size());
  kernel_.frags.push_back({std::move(name), dtype, std::move(shape)});
  return id;
}

OpId KernelBuilder::append(KOp op) {
  STEPC_CHECK(!open_.empty(), "{} of @{} outside a role", op_info(op.op).name, kernel_.name);
  const auto id = static_cast<OpId>(kernel_.ops.size());
  kernel_.ops.push_back(std::move(op));
  open_.back().ops.push_back(id);
  return id;
}

Value KernelBuilder::emit_frag(KOp op, Dtype dtype, Shape shape, std::string_view hint) {
  const FragId id = add_frag(unique_name(std::string(hint)), dtype, std::move(shape));
  op.results = {id};
  append(std::move(op));
  return {id};
}

Value KernelBuilder::named(std::string name, Value value) {
  std::string& current = kernel_.frags[stepc::kernel::index_of(value.id)].name;
  free_name(current);
  current = unique_name(std::move(name));
  all_names_.insert(current);
  open_.back().names.insert(current);
  return value;
}

std::vector<ExprId> KernelBuilder::ids(const std::vector<Index>& indices) {
  std::vector<ExprId> result;
  for (const Index& index : indices) result.push_back(index.id(*this));
  return result;
}

Ref KernelBuilder::ref(BufferId buffer, std::vector<Index> at) {
  STEPC_CHECK(at.size() == kernel_.buffer(buffer).shape.size(), "%{} has {} dimensions, not {}",
              kernel_.buffer(buffer).name, kernel_.buffer(buffer).shape.size(), at.size());
  return {buffer, ids(at)};
}

Index KernelBuilder::name(std::string name, Index value) {
  if (value.is_constant()) return value;
  const ExprId id = value.id(*this);
  const std::string unique = unique_name(std::move(name));
  all_names_.insert(unique);
  open_.back().names.insert(unique);
  const VarId variable = add_variable(index_variable(kernel_, unique, id));
  append({.op = Op::index, .indices = {id}, .variable = variable});
  return index_of_variable(variable);
}

// ---- loops and branches ---------------------------------------------------------------------------------------

Body KernelBuilder::close_body(std::vector<FragId> carried, const std::vector<Value>& yielded) {
  if (!yielded.empty()) {
    KOp yield{.op = Op::yield};
    for (Value value : yielded) yield.frags.push_back(value.id);
    append(std::move(yield));
  }
  Body body{std::move(carried), std::move(open_.back().ops)};
  open_.pop_back();
  return body;
}

// Appends a loop or branch whose bodies are complete, with results of the types of `like`.
std::vector<Value> KernelBuilder::finish_results(KOp op, const std::vector<Value>& like, std::string_view suffix) {
  std::vector<Value> results;
  for (Value value : like) {
    const Frag frag = kernel_.frag(value.id);
    op.results.push_back(add_frag(unique_name(frag.name + std::string(suffix)), frag.dtype, frag.shape));
    results.push_back({op.results.back()});
  }
  append(std::move(op));
  return results;
}

std::vector<Value> KernelBuilder::loop(
    std::string name, Index low, Index high, Index step, std::vector<Value> initial,
    const std::function<std::vector<Value>(Index, const std::vector<Value>&)>& body) {
  STEPC_CHECK(range(step.id(*this)).low > 0, "the step of loop %{} may be {}", name, range(step.id(*this)).low);
  const Range span = range((high - low).id(*this));
  if (span.high <= 0) return initial;
  const bool one_turn = span.low > 0 && span.high <= range(step.id(*this)).low;
  if (one_turn) return body(low, initial);

  open_body();
  std::string unique = unique_name(std::move(name));
  open_.back().names.insert(unique);
  all_names_.insert(unique);
  KOp op{.op = Op::loop, .indices = ids({low, high, step})};
  op.variable = add_variable(loop_variable(kernel_, unique, op.indices[0], op.indices[1], op.indices[2]));
  std::vector<FragId> carried;
  std::vector<Value> carried_values;
  for (Value value : initial) {
    const Frag frag = kernel_.frag(value.id);
    op.frags.push_back(value.id);
    carried.push_back(add_frag(unique_name(frag.name), frag.dtype, frag.shape));
    carried_values.push_back({carried.back()});
  }
  const std::vector<Value> next = body(index_of_variable(op.variable), carried_values);
  STEPC_CHECK(next.size() == initial.size(), "loop %{} carries {} values, its body returns {}", unique, initial.size(),
              next.size());
  op.bodies.push_back(close_body(std::move(carried), next));
  return finish_results(std::move(op), initial, "_end");
}

void KernelBuilder::loop(std::string name, Index low, Index high, Index step, const std::function<void(Index)>& body) {
  loop(std::move(name), low, high, step, {}, [&](Index i, const std::vector<Value>&) {
    body(i);
    return std::vector<Value>{};
  });
}

std::vector<Value> KernelBuilder::branch(Index condition, const std::function<std::vector<Value>()>& then_body,
                                         const std::function<std::vector<Value>()>& else_body) {
  if (condition.is_constant()) return condition.constant() != 0 ? then_body() : else_body();
  KOp op{.op = Op::branch, .indices = ids({condition})};
  open_body();
  const std::vector<Value> results = then_body();
  op.bodies.push_back(close_body({}, results));
  open_body();
  const std::vector<Value> others = else_body();
  STEPC_CHECK(results.size() == others.size(), "a branch gives {} values, its other body {}", results.size(),
              others.size());
  op.bodies.push_back(close_body({}, others));
  return finish_results(std::move(op), results, "_either");
}

void KernelBuilder::once(const std::function<void()>& body) {
  KOp op{.op = Op::once};
  open_body();
  body();
  op.bodies.push_back(close_body({}, {}));
  append(std::move(op));
}

void KernelBuilder::when(Index condition, const std::function<void()>& body) {
  if (condition.is_constant()) {
    if (condition.constant() != 0) body();
    return;
  }
  KOp op{.op = Op::branch, .indices = ids({condition})};
  open_body();
  body();
  op.bodies.push_back(close_body({}, {}));
  append(std::move(op));
}

}  // namespace stepc::kernel
