// Shape rules, named by the op table's column: infer_<rule> checks an op's operands and attributes and
// gives its result types. The operand count and the presence and kind of attributes are already checked.
// A rule without a declaration here does not compile (verify.cpp expands the table to these names).
#pragma once

#include "ir/graph/graph.h"
#include "ir/graph/print.h"

namespace stepc {

struct RuleInput {
  Op op;
  const std::vector<TensorType>& operands;
  const Attrs& attrs;
  const std::vector<TensorType>& declared;  // one per result for ops that declare theirs

  const TensorType& operand(size_t i) const { return operands[i]; }
  const Shape& shape(size_t i) const { return operands[i].shape; }
};
using Types = std::vector<TensorType>;
using ShapeRule = Result<Types> (*)(const RuleInput&);

// verify_pointwise.cpp: leaves and pointwise ops
Result<Types> infer_declared(const RuleInput& in);
Result<Types> infer_declared_random(const RuleInput& in);
Result<Types> infer_persistent(const RuleInput& in);
Result<Types> infer_arithmetic(const RuleInput& in);
Result<Types> infer_floating(const RuleInput& in);
Result<Types> infer_integer(const RuleInput& in);
Result<Types> infer_logical(const RuleInput& in);
Result<Types> infer_compare(const RuleInput& in);
Result<Types> infer_test(const RuleInput& in);
Result<Types> infer_cast(const RuleInput& in);
Result<Types> infer_unit_from_bits(const RuleInput& in);
Result<Types> infer_same(const RuleInput& in);
Result<Types> infer_select(const RuleInput& in);
// verify_views.cpp: views and reductions
Result<Types> infer_reshape(const RuleInput& in);
Result<Types> infer_transpose(const RuleInput& in);
Result<Types> infer_broadcast(const RuleInput& in);
Result<Types> infer_slice(const RuleInput& in);
Result<Types> infer_pad(const RuleInput& in);
Result<Types> infer_reverse(const RuleInput& in);
Result<Types> infer_concat(const RuleInput& in);
Result<Types> infer_reduce(const RuleInput& in);
// verify_structured.cpp: contraction, rows, structured ops and effects
Result<Types> infer_matmul(const RuleInput& in);
Result<Types> infer_gather_rows(const RuleInput& in);
Result<Types> infer_scatter_add_rows(const RuleInput& in);
Result<Types> infer_attention(const RuleInput& in);
Result<Types> infer_attention_grad(const RuleInput& in);
Result<Types> infer_route(const RuleInput& in);
Result<Types> infer_assign(const RuleInput& in);
Result<Types> infer_output(const RuleInput& in);

// infer_types without the comparison of the result with `declared`: the builder declares only what the
// op does not infer.
Result<Types> infer_results(Op op, const Types& operands, const Attrs& attrs, const Types& declared);

template <class... Args>
tl::unexpected<Error> rule_error(const RuleInput& in, fmt::format_string<Args...> format, Args&&... args) {
  return user_error("{}: {}", op_info(in.op).name, fmt::format(format, std::forward<Args>(args)...));
}

// "expected operand 2 of ..., found f32[3]"; operands count from 1 in messages.
template <class... Args>
tl::unexpected<Error> operand_error(const RuleInput& in, size_t i, fmt::format_string<Args...> format, Args&&... args) {
  return rule_error(in, "expected operand {} {}, found {}", i + 1, fmt::format(format, std::forward<Args>(args)...),
                    type_text(in.operand(i)));
}

}  // namespace stepc
