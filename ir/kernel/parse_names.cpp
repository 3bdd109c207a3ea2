#include "ir/kernel/parse_names.h"

#include "ir/text/names.h"

namespace stepc::kernel {
namespace {

// Of one expression: everything that walks it recurses.
constexpr int kMaxNesting = 64;
constexpr int kMaxOperators = 256;

std::optional<ExprKind> function_named(std::string_view name) {
  if (name == "min") return ExprKind::min;
  if (name == "max") return ExprKind::max;
  if (name == "less") return ExprKind::less;
  if (name == "equal") return ExprKind::equal;
  return std::nullopt;
}

}  // namespace

std::optional<NamedThing> Names::find(std::string_view name) const {
  const std::string key(name);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(key); found != scope->end()) return found->second;
  return std::nullopt;
}

bool Names::define(std::string_view name, NamedThing thing) {
  if (find(name)) return false;
  scopes_.back().emplace(name, thing);
  return true;
}

std::string Names::suggestion(std::string_view wanted) const {
  std::vector<std::string_view> candidates;
  for (const auto& scope : scopes_)
    for (const auto& [name, thing] : scope) candidates.push_back(name);
  std::sort(candidates.begin(), candidates.end());
  return did_you_mean(wanted, candidates);
}

std::string described(std::string_view name, NamedThing thing) {
  const bool is_buffer = std::holds_alternative<BufferId>(thing);
  const bool is_variable = std::holds_alternative<VarId>(thing);
  return fmt::format("the {} %{}", is_buffer ? "buffer" : is_variable ? "index" : "fragment", name);
}

Result<ExprId> IndexParser::parse() {
  operators_ = 0;
  return binary(1, 0);
}

std::optional<ExprKind> IndexParser::operator_at(int precedence) const {
  if (precedence == 1) {
    if (reader_.at("+")) return ExprKind::add;
    if (reader_.at("-")) return ExprKind::sub;
    return std::nullopt;
  }
  if (reader_.at("*")) return ExprKind::mul;
  if (reader_.at("/")) return ExprKind::div;
  if (reader_.peek().kind == Token::Kind::invalid && reader_.peek().text == kLonePercent) return ExprKind::rem;
  return std::nullopt;
}

Result<ExprId> IndexParser::binary(int precedence, int depth) {
  const auto operand = [&] { return precedence == 1 ? binary(2, depth) : primary(depth); };
  STEPC_ASSIGN(ExprId left, operand());
  while (const auto kind = operator_at(precedence)) {
    if (++operators_ > kMaxOperators)
      return user_error_at(reader_.here(), "expected at most {} operators in an index expression", kMaxOperators);
    reader_.take();
    STEPC_ASSIGN(const ExprId right, operand());
    left = pool_.intern({.kind = *kind, .a = left, .b = right});
  }
  return left;
}

Result<ExprId> IndexParser::call(ExprKind kind, int depth) {
  const std::string name(reader_.take().text);
  STEPC_TRY(reader_.expect("(", name));
  STEPC_ASSIGN(const ExprId a, binary(1, depth + 1));
  STEPC_TRY(reader_.expect(",", "the first of two indices"));
  STEPC_ASSIGN(const ExprId b, binary(1, depth + 1));
  STEPC_TRY(reader_.expect(")", "two indices"));
  return pool_.intern({.kind = kind, .a = a, .b = b});
}

Result<ExprId> IndexParser::named_variable() {
  const Token token = reader_.peek();
  const auto thing = names_.find(token.text);
  if (!thing) return user_error_at(reader_.here(), "unknown index %{}{}", token.text, names_.suggestion(token.text));
  const VarId* variable = std::get_if<VarId>(&*thing);
  if (!variable) return user_error_at(reader_.here(), "expected an index, found {}", described(token.text, *thing));
  reader_.take();
  return pool_.intern({.kind = ExprKind::variable, .variable = *variable});
}

Result<ExprId> IndexParser::primary(int depth) {
  if (depth > kMaxNesting)
    return user_error_at(reader_.here(), "expected at most {} levels of parentheses in an index", kMaxNesting);
  const Token& token = reader_.peek();
  if (token.kind == Token::Kind::value) return named_variable();
  if (token.kind == Token::Kind::number || reader_.at("-")) {
    STEPC_ASSIGN(const int64_t value, reader_.integer("an integer"));
    return constant(value);
  }
  if (reader_.accept("(")) {
    STEPC_ASSIGN(const ExprId inner, binary(1, depth + 1));
    STEPC_TRY(reader_.expect(")", "an index"));
    return inner;
  }
  if (reader_.accept("task")) return pool_.intern({.kind = ExprKind::task});
  if (reader_.at("copy")) {
    if (copy_ == VarId::none) return user_error_at(reader_.here(), "`copy` in a role without copies");
    reader_.take();
    return pool_.intern({.kind = ExprKind::variable, .variable = copy_});
  }
  if (token.kind == Token::Kind::word)
    if (const auto kind = function_named(token.text)) return call(*kind, depth);
  return reader_.expected("an index");
}

}  // namespace stepc::kernel
