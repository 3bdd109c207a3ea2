// Evaluator entries of pointwise ops. i32 arithmetic wraps; f32 arithmetic in double and one rounding
// afterwards is the correctly rounded f32 result for + - * / and sqrt.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/evaluate_rules.h"

namespace stepc {
namespace {

double wrap(int64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }
int64_t integer(double x) { return static_cast<int64_t>(x); }

template <class F>
Status map1(Evaluation& e, F f) {
  const double* a = e.data(0);
  double* out = e.result();
  for (size_t i = 0; i < e.result_count(); ++i) out[i] = f(a[i]);
  return {};
}

template <class F>
Status map2(Evaluation& e, F f) {
  const double* a = e.data(0);
  const double* b = e.data(1);
  double* out = e.result();
  for (size_t i = 0; i < e.result_count(); ++i) out[i] = f(a[i], b[i]);
  return {};
}

template <class F>
Status map3(Evaluation& e, F f) {
  const double* a = e.data(0);
  const double* b = e.data(1);
  const double* c = e.data(2);
  double* out = e.result();
  for (size_t i = 0; i < e.result_count(); ++i) out[i] = f(a[i], b[i], c[i]);
  return {};
}

// `f` works on doubles for f32 operands and on int64 for i32 ones, whose result wraps.
template <class F>
Status arithmetic1(Evaluation& e, F f) {
  if (e.results[0].type.dtype == Dtype::i32) return map1(e, [f](double a) { return wrap(f(integer(a))); });
  return map1(e, f);
}
template <class F>
Status arithmetic2(Evaluation& e, F f) {
  if (e.results[0].type.dtype == Dtype::i32)
    return map2(e, [f](double a, double b) { return wrap(f(integer(a), integer(b))); });
  return map2(e, f);
}

Status check_divisors(const Evaluation& e) {
  for (size_t i = 0; i < e.operands[1]->data.size(); ++i)
    if (e.data(1)[i] == 0) return user_error("element {} of the divisor is 0", i);
  return {};
}

// To the nearest value of i32 toward zero; NaN gives 0.
double to_int32(double x) {
  if (std::isnan(x)) return 0;
  return std::clamp(std::trunc(x), double{std::numeric_limits<int32_t>::min()},
                    double{std::numeric_limits<int32_t>::max()});
}

}  // namespace

Status eval_neg(Evaluation& e) {
  return arithmetic1(e, [](auto a) { return -a; });
}
Status eval_abs(Evaluation& e) {
  return arithmetic1(e, [](auto a) { return std::abs(a); });
}
Status eval_exp(Evaluation& e) {
  return map1(e, [](double a) { return std::exp(a); });
}
Status eval_log(Evaluation& e) {
  return map1(e, [](double a) { return std::log(a); });
}
Status eval_sqrt(Evaluation& e) {
  return map1(e, [](double a) { return std::sqrt(a); });
}
Status eval_rsqrt(Evaluation& e) {
  return map1(e, [](double a) { return 1 / std::sqrt(a); });
}
Status eval_sin(Evaluation& e) {
  return map1(e, [](double a) { return std::sin(a); });
}
Status eval_cos(Evaluation& e) {
  return map1(e, [](double a) { return std::cos(a); });
}
Status eval_tanh(Evaluation& e) {
  return map1(e, [](double a) { return std::tanh(a); });
}
Status eval_logistic(Evaluation& e) {
  return map1(e, [](double a) { return 1 / (1 + std::exp(-a)); });
}
Status eval_floor(Evaluation& e) {
  return map1(e, [](double a) { return std::floor(a); });
}
Status eval_is_finite(Evaluation& e) {
  return map1(e, [](double a) { return std::isfinite(a) ? 1.0 : 0.0; });
}
Status eval_logical_not(Evaluation& e) {
  return map1(e, [](double a) { return 1 - a; });
}
Status eval_cast(Evaluation& e) {
  if (e.results[0].type.dtype == Dtype::i32) return map1(e, to_int32);
  return map1(e, [](double a) { return a; });
}
Status eval_unit_from_bits(Evaluation& e) {
  return map1(e, [](double a) { return std::ldexp(static_cast<uint32_t>(integer(a)) >> 8, -24); });
}
Status eval_stop_gradient(Evaluation& e) {
  return map1(e, [](double a) { return a; });
}

Status eval_add(Evaluation& e) {
  return arithmetic2(e, [](auto a, auto b) { return a + b; });
}
Status eval_sub(Evaluation& e) {
  return arithmetic2(e, [](auto a, auto b) { return a - b; });
}
Status eval_mul(Evaluation& e) {
  return arithmetic2(e, [](auto a, auto b) { return a * b; });
}
Status eval_div(Evaluation& e) {
  if (e.results[0].type.dtype == Dtype::i32) STEPC_TRY(check_divisors(e));
  return arithmetic2(e, [](auto a, auto b) { return a / b; });
}
Status eval_rem(Evaluation& e) {
  STEPC_TRY(check_divisors(e));
  return map2(e, [](double a, double b) { return wrap(integer(a) % integer(b)); });
}
Status eval_pow(Evaluation& e) {
  return map2(e, [](double a, double b) { return std::pow(a, b); });
}
Status eval_max(Evaluation& e) {
  return map2(e, [](double a, double b) { return std::isnan(a) || a > b ? a : b; });
}
Status eval_min(Evaluation& e) {
  return map2(e, [](double a, double b) { return std::isnan(a) || a < b ? a : b; });
}
Status eval_equal(Evaluation& e) {
  return map2(e, [](double a, double b) { return a == b ? 1.0 : 0.0; });
}
Status eval_less(Evaluation& e) {
  return map2(e, [](double a, double b) { return a < b ? 1.0 : 0.0; });
}
Status eval_less_equal(Evaluation& e) {
  return map2(e, [](double a, double b) { return a <= b ? 1.0 : 0.0; });
}
Status eval_logical_and(Evaluation& e) {
  return map2(e, [](double a, double b) { return a * b; });
}
Status eval_logical_or(Evaluation& e) {
  return map2(e, [](double a, double b) { return std::max(a, b); });
}

Status eval_fma(Evaluation& e) {
  // In double the sum would be rounded twice.
  if (e.precision == Precision::f32)
    return map3(e, [](double a, double b, double c) {
      return double{std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c))};
    });
  return map3(e, [](double a, double b, double c) { return std::fma(a, b, c); });
}
Status eval_select(Evaluation& e) {
  return map3(e, [](double condition, double a, double b) { return condition != 0 ? a : b; });
}

}  // namespace stepc
