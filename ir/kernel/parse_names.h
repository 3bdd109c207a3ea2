// Names and index expressions for the kernel parser.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ir/kernel/index_simplify.h"
#include "ir/kernel/kernel.h"
#include "ir/text/lexer.h"

namespace stepc::kernel {

using NamedThing = std::variant<BufferId, VarId, FragId>;

// Names seen from a place in the text: of the kernel, then of each body around it. A name may be used again
// only where the first is out of sight.
class Names {
 public:
  Names() : scopes_(1) {}
  void open() { scopes_.emplace_back(); }
  void close() { scopes_.pop_back(); }
  size_t depth() const { return scopes_.size(); }
  std::optional<NamedThing> find(std::string_view name) const;
  // False if the name is taken.
  bool define(std::string_view name, NamedThing thing);
  // "; did you mean '%x'?" or "".
  std::string suggestion(std::string_view wanted) const;

 private:
  std::vector<std::unordered_map<std::string, NamedThing>> scopes_;
};

// "the buffer %x"
std::string described(std::string_view name, NamedThing thing);

// Index expressions: + - * / % with their usual precedence, min(,), max(,), less(,), equal(,), integers,
// index variables, and the words `task` and `copy`.
class IndexParser {
 public:
  IndexParser(TokenReader& reader, const Names& names, std::vector<Expr>& exprs)
      : reader_(reader), names_(names), pool_(exprs) {}
  Result<ExprId> parse();
  ExprId constant(int64_t value) { return pool_.intern({.kind = ExprKind::constant, .value = value}); }
  void set_copy(VarId copy) { copy_ = copy; }  // what `copy` means in the role that follows

 private:
  Result<ExprId> binary(int precedence, int depth);
  Result<ExprId> primary(int depth);
  Result<ExprId> call(ExprKind kind, int depth);
  Result<ExprId> named_variable();
  std::optional<ExprKind> operator_at(int precedence) const;

  TokenReader& reader_;
  const Names& names_;
  ExprPool pool_;
  VarId copy_ = VarId::none;
  int operators_ = 0;
};

}  // namespace stepc::kernel
