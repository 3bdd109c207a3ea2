#include "ir/kernel/types.h"

#include <algorithm>

#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

std::string dtypes_text(const std::vector<Dtype>& dtypes) {
  std::string text;
  for (Dtype dtype : dtypes) text += fmt::format("{}{}", text.empty() ? "" : ", ", dtype_name(dtype));
  return text;
}

tl::unexpected<Error> mismatch(Op op, const std::vector<Dtype>& operands, std::string_view expected) {
  return user_error("{} takes {}, found {}", op_info(op).name, expected, dtypes_text(operands));
}

bool all_are(const std::vector<Dtype>& dtypes, Dtype dtype) {
  return std::all_of(dtypes.begin(), dtypes.end(), [&](Dtype each) { return each == dtype; });
}

bool is_cast(Dtype from, Dtype to) {
  switch (from) {
    case Dtype::f32: return to == Dtype::bf16 || to == Dtype::i32 || to == Dtype::f32;
    case Dtype::bf16: return to == Dtype::f32 || to == Dtype::bf16;
    case Dtype::i32: return to == Dtype::f32 || to == Dtype::i32;
    case Dtype::pred: return to == Dtype::f32 || to == Dtype::i32 || to == Dtype::pred;
  }
  STEPC_UNREACHABLE("dtype {}", static_cast<int>(from));
}

Result<Dtype> arithmetic(Op op, const std::vector<Dtype>& operands) {
  if (all_are(operands, Dtype::f32) || all_are(operands, Dtype::i32)) return operands[0];
  return mismatch(op, operands, "f32 or i32 operands of one dtype");
}

Result<Dtype> all_of(Op op, const std::vector<Dtype>& operands, Dtype operand, Dtype result) {
  if (all_are(operands, operand)) return result;
  return mismatch(op, operands, fmt::format("{} operands", dtype_name(operand)));
}

}  // namespace

bool is_pointwise(Op op) { return (op >= Op::neg && op <= Op::select) || op == Op::exp2; }

Result<Dtype> pointwise_dtype(Op op, const std::vector<Dtype>& operands, Dtype declared) {
  STEPC_CHECK(is_pointwise(op) && operands.size() == op_info(op).operands.size(), "{}", op_info(op).name);
  const auto is_one_of = [op](std::initializer_list<Op> ops) {
    return std::find(ops.begin(), ops.end(), op) != ops.end();
  };
  if (is_one_of({Op::neg, Op::abs, Op::add, Op::sub, Op::mul, Op::div, Op::max, Op::min}))
    return arithmetic(op, operands);
  if (op == Op::rem) return all_of(op, operands, Dtype::i32, Dtype::i32);
  if (op == Op::is_finite) return all_of(op, operands, Dtype::f32, Dtype::pred);
  if (op == Op::unit_from_bits) return all_of(op, operands, Dtype::i32, Dtype::f32);
  if (is_one_of({Op::logical_not, Op::logical_and, Op::logical_or}))
    return all_of(op, operands, Dtype::pred, Dtype::pred);
  if (is_one_of({Op::equal, Op::less, Op::less_equal})) {
    STEPC_TRY(arithmetic(op, operands));
    return Dtype::pred;
  }
  if (op == Op::cast) {
    if (is_cast(operands[0], declared)) return declared;
    return user_error("no cast from {} to {}", dtype_name(operands[0]), dtype_name(declared));
  }
  if (op == Op::select) {
    if (operands[0] == Dtype::pred && operands[1] == operands[2]) return operands[1];
    return mismatch(op, operands, "pred and two operands of one dtype");
  }
  return all_of(op, operands, Dtype::f32, Dtype::f32);
}

}  // namespace stepc::kernel
