// Shape rules of the contraction, row gather and scatter, structured ops and effects.
#include <limits>

#include "ir/graph/verify_rules.h"

namespace stepc {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

bool is_floating(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::bf16; }

Status check_type(const RuleInput& in, size_t i, const TensorType& wanted) {
  if (in.operand(i) != wanted) return operand_error(in, i, "of type {}", type_text(wanted));
  return {};
}

// An operand that holds `count` row numbers.
Status check_index(const RuleInput& in, size_t i) {
  if (in.operand(i).dtype != Dtype::i32 || in.shape(i).size() != 1) return operand_error(in, i, "of type i32[N]");
  return {};
}

Status check_qkv(const RuleInput& in) {
  const TensorType& qkv = in.operand(0);
  if (qkv.dtype != Dtype::bf16 || qkv.shape.size() != 5 || qkv.shape[2] != 3)
    return operand_error(in, 0, "of type bf16[B, T, 3, H, d]");
  return {};
}

TensorType attention_out(const Shape& qkv) { return {Dtype::bf16, {qkv[0], qkv[1], qkv[3], qkv[4]}}; }
TensorType attention_lse(const Shape& qkv) { return {Dtype::f32, {qkv[0], qkv[3], qkv[1]}}; }

}  // namespace

Result<Types> infer_matmul(const RuleInput& in) {
  for (size_t i = 0; i < 2; ++i)
    if (!is_floating(in.operand(i).dtype) || in.shape(i).size() < 2)
      return operand_error(in, i, "of dtype f32 or bf16 and rank 2 or more");
  if (in.operand(1).dtype != in.operand(0).dtype)
    return operand_error(in, 1, "of dtype {} like operand 1", dtype_name(in.operand(0).dtype));
  const size_t rank = in.shape(0).size();
  const bool transpose_a = in.attrs.flag(AttrKey::transpose_a);
  const bool transpose_b = in.attrs.flag(AttrKey::transpose_b);
  Shape result = in.shape(0);
  const int64_t m = in.shape(0)[transpose_a ? rank - 1 : rank - 2];
  const int64_t k = in.shape(0)[transpose_a ? rank - 2 : rank - 1];
  // What b must be, leaving n open: the same batch dimensions and k.
  Shape wanted = in.shape(0);
  const bool same_rank = in.shape(1).size() == rank;
  const int64_t n = same_rank ? in.shape(1)[transpose_b ? rank - 2 : rank - 1] : 0;
  wanted[rank - 2] = transpose_b ? n : k;
  wanted[rank - 1] = transpose_b ? k : n;
  if (in.shape(1) != wanted)
    return rule_error(in, "expected operand 2 to share k = {} and the batch dimensions of {}, found {}", k,
                      type_text(in.operand(0)), type_text(in.operand(1)));
  if (in.operands.size() == 3) STEPC_TRY(check_type(in, 2, {Dtype::i32, Shape(result.begin(), result.end() - 2)}));
  if (!is_floating(in.declared[0].dtype))
    return rule_error(in, "expected a result of dtype f32 or bf16, found {}", type_text(in.declared[0]));
  result[rank - 2] = m;
  result[rank - 1] = n;
  return Types{{in.declared[0].dtype, result}};
}

Result<Types> infer_gather_rows(const RuleInput& in) {
  if (in.operand(0).dtype == Dtype::pred || in.shape(0).size() != 2)
    return operand_error(in, 0, "of dtype f32, bf16 or i32 and rank 2");
  STEPC_TRY(check_index(in, 1));
  if (in.operands.size() == 3) STEPC_TRY(check_type(in, 2, {Dtype::i32, {in.shape(0)[0]}}));
  return Types{{in.operand(0).dtype, {in.shape(1)[0], in.shape(0)[1]}}};
}

Result<Types> infer_scatter_add_rows(const RuleInput& in) {
  if (!is_floating(in.operand(0).dtype) || in.shape(0).size() != 2)
    return operand_error(in, 0, "of dtype f32 or bf16 and rank 2");
  STEPC_TRY(check_type(in, 1, {Dtype::i32, {in.shape(0)[0]}}));
  const TensorType& result = in.declared[0];
  if (result.dtype != Dtype::f32 || result.shape.size() != 2 || result.shape[1] != in.shape(0)[1])
    return rule_error(in, "expected a result of type f32[R, {}], found {}", in.shape(0)[1], type_text(result));
  return Types{result};
}

Result<Types> infer_attention(const RuleInput& in) {
  STEPC_TRY(check_qkv(in));
  return Types{attention_out(in.shape(0)), attention_lse(in.shape(0))};
}

Result<Types> infer_attention_grad(const RuleInput& in) {
  STEPC_TRY(check_qkv(in));
  STEPC_TRY(check_type(in, 1, attention_out(in.shape(0))));
  STEPC_TRY(check_type(in, 2, attention_lse(in.shape(0))));
  STEPC_TRY(check_type(in, 3, attention_out(in.shape(0))));
  return Types{in.operand(0)};
}

Result<Types> infer_route(const RuleInput& in) {
  if (in.operand(0).dtype != Dtype::f32 || in.shape(0).size() != 2) return operand_error(in, 0, "of type f32[N, E]");
  const int64_t tokens = in.shape(0)[0];
  const int64_t experts = in.shape(0)[1];
  const int64_t top = in.attrs.integer(AttrKey::top);
  const int64_t capacity = in.attrs.integer(AttrKey::capacity);
  if (top < 1 || top > experts) return rule_error(in, "expected top in [1, {}], found {}", experts, top);
  if (capacity < 1) return rule_error(in, "expected capacity of at least 1, found {}", capacity);
  int64_t assignments = 0;
  int64_t slots = 0;
  const bool overflow = __builtin_mul_overflow(tokens, top, &assignments) ||
                        __builtin_mul_overflow(experts, capacity, &slots) || assignments > kInt32Max ||
                        slots > kInt32Max;
  if (overflow) return rule_error(in, "expected at most {} assignments and slots", kInt32Max);
  return Types{
      {Dtype::i32, {tokens, top}}, {Dtype::i32, {assignments}}, {Dtype::i32, {slots}}, {Dtype::i32, {experts}}};
}

// That the name exists and has the operand's type is the verifier's to check: it knows the module.
Result<Types> infer_assign(const RuleInput&) { return Types{}; }

Result<Types> infer_output(const RuleInput&) { return Types{}; }

}  // namespace stepc
