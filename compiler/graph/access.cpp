#include "compiler/graph/access.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "compiler/reshape_blocks.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// `high` continues `low`: together they are one digit.
bool joins(const Digit& high, const Digit& low) {
  return high.variable == low.variable && high.divisor == low.divisor * low.extent &&
         high.coefficient == low.coefficient * low.extent;
}

AxisIndex tidy(AxisIndex x) {
  std::sort(x.digits.begin(), x.digits.end(), [](const Digit& a, const Digit& b) {
    return std::tuple(a.variable, -a.divisor, a.extent) < std::tuple(b.variable, -b.divisor, b.extent);
  });
  std::vector<Digit> digits;
  for (const Digit& digit : x.digits) {
    if (digit.extent == 1 || digit.coefficient == 0) continue;
    Digit* last = digits.empty() ? nullptr : &digits.back();
    const bool same =
        last && last->variable == digit.variable && last->divisor == digit.divisor && last->extent == digit.extent;
    if (same) {
      last->coefficient += digit.coefficient;
      if (last->coefficient == 0) digits.pop_back();
    } else if (last && joins(*last, digit)) {
      *last = {digit.variable, digit.divisor, last->extent * digit.extent, digit.coefficient};
    } else {
      digits.push_back(digit);
    }
  }
  x.digits = std::move(digits);
  return x;
}

// The digit's share of the quotient and of the remainder; false where a part is neither.
bool divide_digit(const Digit& digit, int64_t divisor, AxisIndex& quotient, AxisIndex& remainder) {
  const int64_t size = std::abs(digit.coefficient);
  const int64_t sign = digit.coefficient < 0 ? -1 : 1;
  if (size % divisor == 0) {
    quotient.digits.push_back({digit.variable, digit.divisor, digit.extent, digit.coefficient / divisor});
    return true;
  }
  if ((digit.extent - 1) * size < divisor) {
    remainder.digits.push_back(digit);
    return true;
  }
  if (divisor % size != 0 || digit.extent % (divisor / size) != 0) return false;
  const int64_t inner = divisor / size;
  remainder.digits.push_back({digit.variable, digit.divisor, inner, digit.coefficient});
  quotient.digits.push_back({digit.variable, digit.divisor * inner, digit.extent / inner, sign});
  return true;
}

}  // namespace

AxisIndex axis_add(const AxisIndex& a, const AxisIndex& b) {
  AxisIndex sum = a;
  sum.digits.insert(sum.digits.end(), b.digits.begin(), b.digits.end());
  sum.offset += b.offset;
  return tidy(std::move(sum));
}

AxisIndex axis_scale(const AxisIndex& x, int64_t factor) {
  AxisIndex scaled = x;
  for (Digit& digit : scaled.digits) digit.coefficient *= factor;
  scaled.offset *= factor;
  return tidy(std::move(scaled));
}

AxisIndex axis_shift(AxisIndex x, int64_t offset) {
  x.offset += offset;
  return x;
}

std::optional<std::pair<AxisIndex, AxisIndex>> axis_divide(const AxisIndex& x, int64_t divisor) {
  AxisIndex quotient;
  AxisIndex remainder;
  for (const Digit& digit : x.digits)
    if (!divide_digit(digit, divisor, quotient, remainder)) return std::nullopt;
  int64_t low = 0;
  int64_t high = 0;
  for (const Digit& digit : remainder.digits)
    (digit.coefficient < 0 ? low : high) += digit.coefficient * (digit.extent - 1);
  quotient.offset = floor_divide(x.offset + low, divisor);
  remainder.offset = x.offset - quotient.offset * divisor;
  if (remainder.offset + high >= divisor) return std::nullopt;  // it carries
  return std::pair(tidy(std::move(quotient)), tidy(std::move(remainder)));
}

AxisIndex IndexMath::variable(int64_t extent) {
  const int id = static_cast<int>(variables_.size());
  variables_.push_back({extent, {id}});
  return tidy({{{id, 1, extent, 1}}, 0});
}

AxisIndex IndexMath::numbered(int64_t number, int64_t extent) {
  const auto known = numbered_.find(number);
  if (known != numbered_.end()) return known->second;
  return numbered_[number] = variable(extent);
}

AxisIndex IndexMath::unknown(const TensorIndex& origin, int64_t tag, int64_t extent) {
  const auto [entry, is_new] = unknowns_.try_emplace({origin, tag}, static_cast<int>(variables_.size()));
  if (is_new) variables_.push_back({extent, bases(origin)});
  return tidy({{{entry->second, 1, extent, 1}}, 0});
}

TensorIndex IndexMath::at_linear(const AxisIndex& linear, const Shape& shape) {
  TensorIndex at(shape.size());
  if (numel(shape) == 0) return at;
  AxisIndex rest = linear;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    const bool outermost = std::all_of(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(d),
                                       [](int64_t extent) { return extent == 1; });
    if (outermost) {
      at[d] = rest;
      break;
    }
    const auto parts = axis_divide(rest, shape[d]);
    if (!parts) {
      for (size_t e = 0; e <= d; ++e) at[e] = unknown({rest}, static_cast<int64_t>(d * 64 + e), shape[e]);
      break;
    }
    at[d] = parts->second;
    rest = parts->first;
  }
  return at;
}

AxisIndex IndexMath::linear(const TensorIndex& at, const Shape& shape) const {
  AxisIndex sum;
  const std::vector<int64_t> strides = row_major_strides(shape);
  for (size_t d = 0; d < shape.size(); ++d) sum = axis_add(sum, axis_scale(at[d], strides[d]));
  return sum;
}

void IndexMath::reshape_block(const TensorIndex& at, const Shape& from, const Shape& to, TensorIndex& result,
                              size_t begin) {
  if (from.size() == 1 && to.size() == 1) {
    result[begin] = at[0];
    return;
  }
  const TensorIndex block = at_linear(linear(at, from), to);
  std::copy(block.begin(), block.end(), result.begin() + static_cast<ptrdiff_t>(begin));
}

TensorIndex IndexMath::reshape(const TensorIndex& at, const Shape& from, const Shape& to) {
  TensorIndex result(to.size());
  if (numel(to) == 0) return result;
  const auto part = [](const auto& list, size_t begin, size_t end) {
    return std::decay_t<decltype(list)>(list.begin() + static_cast<ptrdiff_t>(begin),
                                        list.begin() + static_cast<ptrdiff_t>(end));
  };
  for (const ReshapeBlock& block : reshape_blocks(from, to))
    reshape_block(part(at, block.from_begin, block.from_end), part(from, block.from_begin, block.from_end),
                  part(to, block.to_begin, block.to_end), result, block.to_begin);
  return result;
}

TensorIndex IndexMath::through_view(const Program& program, const Node& view, const TensorIndex& at) {
  const Shape& from = program.type(view.results[0]).shape;
  const Shape& to = program.type(view.operands[0]).shape;
  TensorIndex result = at;
  if (view.op == Op::reshape) {
    result = reshape(at, from, to);
  } else if (view.op == Op::transpose) {
    const std::vector<int64_t>& permutation = view.attrs.integers(AttrKey::permutation);
    for (size_t d = 0; d < at.size(); ++d) result[static_cast<size_t>(permutation[d])] = at[d];
  } else if (view.op == Op::broadcast) {
    result.clear();
    for (int64_t axis : view.attrs.integers(AttrKey::axes)) result.push_back(at[static_cast<size_t>(axis)]);
  } else if (view.op == Op::slice || view.op == Op::pad) {
    const bool slice = view.op == Op::slice;
    const std::vector<int64_t>& shift = view.attrs.integers(slice ? AttrKey::start : AttrKey::low);
    for (size_t d = 0; d < at.size(); ++d) result[d] = axis_shift(at[d], slice ? shift[d] : -shift[d]);
  } else {
    STEPC_CHECK(view.op == Op::reverse, "{} moves no index", op_info(view.op).name);
    for (int64_t axis : view.attrs.integers(AttrKey::axes)) {
      const auto d = static_cast<size_t>(axis);
      result[d] = axis_shift(axis_scale(at[d], -1), from[d] - 1);
    }
  }
  return result;
}

std::vector<int> IndexMath::bases(const TensorIndex& at) const {
  std::set<int> found;
  for (const AxisIndex& axis : at)
    for (const Digit& digit : axis.digits) {
      const std::vector<int>& of = variables_[static_cast<size_t>(digit.variable)].bases;
      found.insert(of.begin(), of.end());
    }
  return {found.begin(), found.end()};
}

double IndexMath::evaluations(const TensorIndex& at) const {
  double count = 1;
  for (int id : bases(at)) count *= static_cast<double>(variables_[static_cast<size_t>(id)].extent);
  return count;
}

double IndexMath::elements(const TensorIndex& at) const {
  std::set<std::tuple<int, int64_t, int64_t>> digits;
  for (const AxisIndex& axis : at)
    for (const Digit& digit : axis.digits) {
      const Variable& variable = variables_[static_cast<size_t>(digit.variable)];
      const bool known = variable.bases == std::vector<int>{digit.variable};
      if (known) digits.insert({digit.variable, digit.divisor, digit.extent});
      if (!known)
        for (int id : variable.bases) digits.insert({id, 1, variables_[static_cast<size_t>(id)].extent});
    }
  double count = 1;
  for (const auto& [variable, divisor, extent] : digits) count *= static_cast<double>(extent);
  return count;
}

}  // namespace stepc
