#include <algorithm>

#include "ir/kernel/index_facts.h"
#include "ir/kernel/parse_state.h"
#include "ir/text/names.h"

namespace stepc::kernel {
namespace {

constexpr size_t kMaxBodyDepth = 64;

std::string joined(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::string_view name : names) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text.empty() ? "none" : text;
}

// Ops that have a form of their own in the text.
bool has_own_form(Op op) {
  return op == Op::index || op == Op::load_index || op == Op::to_index || op == Op::loop || op == Op::branch ||
         op == Op::once;
}

std::vector<std::string_view> op_names() {
  std::vector<std::string_view> names;
#define KOP(name, ...) names.push_back(#name);
#include "ir/kernel/kernel_ops.def"
#undef KOP
  std::erase_if(names, [](std::string_view name) { return has_own_form(*op_from_name(name)); });
  return names;
}

}  // namespace

OpId ParseState::add(KOp op) {
  kernel.ops.push_back(std::move(op));
  return static_cast<OpId>(kernel.ops.size() - 1);
}

// ---- operands ----------------------------------------------------------------------------------------------------

Result<FragId> ParseState::frag() {
  const Token token = reader.peek();
  if (token.kind != Token::Kind::value) return reader.expected("a fragment");
  const auto thing = names.find(token.text);
  if (!thing) return user_error_at(reader.here(), "unknown fragment %{}{}", token.text, names.suggestion(token.text));
  const FragId* id = std::get_if<FragId>(&*thing);
  if (!id) return user_error_at(reader.here(), "expected a fragment, found {}", described(token.text, *thing));
  reader.take();
  return *id;
}

Result<Ref> ParseState::ref() {
  const Token token = reader.peek();
  if (token.kind != Token::Kind::value) return reader.expected("a place in a buffer");
  const auto thing = names.find(token.text);
  if (!thing) return user_error_at(reader.here(), "unknown buffer %{}{}", token.text, names.suggestion(token.text));
  const BufferId* id = std::get_if<BufferId>(&*thing);
  if (!id) return user_error_at(reader.here(), "expected a buffer, found {}", described(token.text, *thing));
  reader.take();
  Ref place{*id, {}};
  STEPC_TRY(reader.expect("[", fmt::format("the buffer %{}", token.text)));
  if (reader.accept("]")) return place;
  do {
    STEPC_ASSIGN(const ExprId at, indices.parse());
    place.at.push_back(at);
  } while (reader.accept(","));
  STEPC_TRY(reader.expect("]", "an index"));
  return place;
}

Status ParseState::operand(KOp& op, OperandKind kind) {
  switch (kind) {
    case OperandKind::frag:
    case OperandKind::list_frag: {
      STEPC_ASSIGN(const FragId id, frag());
      op.frags.push_back(id);
      return {};
    }
    case OperandKind::index:
    case OperandKind::opt_index: {
      STEPC_ASSIGN(const ExprId id, indices.parse());
      op.indices.push_back(id);
      return {};
    }
    case OperandKind::ref:
    case OperandKind::map:
    case OperandKind::bar: {
      STEPC_ASSIGN(Ref place, ref());
      op.refs.push_back(std::move(place));
      return {};
    }
  }
  return {};
}

Status ParseState::operands(KOp& op) {
  bool is_first = true;
  for (OperandKind kind : op_info(op.op).operands) {
    if (kind == OperandKind::list_frag) {
      if (is_first ? reader.peek().kind != Token::Kind::value : !reader.accept(",")) return {};
      do STEPC_TRY(operand(op, kind));
      while (reader.accept(","));
      return {};
    }
    if (kind == OperandKind::opt_index && !reader.accept(",")) return {};
    if (kind != OperandKind::opt_index && !is_first) STEPC_TRY(reader.expect(",", "an operand"));
    STEPC_TRY(operand(op, kind));
    is_first = false;
  }
  return {};
}

Result<AttrValue> ParseState::attr_value(AttrKind kind) {
  switch (kind) {
    case AttrKind::flag:
      if (reader.accept("true")) return AttrValue(true);
      if (reader.accept("false")) return AttrValue(false);
      return reader.expected("true or false");
    case AttrKind::integer: {
      STEPC_ASSIGN(const int64_t value, reader.integer("an integer"));
      return AttrValue(value);
    }
    case AttrKind::real: {
      STEPC_ASSIGN(const double value, reader.real("a number"));
      return AttrValue(value);
    }
    case AttrKind::integers: {
      STEPC_ASSIGN(std::vector<int64_t> list, integers("="));
      return AttrValue(std::move(list));
    }
    case AttrKind::text: break;
  }
  STEPC_ASSIGN(std::string text, reader.string("a string"));
  return AttrValue(std::move(text));
}

// In the order of the table whatever the order of the text.
Status ParseState::attrs(KOp& op) {
  if (!reader.accept("{")) return {};
  const std::vector<std::string_view>& known = op_info(op.op).attrs;
  do {
    const Location where = reader.here();
    STEPC_ASSIGN(const Token name, reader.expect_kind(Token::Kind::word, "an attribute"));
    if (std::find(known.begin(), known.end(), name.text) == known.end())
      return user_error_at(where, "{} has no attribute '{}'; it takes {}", op_info(op.op).name, name.text,
                           joined(known));
    if (find_attr(op, name.text)) return user_error_at(where, "attribute '{}' is given twice", name.text);
    STEPC_TRY(reader.expect("=", name.text));
    STEPC_ASSIGN(AttrValue value, attr_value(attr_kind(name.text)));
    op.attrs.push_back({std::string(name.text), std::move(value)});
  } while (reader.accept(","));
  STEPC_TRY(reader.expect("}", "attributes"));
  const auto rank = [&](const Attr& attr) { return std::find(known.begin(), known.end(), attr.name); };
  std::sort(op.attrs.begin(), op.attrs.end(), [&](const Attr& a, const Attr& b) { return rank(a) < rank(b); });
  return {};
}

// ---- results -------------------------------------------------------------------------------------------------------

Result<ParseState::Pending> ParseState::typed_frag() {
  STEPC_ASSIGN(const Token name, reader.expect_kind(Token::Kind::value, "the %name of a fragment"));
  STEPC_TRY(reader.expect(":", "a name"));
  STEPC_ASSIGN(auto declared, type());
  const auto id = static_cast<FragId>(kernel.frags.size());
  kernel.frags.push_back({std::string(name.text), declared.first, std::move(declared.second)});
  return Pending{name, id};
}

Result<std::vector<ParseState::Pending>> ParseState::arrow_results() {
  std::vector<Pending> results;
  if (!reader.accept("->")) return results;
  STEPC_TRY(reader.expect("(", "'->'"));
  do {
    STEPC_ASSIGN(const Pending result, typed_frag());
    results.push_back(result);
  } while (reader.accept(","));
  STEPC_TRY(reader.expect(")", "results"));
  return results;
}

Status ParseState::finish_results(KOp& op, const std::vector<Pending>& results) {
  for (const Pending& result : results) {
    STEPC_TRY(define(result.name, result.id));
    op.results.push_back(result.id);
  }
  return {};
}

// ---- ops and bodies
// ----------------------------------------------------------------------------------------------------

Status ParseState::body(Body& into, const std::vector<std::pair<Token, NamedThing>>& first) {
  if (names.depth() > kMaxBodyDepth)
    return user_error_at(reader.here(), "expected at most {} levels of bodies", kMaxBodyDepth);
  names.open();
  for (const auto& [name, thing] : first) STEPC_TRY(define(name, thing));
  while (!reader.accept("}")) {
    if (reader.at_end()) return reader.expected("an operation or '}'");
    STEPC_ASSIGN(const OpId id, statement());
    into.ops.push_back(id);
  }
  names.close();
  return {};
}

Result<OpId> ParseState::statement() {
  const Location where = reader.here();
  if (reader.accept("for")) return loop(where);
  if (reader.accept("if")) return branch(where);
  if (reader.accept("once")) return once(where);
  if (reader.peek().kind == Token::Kind::word) return plain_op({}, where);
  if (reader.peek().kind != Token::Kind::value) return reader.expected("an operation or '}'");
  if (reader.peek(2).text == "index" && reader.peek(2).kind == Token::Kind::word) {
    const Token name = reader.take();
    STEPC_TRY(reader.expect(":", "a name"));
    reader.take();
    STEPC_TRY(reader.expect("=", "index"));
    return index_op(name, where);
  }
  std::vector<Pending> results;
  do {
    STEPC_ASSIGN(const Pending result, typed_frag());
    results.push_back(result);
  } while (reader.accept(","));
  STEPC_TRY(reader.expect("=", "the results' types"));
  return plain_op(results, where);
}

Result<OpId> ParseState::index_op(const Token& name, const Location& where) {
  KOp op{.op = Op::index, .where = where};
  if (reader.accept("load_index"))
    op.op = Op::load_index;
  else if (reader.accept("to_index"))
    op.op = Op::to_index;
  STEPC_TRY(operands(op));
  STEPC_TRY(attrs(op));
  Variable variable{std::string(name.text), {}, 1};
  if (op.op != Op::index)
    variable.range = {integer_attr(op, "low", INT32_MIN), integer_attr(op, "high", INT32_MAX)};
  else
    variable = index_variable(kernel, variable.name, op.indices[0]);
  op.variable = static_cast<VarId>(kernel.variables.size());
  kernel.variables.push_back(std::move(variable));
  STEPC_TRY(define(name, op.variable));
  return add(std::move(op));
}

Result<OpId> ParseState::plain_op(const std::vector<Pending>& results, Location where) {
  const Token token = reader.peek();
  const auto known = op_from_name(token.text);
  if (token.kind != Token::Kind::word) return reader.expected("an operation");
  if (!known || has_own_form(*known))
    return user_error_at(reader.here(), "unknown operation '{}'{}", token.text,
                         known ? "" : did_you_mean(token.text, op_names()));
  reader.take();
  KOp op{.op = *known, .where = std::move(where)};
  STEPC_TRY(operands(op));
  STEPC_TRY(attrs(op));
  STEPC_TRY(finish_results(op, results));
  return add(std::move(op));
}

Result<OpId> ParseState::loop(const Location& where) {
  KOp op{.op = Op::loop, .where = where};
  STEPC_ASSIGN(const Token name, reader.expect_kind(Token::Kind::value, "the %name of a loop's index"));
  STEPC_TRY(reader.expect("=", "the loop's index"));
  STEPC_ASSIGN(const ExprId low, indices.parse());
  STEPC_TRY(reader.expect(".", "the first index"));
  STEPC_TRY(reader.expect(".", "the first index"));
  STEPC_ASSIGN(const ExprId high, indices.parse());
  ExprId step = indices.constant(1);
  if (reader.accept("step")) {
    STEPC_ASSIGN(step, indices.parse());
  }
  op.indices = {low, high, step};
  std::vector<std::pair<Token, NamedThing>> first;
  op.bodies.emplace_back();
  if (reader.accept("carry")) {
    STEPC_TRY(reader.expect("(", "carry"));
    do {
      STEPC_ASSIGN(const Pending inside, typed_frag());
      STEPC_TRY(reader.expect("=", "a carried fragment"));
      STEPC_ASSIGN(const FragId initial, frag());
      first.emplace_back(inside.name, inside.id);
      op.bodies[0].carried.push_back(inside.id);
      op.frags.push_back(initial);
    } while (reader.accept(","));
    STEPC_TRY(reader.expect(")", "carried fragments"));
  }
  STEPC_ASSIGN(const std::vector<Pending> results, arrow_results());
  op.variable = static_cast<VarId>(kernel.variables.size());
  kernel.variables.push_back(loop_variable(kernel, std::string(name.text), low, high, step));
  first.insert(first.begin(), {name, op.variable});
  STEPC_TRY(reader.expect("{", "the head of a loop"));
  STEPC_TRY(body(op.bodies[0], first));
  STEPC_TRY(finish_results(op, results));
  return add(std::move(op));
}

Result<OpId> ParseState::branch(const Location& where) {
  KOp op{.op = Op::branch, .where = where};
  STEPC_ASSIGN(const ExprId condition, indices.parse());
  op.indices = {condition};
  STEPC_ASSIGN(const std::vector<Pending> results, arrow_results());
  STEPC_TRY(reader.expect("{", "a condition"));
  STEPC_TRY(body(op.bodies.emplace_back(), {}));
  if (reader.accept("else")) {
    STEPC_TRY(reader.expect("{", "else"));
    STEPC_TRY(body(op.bodies.emplace_back(), {}));
  }
  STEPC_TRY(finish_results(op, results));
  return add(std::move(op));
}

Result<OpId> ParseState::once(const Location& where) {
  KOp op{.op = Op::once, .where = where};
  STEPC_TRY(reader.expect("{", "once"));
  STEPC_TRY(body(op.bodies.emplace_back(), {}));
  return add(std::move(op));
}

}  // namespace stepc::kernel
