#include "ir/kernel/index_simplify.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

Linear sum_of(const std::optional<Linear>& sum) {
  STEPC_CHECK(sum.has_value(), "index arithmetic does not fit 64 bits");
  return *sum;
}

Linear single(ExprId atom, int64_t coefficient = 1) { return {0, {{atom, coefficient}}}; }

// floor(x / divisor) where it is the same for all of `range`.
std::optional<int64_t> bucket(Range range, int64_t divisor) {
  if (range.low == INT64_MIN || range.high == INT64_MAX) return std::nullopt;
  const int64_t low = floor_div(range.low, divisor);
  if (low != floor_div(range.high, divisor)) return std::nullopt;
  return low;
}

}  // namespace

size_t ExprHash::operator()(const Expr& expr) const {
  uint64_t hash = static_cast<uint64_t>(expr.kind);
  for (uint64_t part : {static_cast<uint64_t>(expr.value), static_cast<uint64_t>(index_of(expr.variable)),
                        static_cast<uint64_t>(index_of(expr.a)), static_cast<uint64_t>(index_of(expr.b))})
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

ExprId ExprPool::intern(const Expr& expr) {
  const auto [entry, is_new] = ids_.try_emplace(expr, static_cast<ExprId>(exprs_.size()));
  if (is_new) exprs_.push_back(expr);
  return entry->second;
}

ExprId IndexSimplifier::constant(int64_t value) { return pool_.intern({.kind = ExprKind::constant, .value = value}); }

ExprId IndexSimplifier::variable(VarId id) {
  const Range range = kernel_.variables[index_of(id)].range;
  if (range.low == range.high) return constant(range.low);
  return pool_.intern({.kind = ExprKind::variable, .variable = id});
}

ExprId IndexSimplifier::task() {
  const ExprId id = pool_.intern({.kind = ExprKind::task});
  return range_of(kernel_, id).high == 0 ? constant(0) : id;
}

std::optional<int64_t> IndexSimplifier::value_of(ExprId id) const {
  const Expr& expr = kernel_.expr(id);
  return expr.kind == ExprKind::constant ? std::optional(expr.value) : std::nullopt;
}

ExprId IndexSimplifier::node(ExprKind kind, ExprId a, ExprId b) { return pool_.intern({.kind = kind, .a = a, .b = b}); }

ExprId IndexSimplifier::make(ExprKind kind, ExprId a, ExprId b) {
  switch (kind) {
    case ExprKind::add: return from_linear(sum_of(add_scaled(linear_of(kernel_, a), linear_of(kernel_, b), 1)));
    case ExprKind::sub: return from_linear(sum_of(add_scaled(linear_of(kernel_, a), linear_of(kernel_, b), -1)));
    case ExprKind::mul: return product(a, b);
    case ExprKind::div: return divide(a, b);
    case ExprKind::rem: return take_remainder(a, b);
    case ExprKind::min:
    case ExprKind::max: return extreme(kind, a, b);
    case ExprKind::less:
    case ExprKind::equal: return compare(kind, a, b);
    case ExprKind::constant:
    case ExprKind::variable:
    case ExprKind::task: break;
  }
  STEPC_UNREACHABLE("expression kind {} has no operands", static_cast<int>(kind));
}

bool IndexSimplifier::is_exact_division(const Expr& expr) const {
  return expr.kind == ExprKind::div && value_of(expr.b) && multiple_of(kernel_, expr.a) % *value_of(expr.b) == 0;
}

ExprId IndexSimplifier::scaled(ExprId atom, int64_t coefficient) {
  return coefficient == 1 ? atom : node(ExprKind::mul, atom, constant(coefficient));
}

// k * c * (x / c) is k * x where c divides x, k * (x % c) + k * c * (x / c) always, and k * (x % c) + k * c * (x / c %
// m) is k * (x % (c * m)). One such step; false when there is none.
bool IndexSimplifier::recombine(Linear& sum) {
  for (const Linear::Term& low : sum.terms) {
    const Expr expr = kernel_.expr(low.atom);
    if (is_exact_division(expr) && low.coefficient % *value_of(expr.b) == 0) {
      const int64_t factor = low.coefficient / *value_of(expr.b);
      sum = sum_of(add_scaled(sum_of(add_scaled(sum, Linear{0, {low}}, -1)), linear_of(kernel_, expr.a), factor));
      return true;
    }
    if (expr.kind != ExprKind::rem || !value_of(expr.b)) continue;
    const int64_t modulus = *value_of(expr.b);
    int64_t high_coefficient = 0;
    if (__builtin_mul_overflow(low.coefficient, modulus, &high_coefficient)) continue;
    const ExprId upper = divide(expr.a, expr.b);
    for (const Linear::Term& high : sum.terms) {
      if (high.coefficient != high_coefficient) continue;
      const Expr high_expr = kernel_.expr(high.atom);
      std::optional<Linear> whole;
      int64_t wider = 0;
      if (high.atom == upper)
        whole = linear_of(kernel_, expr.a);
      else if (high_expr.kind == ExprKind::rem && high_expr.a == upper && value_of(high_expr.b) &&
               !__builtin_mul_overflow(modulus, *value_of(high_expr.b), &wider))
        whole = linear_of(kernel_, take_remainder(expr.a, constant(wider)));
      if (!whole) continue;
      const Linear parts{0, {low, high}};
      sum = sum_of(add_scaled(sum_of(add_scaled(sum, parts, -1)), *whole, low.coefficient));
      return true;
    }
  }
  return false;
}

ExprId IndexSimplifier::from_linear(Linear sum) {
  while (recombine(sum)) {
  }
  if (const Range range = range_of(kernel_, sum); range.low == range.high) return constant(range.low);
  ExprId total = ExprId::none;
  for (const Linear::Term& term : sum.terms) {
    if (term.coefficient < 0) continue;
    const ExprId part = scaled(term.atom, term.coefficient);
    total = total == ExprId::none ? part : node(ExprKind::add, total, part);
  }
  const bool constant_first = total == ExprId::none;
  if (constant_first) total = constant(sum.constant);
  for (const Linear::Term& term : sum.terms) {
    if (term.coefficient > 0) continue;
    STEPC_CHECK(term.coefficient != INT64_MIN, "index arithmetic does not fit 64 bits");
    total = node(ExprKind::sub, total, scaled(term.atom, -term.coefficient));
  }
  if (constant_first || sum.constant == 0) return total;
  if (sum.constant > 0 || sum.constant == INT64_MIN) return node(ExprKind::add, total, constant(sum.constant));
  return node(ExprKind::sub, total, constant(-sum.constant));
}

ExprId IndexSimplifier::product(ExprId a, ExprId b) {
  Linear x = linear_of(kernel_, a);
  Linear y = linear_of(kernel_, b);
  if (x.terms.empty()) std::swap(x, y);
  if (y.terms.empty()) return from_linear(sum_of(add_scaled({}, x, y.constant)));
  // Neither is a constant: the product of what remains when constant factors are taken out.
  int64_t factor = 1;
  for (Linear* side : {&x, &y}) {
    if (side->terms.size() != 1 || side->constant != 0) continue;
    STEPC_CHECK(!__builtin_mul_overflow(factor, side->terms[0].coefficient, &factor), "index arithmetic does not fit");
    side->terms[0].coefficient = 1;
  }
  ExprId left = from_linear(x);
  ExprId right = from_linear(y);
  if (right < left) std::swap(left, right);
  return from_linear(single(node(ExprKind::mul, left, right), factor));
}

ExprId IndexSimplifier::divide(ExprId a, ExprId b) {
  if (const auto divisor = value_of(b)) {
    STEPC_CHECK(*divisor > 0, "division of an index by {}", *divisor);
    return quotient(linear_of(kernel_, a), *divisor);
  }
  const Range numerator = range_of(kernel_, a);
  const Range denominator = range_of(kernel_, b);
  STEPC_CHECK(denominator.low > 0, "division of an index by what may be {}", denominator.low);
  if (a == b) return constant(1);
  if (numerator.low >= 0 && numerator.high < denominator.low) return constant(0);
  return node(ExprKind::div, a, b);
}

ExprId IndexSimplifier::take_remainder(ExprId a, ExprId b) {
  if (const auto divisor = value_of(b)) {
    STEPC_CHECK(*divisor > 0, "remainder of an index by {}", *divisor);
    return remainder(linear_of(kernel_, a), *divisor);
  }
  const Range numerator = range_of(kernel_, a);
  const Range denominator = range_of(kernel_, b);
  STEPC_CHECK(denominator.low > 0, "remainder of an index by what may be {}", denominator.low);
  if (a == b) return constant(0);
  if (numerator.low >= 0 && numerator.high < denominator.low) return a;
  return node(ExprKind::rem, a, b);
}

// The part whose coefficients `divisor` divides, divided by it, and the rest, with the constant reduced.
IndexSimplifier::Split IndexSimplifier::split(const Linear& sum, int64_t divisor) {
  Split parts;
  parts.multiple.constant = floor_div(sum.constant, divisor);
  parts.rest.constant = floor_rem(sum.constant, divisor);
  for (const Linear::Term& term : sum.terms) {
    if (term.coefficient % divisor == 0)
      parts.multiple.terms.push_back({term.atom, term.coefficient / divisor});
    else
      parts.rest.terms.push_back(term);
  }
  return parts;
}

ExprId IndexSimplifier::quotient(const Linear& sum, int64_t divisor) {
  if (divisor == 1) return from_linear(sum);
  auto [whole, rest] = split(sum, divisor);
  const auto plus_whole = [&](ExprId part) {
    return from_linear(sum_of(add_scaled(whole, linear_of(kernel_, part), 1)));
  };
  if (const auto value = bucket(range_of(kernel_, rest), divisor)) return plus_whole(constant(*value));
  // Terms that are multiples of the divisor by what is known of their atoms divide exactly, each on its own.
  Linear exact;
  Linear inexact{rest.constant, {}};
  for (const Linear::Term& term : rest.terms)
    (multiple_of(kernel_, Linear{0, {term}}) % divisor == 0 ? exact : inexact).terms.push_back(term);
  const bool comes_apart = exact.terms.size() + inexact.terms.size() > 1 || inexact.constant != 0;
  const auto value = bucket(range_of(kernel_, inexact), divisor);
  if (!exact.terms.empty() && comes_apart && value) {
    Linear total = sum_of(add_scaled(whole, Linear{*value, {}}, 1));
    for (const Linear::Term& term : exact.terms)
      total = sum_of(add_scaled(total, linear_of(kernel_, quotient(Linear{0, {term}}, divisor)), 1));
    return from_linear(total);
  }
  if (const auto coarser = coarser_quotient(rest, divisor)) return plus_whole(*coarser);
  if (const auto common = common_quotient(rest, divisor)) return plus_whole(*common);
  if (const auto nested = nested_quotient(rest, divisor)) return plus_whole(*nested);
  return plus_whole(node(ExprKind::div, from_linear(rest), constant(divisor)));
}

// (d * q + r) / (d * m) = q / m for 0 <= r < d.
std::optional<ExprId> IndexSimplifier::coarser_quotient(const Linear& rest, int64_t divisor) {
  std::set<int64_t, std::greater<>> candidates;
  for (const Linear::Term& term : rest.terms)
    candidates.insert(std::gcd(multiple_of(kernel_, Linear{0, {term}}), divisor));
  for (const Linear::Term& term : rest.terms) candidates.insert(std::gcd(term.coefficient, divisor));
  for (int64_t d : candidates) {
    if (d <= 1 || d == divisor) continue;
    Linear upper{floor_div(rest.constant, d), {}};
    Linear lower{floor_rem(rest.constant, d), {}};
    std::vector<Linear::Term> divided;
    for (const Linear::Term& term : rest.terms) {
      if (term.coefficient % d == 0)
        upper.terms.push_back({term.atom, term.coefficient / d});
      else
        (multiple_of(kernel_, Linear{0, {term}}) % d == 0 ? divided : lower.terms).push_back(term);
    }
    const auto value = bucket(range_of(kernel_, lower), d);
    if (!value) continue;
    if (lower == Linear{} && !divided.empty()) continue;  // nothing would disappear
    upper = sum_of(add_scaled(upper, Linear{*value, {}}, 1));
    for (const Linear::Term& term : divided)
      upper = sum_of(add_scaled(upper, linear_of(kernel_, quotient(Linear{0, {term}}, d)), 1));
    return quotient(upper, divisor / d);
  }
  return std::nullopt;
}

// (x / a + y / a + r) / b = (x + y + r * a) / (a * b) where all but one of the divisions by a are exact.
std::optional<ExprId> IndexSimplifier::common_quotient(const Linear& rest, int64_t divisor) {
  if (rest.terms.empty() || kernel_.expr(rest.terms[0].atom).kind != ExprKind::div) return std::nullopt;
  const ExprId inner_divisor = kernel_.expr(rest.terms[0].atom).b;
  int64_t combined = 0;
  if (!value_of(inner_divisor) || __builtin_mul_overflow(*value_of(inner_divisor), divisor, &combined))
    return std::nullopt;
  int inexact = 0;
  Linear whole;
  if (__builtin_mul_overflow(rest.constant, *value_of(inner_divisor), &whole.constant)) return std::nullopt;
  for (const Linear::Term& term : rest.terms) {
    const Expr& expr = kernel_.expr(term.atom);
    if (expr.kind != ExprKind::div || expr.b != inner_divisor) return std::nullopt;
    if (!is_exact_division(expr)) {
      ++inexact;
      if (term.coefficient != 1) return std::nullopt;
    }
    const auto sum = add_scaled(whole, linear_of(kernel_, expr.a), term.coefficient);
    if (!sum) return std::nullopt;
    whole = *sum;
  }
  if (inexact > 1) return std::nullopt;
  return quotient(whole, combined);
}

// x % (a * b) / a = x / a % b.
std::optional<ExprId> IndexSimplifier::nested_quotient(const Linear& rest, int64_t divisor) {
  if (rest.terms.size() != 1 || rest.constant != 0 || rest.terms[0].coefficient != 1) return std::nullopt;
  const Expr inner = kernel_.expr(rest.terms[0].atom);
  if (inner.kind != ExprKind::rem || !value_of(inner.b) || *value_of(inner.b) % divisor != 0) return std::nullopt;
  const ExprId upper = quotient(linear_of(kernel_, inner.a), divisor);
  return remainder(linear_of(kernel_, upper), *value_of(inner.b) / divisor);
}

// Leaves out terms that are multiples of the divisor and reduces the other coefficients.
void IndexSimplifier::drop_multiples(Linear& sum, int64_t divisor) const {
  sum.constant = floor_rem(sum.constant, divisor);
  std::erase_if(sum.terms, [&](const Linear::Term& term) {
    return term.coefficient % divisor == 0 || multiple_of(kernel_, Linear{0, {term}}) % divisor == 0;
  });
  for (Linear::Term& term : sum.terms) term.coefficient %= divisor;
}

// Inside a remainder by c, k * (x % m) is k * x where c divides k * m. One such step; false when there is none.
bool IndexSimplifier::unwrap_remainders(Linear& sum, int64_t divisor) {
  for (const Linear::Term& term : sum.terms) {
    const Expr& inner = kernel_.expr(term.atom);
    if (inner.kind != ExprKind::rem || !value_of(inner.b)) continue;
    int64_t period = 0;
    if (__builtin_mul_overflow(*value_of(inner.b), term.coefficient, &period) || period % divisor != 0) continue;
    const Linear rest = sum_of(add_scaled(sum, Linear{0, {term}}, -1));
    const auto unwrapped = add_scaled(rest, linear_of(kernel_, inner.a), term.coefficient);
    if (!unwrapped) continue;
    sum = *unwrapped;
    return true;
  }
  return false;
}

ExprId IndexSimplifier::remainder(Linear sum, int64_t divisor) {
  if (divisor == 1) return constant(0);
  for (bool again = true; again; again = unwrap_remainders(sum, divisor)) {
    drop_multiples(sum, divisor);
    if (const auto value = bucket(range_of(kernel_, sum), divisor))
      return from_linear(sum_of(add_scaled(sum, Linear{*value, {}}, -divisor)));
  }
  if (const auto coarser = coarser_remainder(sum, divisor)) return *coarser;
  return node(ExprKind::rem, from_linear(sum), constant(divisor));
}

// (d * q + r) % (d * m) = d * (q % m) + r for 0 <= r < d.
std::optional<ExprId> IndexSimplifier::coarser_remainder(const Linear& rest, int64_t divisor) {
  std::set<int64_t, std::greater<>> candidates;
  for (const Linear::Term& term : rest.terms)
    candidates.insert(std::gcd(multiple_of(kernel_, Linear{0, {term}}), divisor));
  for (int64_t d : candidates) {
    if (d <= 1 || d == divisor) continue;
    Linear upper{rest.constant - floor_rem(rest.constant, d), {}};
    Linear lower{floor_rem(rest.constant, d), {}};
    bool coefficients_divide = true;
    for (const Linear::Term& term : rest.terms) {
      const bool is_multiple = multiple_of(kernel_, Linear{0, {term}}) % d == 0;
      (is_multiple ? upper : lower).terms.push_back(term);
      if (is_multiple && term.coefficient % d != 0) coefficients_divide = false;
    }
    const auto value = bucket(range_of(kernel_, lower), d);
    if (!value) continue;
    upper = sum_of(add_scaled(upper, Linear{*value, {}}, d));
    lower = sum_of(add_scaled(lower, Linear{*value, {}}, -d));
    if (!coefficients_divide && lower == Linear{}) continue;
    ExprId upper_part = ExprId::none;
    if (coefficients_divide)
      upper_part = product(remainder(split(upper, d).multiple, divisor / d), constant(d));
    else
      upper_part = remainder(upper, divisor);
    return from_linear(sum_of(add_scaled(linear_of(kernel_, upper_part), lower, 1)));
  }
  return std::nullopt;
}

ExprId IndexSimplifier::extreme(ExprKind kind, ExprId a, ExprId b) {
  const bool is_min = kind == ExprKind::min;
  const auto difference = add_scaled(linear_of(kernel_, a), linear_of(kernel_, b), -1);
  const Range range = difference ? range_of(kernel_, *difference) : Range{};
  if (range.high <= 0) return is_min ? a : b;
  if (range.low >= 0) return is_min ? b : a;
  if (value_of(a) || (!value_of(b) && b < a)) std::swap(a, b);  // constants come last
  const Expr inner = kernel_.expr(a);
  if (value_of(b) && inner.kind == kind && value_of(inner.b)) {
    const int64_t bound =
        is_min ? std::min(*value_of(inner.b), *value_of(b)) : std::max(*value_of(inner.b), *value_of(b));
    return node(kind, inner.a, constant(bound));
  }
  return node(kind, a, b);
}

ExprId IndexSimplifier::compare(ExprKind kind, ExprId a, ExprId b) {
  const auto difference = add_scaled(linear_of(kernel_, a), linear_of(kernel_, b), -1);
  const Range range = difference ? range_of(kernel_, *difference) : Range{};
  if (kind == ExprKind::less) {
    if (range.high < 0) return constant(1);
    if (range.low >= 0) return constant(0);
    return node(kind, a, b);
  }
  if (range.low == 0 && range.high == 0) return constant(1);
  if (range.low > 0 || range.high < 0) return constant(0);
  if (difference) {
    const int64_t multiple = multiple_of(kernel_, Linear{0, difference->terms});
    if (multiple != 0 && difference->constant % multiple != 0) return constant(0);
  }
  if (value_of(a) || (!value_of(b) && b < a)) std::swap(a, b);
  return node(kind, a, b);
}

}  // namespace stepc::kernel
