// Evaluator entries of leaves and effects.
#include <cmath>
#include <limits>

#include "ir/graph/evaluate_rules.h"
#include "ir/graph/print.h"

namespace stepc {
namespace {

bool is_int32(double x) {
  return x >= std::numeric_limits<int32_t>::min() && x <= std::numeric_limits<int32_t>::max() && x == std::floor(x);
}

// A tensor handed in from outside must have the declared type and hold values of its dtype.
Status check_given(const Tensor& found, const TensorType& wanted, std::string_view name) {
  if (found.type != wanted)
    return user_error("expected {} for {}, found {}", type_text(wanted), name, type_text(found.type));
  const auto count = static_cast<size_t>(numel(wanted.shape));
  if (found.data.size() != count)
    return user_error("expected {} elements for {}, found {}", count, name, found.data.size());
  for (double x : found.data) {
    const bool valid = wanted.dtype == Dtype::i32 ? is_int32(x) : wanted.dtype != Dtype::pred || x == 0 || x == 1;
    if (!valid) return user_error("expected elements of {} for {}, found {}", dtype_name(wanted.dtype), name, x);
  }
  return {};
}

Status read_given(Evaluation& e, const TensorMap& from) {
  const std::string& name = e.node.attrs.text(AttrKey::name);
  const auto found = from.find(name);
  if (found == from.end()) return user_error("no tensor was given for {}", name);
  STEPC_TRY(check_given(found->second, e.results[0].type, name));
  e.results[0].data = found->second.data;
  return {};
}

}  // namespace

Status eval_input(Evaluation& e) { return read_given(e, e.inputs); }
Status eval_param(Evaluation& e) { return read_given(e, e.persistents); }
Status eval_state(Evaluation& e) { return read_given(e, e.persistents); }

Status eval_constant(Evaluation& e) {
  e.results[0].data.assign(e.result_count(), e.node.attrs.real(AttrKey::value));
  return {};
}

Status eval_iota(Evaluation& e) {
  const auto axis = static_cast<size_t>(e.node.attrs.integer(AttrKey::axis));
  if (e.result_count() == 0) return {};
  const auto stride = static_cast<size_t>(row_major_strides(e.result_shape())[axis]);
  const auto extent = static_cast<size_t>(e.result_shape()[axis]);
  for (size_t i = 0; i < e.result_count(); ++i) e.result()[i] = static_cast<double>(i / stride % extent);
  return {};
}

Status eval_random_bits(Evaluation& e) {
  const auto word = [&](size_t i) { return static_cast<uint32_t>(static_cast<int32_t>(e.data(i)[0])); };
  for (size_t i = 0; i < e.result_count(); ++i)
    e.result()[i] = static_cast<int32_t>(philox_word(word(0), word(1), word(2), i));
  return {};
}

Status eval_assign(Evaluation& e) {
  e.assigned[e.node.attrs.text(AttrKey::name)] = *e.operands[0];
  return {};
}

Status eval_output(Evaluation& e) {
  e.outputs[e.node.attrs.text(AttrKey::name)] = *e.operands[0];
  return {};
}

}  // namespace stepc
