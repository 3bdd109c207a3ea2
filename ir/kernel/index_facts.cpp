#include "ir/kernel/index_facts.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

constexpr int64_t kNoLow = INT64_MIN;
constexpr int64_t kNoHigh = INT64_MAX;
constexpr bool is_known(int64_t bound) { return bound != kNoLow && bound != kNoHigh; }

int64_t saturating_mul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  const int64_t infinite = (a < 0) == (b < 0) ? kNoHigh : kNoLow;
  int64_t product = 0;
  if (!is_known(a) || !is_known(b) || __builtin_mul_overflow(a, b, &product)) return infinite;
  return product;
}

// `unknown` is what the sum is when a part of it has no bound.
int64_t saturating_add(int64_t a, int64_t b, int64_t unknown) {
  int64_t sum = 0;
  if (a == unknown || b == unknown || __builtin_add_overflow(a, b, &sum)) return unknown;
  return sum;
}

// Adds scale * (expression) to `sum`, whose terms need not be sorted yet; false on overflow.
bool accumulate(const Kernel& kernel, ExprId id, int64_t scale, Linear& sum) {
  const Expr& expr = kernel.expr(id);
  int64_t product = 0;
  if (expr.kind == ExprKind::constant)
    return !__builtin_mul_overflow(expr.value, scale, &product) &&
           !__builtin_add_overflow(sum.constant, product, &sum.constant);
  if (expr.kind == ExprKind::add || expr.kind == ExprKind::sub) {
    if (expr.kind == ExprKind::sub && scale == INT64_MIN) return false;
    return accumulate(kernel, expr.a, scale, sum) &&
           accumulate(kernel, expr.b, expr.kind == ExprKind::sub ? -scale : scale, sum);
  }
  if (expr.kind == ExprKind::mul) {
    const Expr& a = kernel.expr(expr.a);
    const Expr& b = kernel.expr(expr.b);
    if (b.kind == ExprKind::constant)
      return !__builtin_mul_overflow(b.value, scale, &product) && accumulate(kernel, expr.a, product, sum);
    if (a.kind == ExprKind::constant)
      return !__builtin_mul_overflow(a.value, scale, &product) && accumulate(kernel, expr.b, product, sum);
  }
  sum.terms.push_back({id, scale});
  return true;
}

// Sorts terms and merges those of one atom; false on overflow.
bool normalize(Linear& sum) {
  std::sort(sum.terms.begin(), sum.terms.end(), [](const auto& a, const auto& b) { return a.atom < b.atom; });
  std::vector<Linear::Term> merged;
  for (const Linear::Term& term : sum.terms) {
    if (merged.empty() || merged.back().atom != term.atom)
      merged.push_back(term);
    else if (__builtin_add_overflow(merged.back().coefficient, term.coefficient, &merged.back().coefficient))
      return false;
  }
  std::erase_if(merged, [](const Linear::Term& term) { return term.coefficient == 0; });
  sum.terms = std::move(merged);
  return true;
}

Range product_range(Range a, Range b) {
  const auto [low, high] = std::minmax({saturating_mul(a.low, b.low), saturating_mul(a.low, b.high),
                                        saturating_mul(a.high, b.low), saturating_mul(a.high, b.high)});
  return {low, high};
}

Range quotient_range(Range a, Range b) {
  if (b.low < 1) return {};
  const auto divide = [](int64_t x, int64_t divisor) { return is_known(x) ? floor_div(x, divisor) : x; };
  return {divide(a.low, a.low < 0 ? b.low : b.high), divide(a.high, a.high < 0 ? b.high : b.low)};
}

Range remainder_range(Range a, Range b) {
  if (b.low < 1) return {};
  if (a.low >= 0 && a.high < b.low) return a;
  const int64_t high = b.high == kNoHigh ? kNoHigh : b.high - 1;
  return {0, a.low >= 0 ? std::min(a.high, high) : high};
}

Range task_range(const Kernel& kernel) {
  if (kernel.grid == ExprId::none) return {0, kNoHigh};
  const int64_t tasks = range_of(kernel, kernel.grid).high;
  return {0, tasks == kNoHigh ? kNoHigh : std::max<int64_t>(tasks - 1, 0)};
}

Range sum_range(Range a, Range b) {
  return {saturating_add(a.low, b.low, kNoLow), saturating_add(a.high, b.high, kNoHigh)};
}

Range difference_range(Range a, Range b) { return sum_range(a, product_range(b, {-1, -1})); }

// The least or the greatest value of a loop's variable, as a sum.
std::optional<Linear> loop_bound(const Kernel& kernel, const KOp& loop, bool upper) {
  const Linear low = linear_of(kernel, loop.indices[0]);
  if (!upper) return low;
  const Linear high = linear_of(kernel, loop.indices[1]);
  const auto span = add_scaled(high, low, -1);
  const Expr& step = kernel.expr(loop.indices[2]);
  const bool whole_turns =
      span && step.kind == ExprKind::constant && step.value > 0 && multiple_of(kernel, *span) % step.value == 0;
  return add_scaled(high, Linear{whole_turns ? step.value : 1, {}}, -1);
}

// Ranges with or without definitions, looking `depth` steps into what bounds a sum.
class Ranger {
 public:
  Ranger(const Kernel& kernel, const Definitions* definitions) : kernel_(kernel), definitions_(definitions) {}

  Range sum(const Linear& sum, int depth) const {
    Range range;
    range.high = upper_bound(sum, depth);
    if (const auto negated = add_scaled({}, sum, -1)) {
      const int64_t bound = upper_bound(*negated, depth);
      range.low = is_known(bound) ? -bound : kNoLow;
    }
    return range;
  }

  Range expr(ExprId id, int depth) const {
    const Expr& expr = kernel_.expr(id);
    const bool is_sum = expr.kind == ExprKind::add || expr.kind == ExprKind::sub;
    return is_sum && depth > 0 ? sum(linear_of(kernel_, id), depth - 1) : node(expr, depth);
  }

 private:
  // By the operands' ranges alone.
  Range node(const Expr& expr, int depth) const;
  std::vector<Linear> bounding_sums(const Linear::Term& term, int depth) const;
  std::vector<Linear> division_bounds(const Expr& expr, const Linear::Term& term) const;
  int64_t upper_bound(const Linear& sum, int depth) const;
  int64_t search_upper_bound(const Linear& sum, int depth) const;

  const Kernel& kernel_;
  const Definitions* definitions_;
  mutable std::map<std::vector<int64_t>, int64_t> bounds_;  // upper_bound's answers
};

Range Ranger::node(const Expr& node, int depth) const {
  switch (node.kind) {
    case ExprKind::constant: return {node.value, node.value};
    case ExprKind::variable: return kernel_.variables[index_of(node.variable)].range;
    case ExprKind::task: return task_range(kernel_);
    case ExprKind::less:
    case ExprKind::equal: return {0, 1};
    case ExprKind::add:
    case ExprKind::sub:
    case ExprKind::mul:
    case ExprKind::div:
    case ExprKind::rem:
    case ExprKind::min:
    case ExprKind::max: break;
  }
  const Range a = expr(node.a, depth);
  const Range b = expr(node.b, depth);
  switch (node.kind) {
    case ExprKind::add: return sum_range(a, b);
    case ExprKind::sub: return difference_range(a, b);
    case ExprKind::mul: return product_range(a, b);
    case ExprKind::div: return quotient_range(a, b);
    case ExprKind::rem: {
      Range range = remainder_range(a, b);
      const int64_t multiple = std::gcd(multiple_of(kernel_, node.a), multiple_of(kernel_, node.b));
      if (multiple > 1 && is_known(range.high)) range.high = floor_div(range.high, multiple) * multiple;
      return range;
    }
    case ExprKind::min: return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case ExprKind::max: return {std::max(a.low, b.low), std::max(a.high, b.high)};
    case ExprKind::constant:
    case ExprKind::variable:
    case ExprKind::task:
    case ExprKind::less:
    case ExprKind::equal: break;
  }
  STEPC_UNREACHABLE("expression kind {}", static_cast<int>(node.kind));
}

// k * c * (y / c) lies in k * (y - c + 1) .. k * y; the one of them that bounds the term from above.
std::vector<Linear> Ranger::division_bounds(const Expr& node, const Linear::Term& term) const {
  const Expr& divisor = kernel_.expr(node.b);
  if (divisor.kind != ExprKind::constant || divisor.value <= 0 || term.coefficient % divisor.value != 0) return {};
  const Linear whole = linear_of(kernel_, node.a);
  const int64_t slack = term.coefficient > 0 ? 0 : 1 - divisor.value;
  const auto bound = add_scaled(whole, Linear{slack, {}}, 1);
  const auto scaled = bound ? add_scaled({}, *bound, term.coefficient / divisor.value) : std::nullopt;
  return scaled ? std::vector<Linear>{*scaled} : std::vector<Linear>{};
}

// Sums that bound this term of a sum from above. Each is tried in the term's place, where it may cancel
// against others.
std::vector<Linear> Ranger::bounding_sums(const Linear::Term& term, int depth) const {
  const Expr& atom = kernel_.expr(term.atom);
  const bool upper = term.coefficient > 0;
  std::vector<Linear> bounds;
  const auto add = [&](const Linear& bound) {
    if (auto scaled = add_scaled({}, bound, term.coefficient)) bounds.push_back(*std::move(scaled));
  };
  if (atom.kind == (upper ? ExprKind::min : ExprKind::max)) {
    add(linear_of(kernel_, atom.a));
    add(linear_of(kernel_, atom.b));
  }
  if (atom.kind == ExprKind::div) return division_bounds(atom, term);
  if (atom.kind == ExprKind::rem) {
    const Range whole = expr(atom.a, depth - 1);
    const Range divisor = expr(atom.b, depth - 1);
    if (whole.low >= 0 && (upper || whole.high < divisor.low)) add(linear_of(kernel_, atom.a));
  }
  if (atom.kind != ExprKind::variable || !definitions_) return bounds;
  const KOp* op = (*definitions_)[index_of(atom.variable)];
  if (op && op->op == Op::index) add(linear_of(kernel_, op->indices[0]));
  if (op && op->op == Op::loop) {
    if (const auto bound = loop_bound(kernel_, *op, upper)) add(*bound);
  }
  return bounds;
}

int64_t Ranger::upper_bound(const Linear& sum, int depth) const {
  // Terms that are replaced in another order give the same sum: without this the search is factorial.
  std::vector<int64_t> key{depth};
  for (const Linear::Term& term : sum.terms) {
    key.push_back(static_cast<int64_t>(term.atom));
    key.push_back(term.coefficient);
  }
  key.push_back(sum.constant);
  if (const auto known = bounds_.find(key); known != bounds_.end()) return known->second;
  return bounds_[key] = search_upper_bound(sum, depth);
}

int64_t Ranger::search_upper_bound(const Linear& sum, int depth) const {
  int64_t best = sum.constant;
  for (const Linear::Term& term : sum.terms) {
    const Range range = node(kernel_.expr(term.atom), depth - 1);
    const int64_t bound = saturating_mul(term.coefficient, term.coefficient > 0 ? range.high : range.low);
    best = saturating_add(best, bound, kNoHigh);
  }
  if (depth <= 0) return best;
  for (const Linear::Term& term : sum.terms) {
    const auto rest = add_scaled(sum, Linear{0, {term}}, -1);
    for (const Linear& bound : bounding_sums(term, depth)) {
      const auto replaced = rest ? add_scaled(*rest, bound, 1) : std::nullopt;
      if (replaced) best = std::min(best, upper_bound(*replaced, depth - 1));
    }
  }
  return best;
}

int64_t atom_multiple(const Kernel& kernel, const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::variable: return kernel.variables[index_of(expr.variable)].multiple_of;
    case ExprKind::mul: {
      const int64_t product = saturating_mul(multiple_of(kernel, expr.a), multiple_of(kernel, expr.b));
      return is_known(product) ? product : 1;
    }
    case ExprKind::div: {
      const Expr& divisor = kernel.expr(expr.b);
      const int64_t multiple = multiple_of(kernel, expr.a);
      const bool exact = divisor.kind == ExprKind::constant && divisor.value > 0 && multiple % divisor.value == 0;
      return exact ? multiple / divisor.value : 1;
    }
    case ExprKind::rem:
    case ExprKind::min:
    case ExprKind::max: return std::gcd(multiple_of(kernel, expr.a), multiple_of(kernel, expr.b));
    case ExprKind::constant:
    case ExprKind::task:
    case ExprKind::add:
    case ExprKind::sub:
    case ExprKind::less:
    case ExprKind::equal: return 1;
  }
  STEPC_UNREACHABLE("expression kind {}", static_cast<int>(expr.kind));
}

}  // namespace

Linear linear_of(const Kernel& kernel, ExprId id) {
  Linear sum;
  if (accumulate(kernel, id, 1, sum) && normalize(sum)) return sum;
  return Linear{0, {{id, 1}}};
}

std::optional<Linear> add_scaled(const Linear& a, const Linear& b, int64_t scale) {
  Linear sum = a;
  int64_t product = 0;
  if (__builtin_mul_overflow(b.constant, scale, &product)) return std::nullopt;
  if (__builtin_add_overflow(sum.constant, product, &sum.constant)) return std::nullopt;
  for (const Linear::Term& term : b.terms) {
    if (__builtin_mul_overflow(term.coefficient, scale, &product)) return std::nullopt;
    sum.terms.push_back({term.atom, product});
  }
  if (!normalize(sum)) return std::nullopt;
  return sum;
}

Definitions definitions_of(const Kernel& kernel) {
  Definitions definitions(kernel.variables.size(), nullptr);
  for (const KOp& op : kernel.ops)
    if (op.variable != VarId::none) definitions[index_of(op.variable)] = &op;
  return definitions;
}

Range range_of(const Kernel& kernel, const Linear& sum, const Definitions* definitions) {
  return Ranger(kernel, definitions).sum(sum, definitions ? 6 : 2);
}

Range range_of(const Kernel& kernel, ExprId id) { return Ranger(kernel, nullptr).expr(id, 3); }

int64_t multiple_of(const Kernel& kernel, const Linear& sum) {
  int64_t multiple = sum.constant == INT64_MIN ? 1 : sum.constant;
  for (const Linear::Term& term : sum.terms) {
    const int64_t part = saturating_mul(term.coefficient, atom_multiple(kernel, kernel.expr(term.atom)));
    multiple = std::gcd(multiple, is_known(part) ? part : 1);
  }
  return multiple;
}

int64_t multiple_of(const Kernel& kernel, ExprId id) { return multiple_of(kernel, linear_of(kernel, id)); }

Variable loop_variable(const Kernel& kernel, std::string name, ExprId low, ExprId high, ExprId step) {
  const int64_t step_multiple = multiple_of(kernel, step);
  Variable variable{std::move(name), {}, 1};
  variable.multiple_of = std::gcd(multiple_of(kernel, low), step_multiple);
  if (variable.multiple_of == 0) variable.multiple_of = 1;
  Range& range = variable.range;
  range.low = range_of(kernel, low).low;
  const int64_t end = range_of(kernel, high).high;
  range.high = is_known(end) ? end - 1 : end;
  // Where every turn is whole, the last one starts a step before the end.
  const auto span = add_scaled(linear_of(kernel, high), linear_of(kernel, low), -1);
  const Expr& step_expr = kernel.expr(step);
  if (span && is_known(end) && step_expr.kind == ExprKind::constant && step_expr.value > 0) {
    if (multiple_of(kernel, *span) % step_expr.value == 0) range.high = saturating_add(end, -step_expr.value, kNoLow);
  }
  if (is_known(range.high)) range.high = floor_div(range.high, variable.multiple_of) * variable.multiple_of;
  range.high = std::max(range.high, range.low);  // a loop that never turns
  return variable;
}

Variable index_variable(const Kernel& kernel, std::string name, ExprId value) {
  const int64_t multiple = multiple_of(kernel, value);
  return {std::move(name), range_of(kernel, value), multiple == 0 ? 1 : multiple};
}

}  // namespace stepc::kernel
