// Shape rules of leaves and pointwise ops. Pointwise operands have equal shapes: broadcasting is an op.
#include <limits>

#include "ir/graph/verify_rules.h"

namespace stepc {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt32Min = std::numeric_limits<int32_t>::min();

Status check_dtype(const RuleInput& in, size_t i, Dtype wanted) {
  if (in.operand(i).dtype != wanted) return operand_error(in, i, "of dtype {}", dtype_name(wanted));
  return {};
}

Status check_like_first(const RuleInput& in) {
  for (size_t i = 1; i < in.operands.size(); ++i)
    if (in.operand(i) != in.operand(0)) return operand_error(in, i, "of type {}", type_text(in.operand(0)));
  return {};
}

Status check_number(const RuleInput& in) {
  const Dtype dtype = in.operand(0).dtype;
  if (dtype != Dtype::f32 && dtype != Dtype::i32) return operand_error(in, 0, "of dtype f32 or i32");
  return check_like_first(in);
}

Status check_constant(const RuleInput& in, const TensorType& type) {
  const double value = in.attrs.real(AttrKey::value);
  if (type.dtype == Dtype::bf16) return rule_error(in, "expected a result of dtype f32, i32 or pred, found bf16");
  if (type.dtype == Dtype::pred && value != 0 && value != 1)
    return rule_error(in, "expected value 0 or 1 for pred, found {}", value);
  const bool fits = value >= static_cast<double>(kInt32Min) && value <= static_cast<double>(kInt32Max);
  if (type.dtype == Dtype::i32 && !(fits && value == static_cast<double>(static_cast<int64_t>(value))))
    return rule_error(in, "expected an integer of 32 bits as value for i32, found {}", value);
  return {};
}

Status check_iota(const RuleInput& in, const TensorType& type) {
  const int64_t axis = in.attrs.integer(AttrKey::axis);
  if (type.dtype != Dtype::i32) return rule_error(in, "expected a result of dtype i32, found {}", type_text(type));
  const int64_t rank = static_cast<int64_t>(type.shape.size());
  if (axis < 0 || axis >= rank) return rule_error(in, "expected axis in [0, {}), found {}", rank, axis);
  if (type.shape[static_cast<size_t>(axis)] > kInt32Max)
    return rule_error(in, "expected an extent of at most {} along the axis, found {}", kInt32Max, type_text(type));
  return {};
}

bool can_cast(Dtype from, Dtype to) {
  switch (from) {
    case Dtype::f32: return to == Dtype::bf16 || to == Dtype::i32;
    case Dtype::bf16: return to == Dtype::f32;
    case Dtype::i32: return to == Dtype::f32;
    case Dtype::pred: return to == Dtype::f32 || to == Dtype::i32;
  }
  return false;
}

}  // namespace

Result<Types> infer_declared(const RuleInput& in) {
  const TensorType& type = in.declared[0];
  if (in.op == Op::constant) STEPC_TRY(check_constant(in, type));
  if (in.op == Op::iota) STEPC_TRY(check_iota(in, type));
  return Types{type};
}

Result<Types> infer_declared_random(const RuleInput& in) {
  for (size_t i = 0; i < in.operands.size(); ++i)
    if (in.operand(i) != TensorType{Dtype::i32, {}}) return operand_error(in, i, "of type i32[]");
  if (in.declared[0].dtype != Dtype::i32)
    return rule_error(in, "expected a result of dtype i32, found {}", type_text(in.declared[0]));
  return Types{in.declared[0]};
}

// That the name exists and has this type is the verifier's to check: it knows the module.
Result<Types> infer_persistent(const RuleInput& in) { return Types{in.declared[0]}; }

Result<Types> infer_arithmetic(const RuleInput& in) {
  STEPC_TRY(check_number(in));
  return Types{in.operand(0)};
}

Result<Types> infer_floating(const RuleInput& in) {
  STEPC_TRY(check_dtype(in, 0, Dtype::f32));
  STEPC_TRY(check_like_first(in));
  return Types{in.operand(0)};
}

Result<Types> infer_integer(const RuleInput& in) {
  STEPC_TRY(check_dtype(in, 0, Dtype::i32));
  STEPC_TRY(check_like_first(in));
  return Types{in.operand(0)};
}

Result<Types> infer_logical(const RuleInput& in) {
  STEPC_TRY(check_dtype(in, 0, Dtype::pred));
  STEPC_TRY(check_like_first(in));
  return Types{in.operand(0)};
}

Result<Types> infer_compare(const RuleInput& in) {
  STEPC_TRY(check_number(in));
  return Types{{Dtype::pred, in.shape(0)}};
}

Result<Types> infer_test(const RuleInput& in) {
  STEPC_TRY(check_dtype(in, 0, Dtype::f32));
  return Types{{Dtype::pred, in.shape(0)}};
}

Result<Types> infer_cast(const RuleInput& in) {
  const Dtype from = in.operand(0).dtype;
  const Dtype to = in.declared[0].dtype;
  if (!can_cast(from, to)) return rule_error(in, "no cast from {} to {}", dtype_name(from), dtype_name(to));
  return Types{{to, in.shape(0)}};
}

Result<Types> infer_unit_from_bits(const RuleInput& in) {
  STEPC_TRY(check_dtype(in, 0, Dtype::i32));
  return Types{{Dtype::f32, in.shape(0)}};
}

Result<Types> infer_same(const RuleInput& in) { return Types{in.operand(0)}; }

Result<Types> infer_select(const RuleInput& in) {
  STEPC_TRY(check_dtype(in, 0, Dtype::pred));
  if (in.shape(1) != in.shape(0)) return operand_error(in, 1, "of shape {}", shape_text(in.shape(0)));
  if (in.operand(2) != in.operand(1)) return operand_error(in, 2, "of type {}", type_text(in.operand(1)));
  return Types{in.operand(1)};
}

}  // namespace stepc
