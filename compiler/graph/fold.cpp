#include "compiler/graph/fold.h"

#include <array>

#include "compiler/graph/fold_rules.h"
#include "compiler/graph/rewrite.h"

namespace stepc {
namespace {

constexpr std::array<FoldRule, 8> kRules = {
    fold_stop_gradient,      // gradients are taken: x
    fold_constant_operands,  // pointwise on constants: computed
    fold_view_of_constant,   // the same constant under another shape
    fold_identity_view,      // reshape to the same shape, full slice, ...: x
    fold_view_of_view,       // reshape of reshape, transpose of transpose, ...: one of them
    fold_neutral_operand,    // x * 1, x - 0, x / 1, x + -0, i32 x + 0: x
    fold_select,             // a constant condition, equal arms
    fold_cast,               // to the same dtype; bf16 to f32 and back
};

std::optional<Folded> first_that_applies(const FoldInput& in) {
  for (FoldRule rule : kRules)
    if (auto folded = rule(in)) return folded;
  return std::nullopt;
}

// Rules apply until none does; operands come first, so one walk reaches the fixed point.
void fold_node(Rewriter& rewriter, Node node, const TensorType& result) {
  while (const auto folded = first_that_applies({rewriter.program(), node, result})) {
    if (folded->same_as != ValueId::none) return rewriter.replace(node.results[0], folded->same_as);
    node.op = folded->op;
    node.operands = folded->operands;
    node.attrs = folded->attrs;
  }
  rewriter.keep(node);
}

}  // namespace

void fold(Program& program) {
  Rewriter rewriter(program);
  for (const Node& old : program.nodes) {
    if (old.results.size() == 1)
      fold_node(rewriter, rewriter.mapped(old), program.type(old.results[0]));
    else
      rewriter.keep(rewriter.mapped(old));
  }
  program = rewriter.finish();
}

}  // namespace stepc
