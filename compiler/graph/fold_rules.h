// The rules of fold: each looks at one node, whose operands are already folded, and says what to put in its
// place. Rules never look at who reads the node.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

struct FoldInput {
  const Program& program;    // where the operands live
  const Node& node;          // with one result
  const TensorType& result;  // its type

  ValueId x(size_t i = 0) const { return node.operands[i]; }
  const TensorType& type(size_t i = 0) const { return program.type(node.operands[i]); }
  const Node& producer(size_t i = 0) const { return program.producer(node.operands[i]); }
  // The value of every element, where the operand is a constant.
  std::optional<double> constant(size_t i = 0) const {
    if (producer(i).op != Op::constant) return std::nullopt;
    return producer(i).attrs.real(AttrKey::value);
  }
};

// Either a value that is there already, or another node with the same result type.
struct Folded {
  ValueId same_as = ValueId::none;
  Op op = Op::constant;
  std::vector<ValueId> operands;
  Attrs attrs;
};
using FoldRule = std::optional<Folded> (*)(const FoldInput&);

inline Folded same_as(ValueId value) { return {value, Op::constant, {}, {}}; }
inline Folded constant_of(double value) { return {ValueId::none, Op::constant, {}, {{AttrKey::value, value}}}; }

// fold_constants.cpp
std::optional<Folded> fold_constant_operands(const FoldInput& in);
std::optional<Folded> fold_view_of_constant(const FoldInput& in);
// fold_views.cpp
std::optional<Folded> fold_identity_view(const FoldInput& in);
std::optional<Folded> fold_view_of_view(const FoldInput& in);
// fold_arithmetic.cpp
std::optional<Folded> fold_neutral_operand(const FoldInput& in);
std::optional<Folded> fold_select(const FoldInput& in);
std::optional<Folded> fold_cast(const FoldInput& in);
std::optional<Folded> fold_stop_gradient(const FoldInput& in);

}  // namespace stepc
