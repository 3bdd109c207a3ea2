// Leaves, pointwise ops, views and reductions.
#include "tests/conform/op_cases.h"

#include <array>
#include <limits>

namespace stepc::test {
namespace {

constexpr std::array kDtypes{Dtype::f32, Dtype::bf16, Dtype::i32, Dtype::pred};
constexpr int64_t kColumns = 40;

using Build = std::function<ValueId(GraphBuilder&)>;

OpCase case_of(Op op, const std::string& detail, const Build& build) {
  GroupCase program{fmt::format("{} {}", op_info(op).name, detail), Template::pointwise,
                    [build](GraphBuilder& g) { g.output("y", build(g)); }};
  return {op, std::move(program)};
}

std::string text_of(const std::vector<Dtype>& dtypes) {
  std::string text;
  for (Dtype dtype : dtypes) text += (text.empty() ? "" : " ") + std::string(dtype_name(dtype));
  return text;
}

// Calls visit for every tuple of so many dtypes.
void for_tuples(int count, std::vector<Dtype>& tuple, const std::function<void()>& visit) {
  if (count == 0) return visit();
  for (Dtype dtype : kDtypes) {
    tuple.push_back(dtype);
    for_tuples(count - 1, tuple, visit);
    tuple.pop_back();
  }
}

// Inputs for which the op is defined and its declared error holds.
std::pair<double, double> range_of(Op op, size_t operand, Dtype dtype) {
  if (op == Op::log || op == Op::sqrt || op == Op::rsqrt) return {1e-3, 1e3};
  if (op == Op::exp) return {-60, 60};
  if (op == Op::sin || op == Op::cos) return {-1e4, 1e4};
  if (op == Op::tanh || op == Op::logistic) return {-12, 12};
  if (op == Op::pow) return operand == 0 ? std::pair(1e-2, 1e2) : std::pair(-3.0, 3.0);
  if ((op == Op::div || op == Op::rem) && operand == 1) return {1, 9};
  if (op == Op::unit_from_bits) return {-2147483648.0, 2147483647.0};
  if (dtype == Dtype::i32) return {-1000, 1000};
  return {-8, 8};
}

// What arithmetic must get right beside ordinary numbers.
void add_specials(Op op, Tensor& tensor) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const std::array<double, 12> f32{kInf, -kInf, kNan, 0.0, -0.0, 3e9, -3e9, 0.5, -0.5, 1.5, 16777217.0, 1e-3};
  const bool takes_all = op == Op::neg || op == Op::abs || op == Op::max || op == Op::min || op == Op::equal ||
                         op == Op::less || op == Op::less_equal || op == Op::is_finite || op == Op::cast ||
                         op == Op::select || op == Op::stop_gradient;
  if (!takes_all || tensor.type.dtype != Dtype::f32) return;
  for (size_t i = 0; i < f32.size() && i < tensor.data.size(); ++i)
    tensor.data[i] = static_cast<double>(static_cast<float>(f32[i]));
}

void add_pointwise(Op op, const std::vector<Dtype>& dtypes, Dtype declared, int64_t tokens,
                   std::vector<OpCase>& cases) {
  const Shape shape{tokens, kColumns};
  std::vector<TensorType> types;
  for (Dtype dtype : dtypes) types.push_back({dtype, shape});
  const auto inferred = infer_types(op, types, {}, {{declared, shape}});
  if (!inferred || (*inferred)[0].dtype != declared) return;
  OpCase made = case_of(op, text_of(dtypes) + " -> " + std::string(dtype_name(declared)), [=](GraphBuilder& g) {
    std::vector<ValueId> operands;
    for (size_t i = 0; i < types.size(); ++i) operands.push_back(g.input(fmt::format("x{}", i), types[i]));
    return g.emit1(op, operands, {}, {declared, shape});
  });
  for (size_t i = 0; i < dtypes.size(); ++i) made.program.ranges[fmt::format("x{}", i)] = range_of(op, i, dtypes[i]);
  made.adjust = [op](const std::string&, Tensor& tensor) { add_specials(op, tensor); };
  cases.push_back(std::move(made));
}

}  // namespace

std::vector<OpCase> pointwise_cases(int64_t tokens) {
  std::vector<OpCase> cases;
  for (int number = 0; number < kOpCount; ++number) {
    const Op op = static_cast<Op>(number);
    if (op_info(op).family != OpFamily::pointwise) continue;
    std::vector<Dtype> dtypes;
    for_tuples(op_info(op).min_operands, dtypes, [&] {
      for (Dtype declared : kDtypes) add_pointwise(op, dtypes, declared, tokens, cases);
    });
  }
  return cases;
}

std::vector<OpCase> leaf_cases(int64_t tokens) {
  std::vector<OpCase> cases;
  const Shape shape{tokens, kColumns};
  for (Dtype dtype : {Dtype::f32, Dtype::i32, Dtype::pred})
    cases.push_back(case_of(Op::constant, text_of({dtype}), [=](GraphBuilder& g) {
      return g.constant(dtype == Dtype::f32 ? 0.25 : 1, {dtype, shape});
    }));
  for (int64_t axis : {0, 1})
    cases.push_back(
        case_of(Op::iota, fmt::format("axis {}", axis), [=](GraphBuilder& g) { return g.iota(axis, shape); }));
  cases.push_back(case_of(Op::random_bits, "", [=](GraphBuilder& g) {
    std::vector<ValueId> operands;
    for (const char* name : {"seed", "stream", "step"}) operands.push_back(g.input(name, {Dtype::i32, {}}));
    return g.emit1(Op::random_bits, operands, {}, {Dtype::i32, shape});
  }));
  cases.back().program.ranges = {{"seed", {0, 9999}}, {"stream", {-9999, 9999}}, {"step", {0, 9999}}};
  return cases;
}

std::vector<OpCase> view_cases(int64_t tokens) {
  std::vector<OpCase> cases;
  for (Dtype dtype : kDtypes) {
    const TensorType matrix{dtype, {tokens, kColumns}}, cube{dtype, {tokens, 5, 8}};
    const auto add = [&](Op op, const std::string& detail, const TensorType& type, const Attrs& attrs,
                         const Shape& declared = {}) {
      cases.push_back(case_of(op, text_of({dtype}) + " " + detail, [=](GraphBuilder& g) {
        return g.emit1(op, {g.input("x", type)}, attrs, {dtype, declared});
      }));
    };
    const auto axes = [](std::vector<int64_t> of) { return Attrs{{AttrKey::axes, std::move(of)}}; };
    using Integers = std::vector<int64_t>;
    add(Op::transpose, "of 2", matrix, {{AttrKey::permutation, Integers{1, 0}}});
    add(Op::transpose, "of 3", cube, {{AttrKey::permutation, Integers{2, 0, 1}}});
    add(Op::broadcast, "to rows", {dtype, {kColumns}}, axes({1}), {tokens, kColumns});
    add(Op::broadcast, "to columns", {dtype, {tokens}}, axes({0}), {tokens, kColumns});
    add(Op::slice, "", matrix, {{AttrKey::start, Integers{tokens / 2, 3}}, {AttrKey::limit, Integers{tokens, 30}}});
    add(Op::pad, "", matrix, {{AttrKey::low, Integers{1, 0}}, {AttrKey::high, Integers{2, 3}}});
    add(Op::reverse, "rows", matrix, axes({0}));
    add(Op::reverse, "both", matrix, axes({0, 1}));
    for (int64_t axis : {0, 1})
      cases.push_back(case_of(Op::concat, fmt::format("{} axis {}", dtype_name(dtype), axis), [=](GraphBuilder& g) {
        const ValueId a = g.input("a", matrix);
        const ValueId b = g.input("b", {dtype, axis == 0 ? Shape{3, kColumns} : Shape{tokens, 7}});
        return g.emit1(Op::concat, {a, b, a}, {{AttrKey::axis, axis}});
      }));
  }
  // A reshape has no code of its own; between two other ops it moves indices.
  cases.push_back(case_of(Op::reshape, "f32", [=](GraphBuilder& g) {
    const ValueId x = g.unary(Op::neg, g.input("x", {Dtype::f32, {tokens, kColumns}}));
    return g.unary(Op::abs, g.reshape(x, {tokens * 5, 8}));
  }));
  return cases;
}

std::vector<OpCase> reduction_cases(int64_t tokens) {
  std::vector<OpCase> cases;
  const std::vector<std::pair<Shape, std::vector<int64_t>>> shapes{
      {{tokens, kColumns}, {1}}, {{tokens, kColumns}, {0}}, {{tokens, kColumns}, {0, 1}}, {{5, tokens}, {1}},
      {{3, tokens, 8}, {1}},     {{tokens, 5, 8}, {0, 2}},  {{tokens, 1000}, {1}},        {{tokens, 16}, {}}};
  for (Op op : {Op::reduce_sum, Op::reduce_max, Op::reduce_min})
    for (const auto& [shape, axes] : shapes)
      cases.push_back(case_of(op, shape_text(shape) + " over " + shape_text(axes),
                              [=](GraphBuilder& g) { return g.reduce(op, g.input("x", {Dtype::f32, shape}), axes); }));
  return cases;
}

std::vector<OpCase> op_cases(int64_t tokens) {
  std::vector<OpCase> cases;
  for (const auto family : {leaf_cases, pointwise_cases, view_cases, reduction_cases, product_cases, row_cases,
                            attention_cases, route_cases})
    for (OpCase& each : family(tokens)) cases.push_back(std::move(each));
  return cases;
}

}  // namespace stepc::test
