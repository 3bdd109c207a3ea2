// Rules for views: those that change nothing, and two of a kind that are one.
#include <algorithm>

#include "compiler/graph/fold_rules.h"

namespace stepc {
namespace {

using Integers = std::vector<int64_t>;

bool is_identity_permutation(const Integers& permutation) {
  for (size_t i = 0; i < permutation.size(); ++i)
    if (permutation[i] != static_cast<int64_t>(i)) return false;
  return true;
}

bool is_identity_reverse(const FoldInput& in) {
  const Integers& axes = in.node.attrs.integers(AttrKey::axes);
  return std::all_of(axes.begin(), axes.end(),
                     [&](int64_t axis) { return in.type().shape[static_cast<size_t>(axis)] <= 1; });
}

// first[second[i]] for every i.
Integers composed(const Integers& first, const Integers& second) {
  Integers result;
  for (int64_t i : second) result.push_back(first[static_cast<size_t>(i)]);
  return result;
}

Integers sum(const Integers& a, const Integers& b) {
  Integers result;
  for (size_t i = 0; i < a.size(); ++i) result.push_back(a[i] + b[i]);
  return result;
}

Attrs composed_attrs(Op op, const Attrs& inner, const Attrs& outer) {
  const auto with = [&](AttrKey key, auto combine) {
    return Attrs::Entry{key, combine(inner.integers(key), outer.integers(key))};
  };
  using enum AttrKey;
  if (op == Op::transpose) return {with(permutation, composed)};
  if (op == Op::broadcast) return {{axes, composed(outer.integers(axes), inner.integers(axes))}};
  if (op == Op::slice) return {with(start, sum), {limit, sum(inner.integers(start), outer.integers(limit))}};
  if (op == Op::pad) return {with(low, sum), with(high, sum)};
  if (op == Op::reverse) {
    Integers once;
    std::set_symmetric_difference(inner.integers(axes).begin(), inner.integers(axes).end(),
                                  outer.integers(axes).begin(), outer.integers(axes).end(), std::back_inserter(once));
    return {{axes, once}};
  }
  return {};
}

}  // namespace

std::optional<Folded> fold_identity_view(const FoldInput& in) {
  if (op_info(in.node.op).family != OpFamily::view || in.result != in.type()) return std::nullopt;
  if (in.node.op == Op::transpose && !is_identity_permutation(in.node.attrs.integers(AttrKey::permutation)))
    return std::nullopt;
  if (in.node.op == Op::reverse && !is_identity_reverse(in)) return std::nullopt;
  if (in.node.op == Op::concat && in.node.operands.size() > 1) return std::nullopt;
  return same_as(in.x());
}

std::optional<Folded> fold_view_of_view(const FoldInput& in) {
  if (op_info(in.node.op).family != OpFamily::view || in.node.op == Op::concat) return std::nullopt;
  const Node& inner = in.producer();
  if (inner.op != in.node.op) return std::nullopt;
  return Folded{ValueId::none, inner.op, inner.operands, composed_attrs(inner.op, inner.attrs, in.node.attrs)};
}

}  // namespace stepc
