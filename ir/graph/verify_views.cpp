// Shape rules of views and reductions.
#include <algorithm>

#include "ir/graph/verify_rules.h"

namespace stepc {
namespace {

Status check_count(const RuleInput& in, AttrKey key, size_t wanted) {
  const size_t found = in.attrs.integers(key).size();
  if (found != wanted)
    return rule_error(in, "expected {} values in {}, one per dimension, found {}", wanted, attr_name(key), found);
  return {};
}

// Axes are distinct and ascending, so that each set of them has one spelling.
Status check_axes(const RuleInput& in, size_t rank) {
  const std::vector<int64_t>& axes = in.attrs.integers(AttrKey::axes);
  int64_t last = -1;
  for (int64_t axis : axes) {
    if (axis <= last || axis >= static_cast<int64_t>(rank))
      return rule_error(in, "expected ascending axes in [0, {}), found {}", rank, shape_text(axes));
    last = axis;
  }
  return {};
}

}  // namespace

Result<Types> infer_reshape(const RuleInput& in) {
  const Shape& to = in.declared[0].shape;
  const auto count = checked_numel(to);
  if (!count || *count != numel(in.shape(0)))
    return rule_error(in, "expected a result of {} elements, found {}", numel(in.shape(0)), shape_text(to));
  return Types{{in.operand(0).dtype, to}};
}

Result<Types> infer_transpose(const RuleInput& in) {
  const std::vector<int64_t>& permutation = in.attrs.integers(AttrKey::permutation);
  const size_t rank = in.shape(0).size();
  STEPC_TRY(check_count(in, AttrKey::permutation, rank));
  std::vector<bool> seen(rank, false);
  Shape result;
  for (int64_t from : permutation) {
    const bool valid = from >= 0 && from < static_cast<int64_t>(rank) && !seen[static_cast<size_t>(from)];
    if (!valid) return rule_error(in, "expected a permutation of 0 to {}, found {}", rank - 1, shape_text(permutation));
    seen[static_cast<size_t>(from)] = true;
    result.push_back(in.shape(0)[static_cast<size_t>(from)]);
  }
  return Types{{in.operand(0).dtype, result}};
}

Result<Types> infer_broadcast(const RuleInput& in) {
  const Shape& to = in.declared[0].shape;
  STEPC_TRY(check_count(in, AttrKey::axes, in.shape(0).size()));
  STEPC_TRY(check_axes(in, to.size()));
  const std::vector<int64_t>& axes = in.attrs.integers(AttrKey::axes);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t extent = to[static_cast<size_t>(axes[i])];
    if (in.shape(0)[i] != extent)
      return rule_error(in, "expected extent {} along axis {} of the result, found {}", in.shape(0)[i], axes[i],
                        shape_text(to));
  }
  return Types{{in.operand(0).dtype, to}};
}

Result<Types> infer_slice(const RuleInput& in) {
  const Shape& from = in.shape(0);
  STEPC_TRY(check_count(in, AttrKey::start, from.size()));
  STEPC_TRY(check_count(in, AttrKey::limit, from.size()));
  Shape result;
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t start = in.attrs.integers(AttrKey::start)[i];
    const int64_t limit = in.attrs.integers(AttrKey::limit)[i];
    if (start < 0 || limit < start || limit > from[i])
      return rule_error(in, "expected 0 <= start <= limit <= {} along dimension {}, found start {} and limit {}",
                        from[i], i, start, limit);
    result.push_back(limit - start);
  }
  return Types{{in.operand(0).dtype, result}};
}

Result<Types> infer_pad(const RuleInput& in) {
  Shape result = in.shape(0);
  STEPC_TRY(check_count(in, AttrKey::low, result.size()));
  STEPC_TRY(check_count(in, AttrKey::high, result.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t low = in.attrs.integers(AttrKey::low)[i];
    const int64_t high = in.attrs.integers(AttrKey::high)[i];
    if (low < 0 || high < 0)
      return rule_error(in, "expected low and high of at least 0, found {} and {} along dimension {}", low, high, i);
    if (__builtin_add_overflow(result[i], low, &result[i]) || __builtin_add_overflow(result[i], high, &result[i]))
      return rule_error(in, "the extent along dimension {} does not fit 64 bits", i);
  }
  return Types{{in.operand(0).dtype, result}};
}

Result<Types> infer_reverse(const RuleInput& in) {
  STEPC_TRY(check_axes(in, in.shape(0).size()));
  return Types{in.operand(0)};
}

Result<Types> infer_concat(const RuleInput& in) {
  const int64_t axis = in.attrs.integer(AttrKey::axis);
  const size_t rank = in.shape(0).size();
  if (axis < 0 || axis >= static_cast<int64_t>(rank))
    return rule_error(in, "expected axis in [0, {}), found {}", rank, axis);
  TensorType result = in.operand(0);
  int64_t& extent = result.shape[static_cast<size_t>(axis)];
  for (size_t i = 1; i < in.operands.size(); ++i) {
    TensorType like_first = in.operand(i);
    const bool same_rank = like_first.shape.size() == rank;
    const int64_t added = same_rank ? like_first.shape[static_cast<size_t>(axis)] : 0;
    if (same_rank) like_first.shape[static_cast<size_t>(axis)] = in.shape(0)[static_cast<size_t>(axis)];
    if (like_first != in.operand(0))
      return operand_error(in, i, "to equal {} but along axis {}", type_text(in.operand(0)), axis);
    if (__builtin_add_overflow(extent, added, &extent))
      return rule_error(in, "the extent along axis {} does not fit 64 bits", axis);
  }
  return Types{result};
}

Result<Types> infer_reduce(const RuleInput& in) {
  if (in.operand(0).dtype != Dtype::f32) return operand_error(in, 0, "of dtype f32");
  STEPC_TRY(check_axes(in, in.shape(0).size()));
  const std::vector<int64_t>& axes = in.attrs.integers(AttrKey::axes);
  Shape kept;
  for (size_t i = 0; i < in.shape(0).size(); ++i)
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i))) kept.push_back(in.shape(0)[i]);
  return Types{{Dtype::f32, kept}};
}

}  // namespace stepc
