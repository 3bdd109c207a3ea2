// What is known of an index expression without running it: its value as a linear combination, its range,
// and a number that divides it. The simplifier, the verifier and the bounds checker all reason with these.
// Ranges saturate: INT64_MIN and INT64_MAX mean "no bound known".
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ir/kernel/kernel.h"

namespace stepc::kernel {

constexpr int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
constexpr int64_t floor_rem(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }

// constant + sum of coefficient * atom; atoms ascend and coefficients are not 0. An atom is any expression
// that is not itself a sum or a product with a constant.
struct Linear {
  struct Term {
    ExprId atom = ExprId::none;
    int64_t coefficient = 0;
    bool operator==(const Term&) const = default;
  };
  int64_t constant = 0;
  std::vector<Term> terms;
  bool operator==(const Linear&) const = default;
};

// The expression as a linear combination; itself as the only atom where a coefficient would overflow.
Linear linear_of(const Kernel& kernel, ExprId id);
// a + scale * b, if it does not overflow.
std::optional<Linear> add_scaled(const Linear& a, const Linear& b, int64_t scale);

// The ops that define variables, by variable: a loop bounds its variable, `index` gives it a value. With
// them ranges follow the structure of a kernel: row - first < 64 in "for row = first .. min(first + 64, n)".
using Definitions = std::vector<const KOp*>;
Definitions definitions_of(const Kernel& kernel);

Range range_of(const Kernel& kernel, ExprId id);
Range range_of(const Kernel& kernel, const Linear& sum, const Definitions* definitions = nullptr);
// A number that divides every value of the expression; 0 for the constant 0.
int64_t multiple_of(const Kernel& kernel, ExprId id);
int64_t multiple_of(const Kernel& kernel, const Linear& sum);

// A variable with the range and the multiple that its loop gives it.
Variable loop_variable(const Kernel& kernel, std::string name, ExprId low, ExprId high, ExprId step);
// A variable that names an expression.
Variable index_variable(const Kernel& kernel, std::string name, ExprId value);

}  // namespace stepc::kernel
