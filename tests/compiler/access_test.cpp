// Symbolic indices against the evaluator: a chain of views over the numbers 0, 1, 2, .. shows which element each
// result element is.
#include "compiler/graph/access.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "ir/graph/builder.h"
#include "ir/graph/evaluate.h"
#include "tests/support/random_graph.h"

namespace stepc {
namespace {

using test::Random;

int64_t value_at(const AxisIndex& index, int64_t variable) {
  int64_t value = index.offset;
  for (const Digit& digit : index.digits) value += digit.coefficient * (variable / digit.divisor % digit.extent);
  return value;
}

// Whether only variable 0 is used: nothing is unknown.
bool is_known(const TensorIndex& at) {
  return std::all_of(at.begin(), at.end(), [](const AxisIndex& axis) {
    return std::all_of(axis.digits.begin(), axis.digits.end(), [](const Digit& digit) { return digit.variable == 0; });
  });
}

// The extents in another grouping.
Shape regrouped(const Shape& shape, Random& random) {
  std::vector<int64_t> factors;
  for (int64_t extent : shape)
    for (int64_t prime : {2, 3, 5, 7})
      for (; extent % prime == 0; extent /= prime) factors.push_back(prime);
  Shape grouped{1};
  for (int64_t factor : factors) {
    if (random.chance(40)) grouped.push_back(1);
    grouped.back() *= factor;
  }
  return grouped;
}

ValueId random_view(GraphBuilder& g, ValueId x, Random& random) {
  const Shape shape = g.shape(x);
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<int64_t> low(shape.size(), 0), high(shape.size(), 0), axes;
  switch (random.below(5)) {
    case 0: return g.reshape(x, regrouped(shape, random));
    case 1: {
      for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
      std::rotate(axes.begin(), axes.begin() + random.below(rank), axes.end());
      return g.transpose(x, axes);
    }
    case 2: return g.emit1(Op::reverse, {x}, {{AttrKey::axes, std::vector<int64_t>{random.below(rank)}}});
    case 3: {
      const int64_t axis = random.below(rank);
      const int64_t extent = shape[static_cast<size_t>(axis)];
      const int64_t start = random.below(extent);
      return g.slice(x, axis, start, start + 1 + random.below(extent - start));
    }
    default: {
      Shape wide = shape;
      wide.push_back(1 + random.below(3));
      for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
      return g.broadcast(x, wide, axes);
    }
  }
}

TEST_CASE("indices pushed through random views name the elements that the evaluator reads") {
  int known = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Module module{"m", {}, {}};
    GraphBuilder g(module, "p");
    const TensorType type{Dtype::f32, {6, 4, 5}};
    const ValueId x = g.input("x", type);
    std::vector<ValueId> chain{x};
    for (int64_t i = random.below(7); i >= 0; --i) chain.push_back(random_view(g, chain.back(), random));
    g.output("y", chain.back());
    Tensor numbers{type, std::vector<double>(120)};
    for (size_t i = 0; i < numbers.data.size(); ++i) numbers.data[i] = static_cast<double>(i);
    TensorMap none;
    const auto outputs = evaluate(g.program(), none, {{"x", numbers}});
    REQUIRE(outputs.has_value());
    const Tensor& y = outputs->at("y");

    IndexMath math;
    TensorIndex at = math.at_linear(math.variable(numel(y.type.shape)), y.type.shape);
    for (size_t i = chain.size() - 1; i > 0; --i)
      at = math.through_view(g.program(), g.program().producer(chain[i]), at);
    if (!is_known(at)) continue;
    ++known;
    const AxisIndex linear = math.linear(at, type.shape);
    for (size_t i = 0; i < y.data.size(); ++i)
      REQUIRE(static_cast<double>(value_at(linear, static_cast<int64_t>(i))) == y.data[i]);
  }
  CHECK(known > 250);
}

TEST_CASE("equal reads have equal indices, however they are written") {
  IndexMath math;
  const AxisIndex i = math.variable(24);
  const TensorIndex matrix = math.at_linear(i, {4, 6});
  const TensorIndex cube = math.at_linear(i, {4, 3, 2});
  CHECK(math.linear(matrix, {4, 6}) == i);
  CHECK(axis_add(axis_scale(cube[1], 2), cube[2]) == matrix[1]);
  CHECK(axis_shift(axis_scale(axis_shift(axis_scale(i, -1), 23), -1), 23) == i);
  CHECK(!axis_divide(axis_shift(i, 1), 6).has_value());  // it carries
  CHECK(axis_divide(axis_shift(axis_scale(i, 6), 5), 6)->second == AxisIndex{{}, 5});
}

TEST_CASE("what no sum of digits says is one unknown for one origin") {
  IndexMath math;
  const TensorIndex at = math.at_linear(math.variable(12), {12});
  CHECK(math.unknown(at, 1, 5) == math.unknown(at, 1, 5));
  CHECK(math.unknown(at, 1, 5) != math.unknown(at, 2, 5));
  CHECK(math.evaluations({math.unknown(at, 1, 5)}) == 12);
  CHECK(math.elements({math.unknown(at, 1, 5), math.variable(7)}) == 84);
}

}  // namespace
}  // namespace stepc
