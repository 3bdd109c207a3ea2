// Rules for arithmetic, select and cast. f32 has two zeros: x + 0 turns -0 into 0, so it stays; x - 0 and
// x + -0 do not. A NaN stays a NaN under each.
#include <cmath>

#include "compiler/graph/fold_rules.h"
#include "ir/dtype.h"

namespace stepc {
namespace {

// Whether the constant c in place of operand i leaves the other operand as it is.
bool is_neutral(Op op, size_t i, double c, Dtype dtype) {
  const bool is_zero = c == 0.0;
  if (op == Op::mul) return c == 1.0;
  if (op == Op::div) return i == 1 && c == 1.0;
  if (op == Op::add) return is_zero && (dtype == Dtype::i32 || std::signbit(c));
  if (op == Op::sub) return i == 1 && is_zero && (dtype == Dtype::i32 || !std::signbit(c));
  if (op == Op::logical_and) return c == 1.0;
  if (op == Op::logical_or) return is_zero;
  return false;
}

}  // namespace

std::optional<Folded> fold_neutral_operand(const FoldInput& in) {
  if (in.node.operands.size() != 2) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const auto c = in.constant(i);
    if (c && is_neutral(in.node.op, i, *c, in.result.dtype)) return same_as(in.x(1 - i));
  }
  return std::nullopt;
}

std::optional<Folded> fold_select(const FoldInput& in) {
  if (in.node.op != Op::select) return std::nullopt;
  if (const auto condition = in.constant(0)) return same_as(in.x(*condition != 0.0 ? 1 : 2));
  if (in.x(1) == in.x(2)) return same_as(in.x(1));
  return std::nullopt;
}

std::optional<Folded> fold_cast(const FoldInput& in) {
  if (in.node.op != Op::cast) return std::nullopt;
  if (in.result.dtype == in.type().dtype) return same_as(in.x());
  const Node& inner = in.producer();
  if (inner.op != Op::cast) return std::nullopt;
  const ValueId source = inner.operands[0];
  const Dtype source_dtype = in.program.type(source).dtype;
  // bf16 -> f32 -> bf16: every bf16 value is an f32 value.
  if (source_dtype == Dtype::bf16 && in.result.dtype == Dtype::bf16) return same_as(source);
  // f32 -> bf16 -> f32 of a constant: rounded here.
  const Node& number = in.program.producer(source);
  if (number.op == Op::constant && source_dtype == Dtype::f32 && in.type().dtype == Dtype::bf16) {
    const auto exact = static_cast<float>(number.attrs.real(AttrKey::value));
    return constant_of(static_cast<double>(f32_from_bf16(bf16_from_f32(exact))));
  }
  return std::nullopt;
}

std::optional<Folded> fold_stop_gradient(const FoldInput& in) {
  if (in.node.op != Op::stop_gradient) return std::nullopt;
  return same_as(in.x());
}

}  // namespace stepc
