// Rules for constants: a value all of whose elements are one number stays one under pointwise ops and views.
#include <bit>

#include "compiler/graph/fold_rules.h"
#include "ir/graph/evaluate.h"

namespace stepc {
namespace {

// The op applied to one element of each operand, by the reference evaluator; nullopt where that is an error
// (i32 division by zero), which is left for the run to report.
std::optional<double> computed(const FoldInput& in) {
  Program program;
  program.name = "fold";
  const auto append = [&](Op op, std::vector<ValueId> operands, Attrs attrs, Dtype dtype) {
    const auto result = static_cast<ValueId>(program.values.size());
    program.values.push_back(
        {fmt::format("v{}", index_of(result)), {dtype, {}}, static_cast<NodeId>(program.nodes.size())});
    program.nodes.push_back({op, std::move(operands), {result}, std::move(attrs), Phase::forward, {}});
    return result;
  };
  std::vector<ValueId> operands;
  for (size_t i = 0; i < in.node.operands.size(); ++i)
    operands.push_back(append(Op::constant, {}, {{AttrKey::value, *in.constant(i)}}, in.type(i).dtype));
  const ValueId result = append(in.node.op, operands, in.node.attrs, in.result.dtype);
  program.nodes.push_back({Op::output, {result}, {}, {{AttrKey::name, std::string("y")}}, Phase::forward, {}});
  TensorMap no_persistents;
  const Result<TensorMap> outputs = evaluate(program, no_persistents, {}, Precision::f32);
  if (!outputs) return std::nullopt;
  return outputs->at("y").data[0];
}

bool all_constant(const FoldInput& in) {
  for (size_t i = 0; i < in.node.operands.size(); ++i)
    if (!in.constant(i)) return false;
  return !in.node.operands.empty();
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

}  // namespace

std::optional<Folded> fold_constant_operands(const FoldInput& in) {
  // There are no bf16 constants: a cast to bf16 stays.
  if (op_info(in.node.op).family != OpFamily::pointwise || in.result.dtype == Dtype::bf16) return std::nullopt;
  if (!all_constant(in)) return std::nullopt;
  const auto value = computed(in);
  if (!value) return std::nullopt;
  return constant_of(*value);
}

std::optional<Folded> fold_view_of_constant(const FoldInput& in) {
  if (op_info(in.node.op).family != OpFamily::view || !all_constant(in)) return std::nullopt;
  const double value = *in.constant(0);
  for (size_t i = 1; i < in.node.operands.size(); ++i)
    if (!same_bits(*in.constant(i), value)) return std::nullopt;
  // Padding is with +0: only the same constant stays one.
  if (in.node.op == Op::pad && in.type() != in.result && !same_bits(value, 0.0)) return std::nullopt;
  return constant_of(value);
}

}  // namespace stepc
