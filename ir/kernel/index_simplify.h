// Makes index expressions in canonical form. Equal expressions are one node; sums are sorted linear
// combinations; divisions and remainders by constants are taken apart as far as ranges and multiples prove
// right, so that "(task * 64 + i) % 64" with 0 <= i < 64 is i.
//
// Arithmetic is that of the integers: an expression whose constants do not fit 64 bits is a bug (CHECK).
#pragma once

#include <unordered_map>

#include "ir/kernel/index_facts.h"
#include "ir/kernel/kernel.h"

namespace stepc::kernel {

struct ExprHash {
  size_t operator()(const Expr& expr) const;
};

// Adds expressions to a kernel's pool, each once, as they are written.
class ExprPool {
 public:
  explicit ExprPool(std::vector<Expr>& exprs) : exprs_(exprs) {}
  ExprId intern(const Expr& expr);

 private:
  std::vector<Expr>& exprs_;
  std::unordered_map<Expr, ExprId, ExprHash> ids_;
};

// Adds expressions to a kernel's pool in canonical form. The ranges of variables and the grid must be set
// before they are used in an expression.
class IndexSimplifier {
 public:
  explicit IndexSimplifier(Kernel& kernel) : kernel_(kernel), pool_(kernel.exprs) {}

  ExprId constant(int64_t value);
  ExprId variable(VarId id);
  ExprId task();
  ExprId make(ExprKind kind, ExprId a, ExprId b);

 private:
  struct Split {
    Linear multiple;  // divided by the divisor
    Linear rest;
  };
  std::optional<int64_t> value_of(ExprId id) const;
  bool is_exact_division(const Expr& expr) const;
  ExprId node(ExprKind kind, ExprId a, ExprId b);
  ExprId from_linear(Linear sum);
  bool recombine(Linear& sum);
  ExprId scaled(ExprId atom, int64_t coefficient);
  ExprId product(ExprId a, ExprId b);
  ExprId divide(ExprId a, ExprId b);
  ExprId take_remainder(ExprId a, ExprId b);
  ExprId quotient(const Linear& sum, int64_t divisor);
  ExprId remainder(Linear sum, int64_t divisor);
  std::optional<ExprId> coarser_quotient(const Linear& rest, int64_t divisor);
  std::optional<ExprId> coarser_remainder(const Linear& rest, int64_t divisor);
  std::optional<ExprId> common_quotient(const Linear& rest, int64_t divisor);
  std::optional<ExprId> nested_quotient(const Linear& rest, int64_t divisor);
  bool unwrap_remainders(Linear& sum, int64_t divisor);
  void drop_multiples(Linear& sum, int64_t divisor) const;
  Split split(const Linear& sum, int64_t divisor);
  ExprId extreme(ExprKind kind, ExprId a, ExprId b);
  ExprId compare(ExprKind kind, ExprId a, ExprId b);

  Kernel& kernel_;
  ExprPool pool_;
};

}  // namespace stepc::kernel
