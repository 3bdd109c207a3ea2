// Where a tensor is read, as a function of where the iteration stands. An index along one axis is a sum of
// digits of iteration variables: coefficient * ((variable / divisor) % extent). Views map such sums to such
// sums (a reshape splits and joins digits), so two reads are of one element, in every iteration, exactly
// when their sums are equal. What no sum can say (a row number that was loaded, a reshape that carries)
// becomes a variable of its own, the same for equal origins.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

struct Digit {
  int variable = 0;
  int64_t divisor = 1;
  int64_t extent = 1;
  int64_t coefficient = 1;
  auto operator<=>(const Digit&) const = default;
};

struct AxisIndex {
  std::vector<Digit> digits;  // by variable, then from the most significant on; no two could be one
  int64_t offset = 0;
  auto operator<=>(const AxisIndex&) const = default;
};

// One index an axis.
using TensorIndex = std::vector<AxisIndex>;

AxisIndex axis_add(const AxisIndex& a, const AxisIndex& b);
AxisIndex axis_scale(const AxisIndex& x, int64_t factor);
AxisIndex axis_shift(AxisIndex x, int64_t offset);
// The quotient and the remainder in [0, divisor); nullopt where they are no sums of digits.
std::optional<std::pair<AxisIndex, AxisIndex>> axis_divide(const AxisIndex& x, int64_t divisor);

// The variables of one region's iteration.
class IndexMath {
 public:
  // A new variable that runs over [0, extent).
  AxisIndex variable(int64_t extent);
  // The variable of that number, made at its first use; independent of the numbers of others.
  AxisIndex numbered(int64_t number, int64_t extent);
  // A variable of which only the origin and the extent are known: the same for the same origin and tag.
  AxisIndex unknown(const TensorIndex& origin, int64_t tag, int64_t extent);

  // The index of row-major element number `linear` of a tensor, and back.
  TensorIndex at_linear(const AxisIndex& linear, const Shape& shape);
  AxisIndex linear(const TensorIndex& at, const Shape& shape) const;
  // Where a view (concat excepted) that is read at `at` reads its operand. Indices outside of a pad's
  // operand stand for its zeros.
  TensorIndex through_view(const Program& program, const Node& view, const TensorIndex& at);

  // How often something read at `at` is evaluated: the iterations of the variables that it depends on.
  double evaluations(const TensorIndex& at) const;
  // How many elements that reads: the values of the digits.
  double elements(const TensorIndex& at) const;

 private:
  struct Variable {
    int64_t extent = 0;
    std::vector<int> bases;  // the variables that an unknown depends on; of others, itself
  };
  std::vector<int> bases(const TensorIndex& at) const;
  TensorIndex reshape(const TensorIndex& at, const Shape& from, const Shape& to);
  void reshape_block(const TensorIndex& at, const Shape& from, const Shape& to, TensorIndex& result, size_t begin);

  std::vector<Variable> variables_;
  std::map<std::pair<TensorIndex, int64_t>, int> unknowns_;
  std::map<int64_t, AxisIndex> numbered_;
};

}  // namespace stepc
