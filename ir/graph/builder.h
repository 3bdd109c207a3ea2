// Builds one program of a module. Every call appends a node whose result types come from the op's
// shape rule; a wrong operand is a bug of the caller (CHECK). Reading IR from users goes through
// parse.h, which reports errors instead.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "ir/graph/graph.h"

namespace stepc {

class GraphBuilder {
 public:
  // Continues the module's program of that name, or adds one. Other programs may be added meanwhile.
  GraphBuilder(Module& module, std::string program_name);

  // The general form. Attributes may come in any order. `type` is needed only where the op's result type is declared
  // rather than inferred (leaves, cast, reshape, broadcast, matmul's dtype, scatter_add_rows): see the op table.
  std::vector<ValueId> emit(Op op, std::vector<ValueId> operands, Attrs attrs = {}, TensorType type = {});
  ValueId emit1(Op op, std::vector<ValueId> operands, Attrs attrs = {}, TensorType type = {});

  ValueId input(std::string name, TensorType type);
  ValueId persistent(std::string_view name);  // param or state, one node per name
  ValueId constant(double value, TensorType type);
  ValueId iota(int64_t axis, Shape shape);
  ValueId unary(Op op, ValueId x);
  ValueId binary(Op op, ValueId a, ValueId b);  // shapes equal; a scalar (rank 0) is broadcast
  ValueId add(ValueId a, ValueId b) { return binary(Op::add, a, b); }
  ValueId sub(ValueId a, ValueId b) { return binary(Op::sub, a, b); }
  ValueId mul(ValueId a, ValueId b) { return binary(Op::mul, a, b); }
  ValueId div(ValueId a, ValueId b) { return binary(Op::div, a, b); }
  ValueId add(ValueId a, double b);
  ValueId mul(ValueId a, double b);
  ValueId select(ValueId condition, ValueId a, ValueId b);
  ValueId cast(ValueId x, Dtype dtype);  // x itself if it has that dtype
  ValueId reshape(ValueId x, Shape shape);
  ValueId transpose(ValueId x, std::vector<int64_t> permutation);
  ValueId broadcast(ValueId x, Shape shape, std::vector<int64_t> axes);
  ValueId slice(ValueId x, int64_t axis, int64_t start, int64_t limit);  // along one axis
  ValueId reduce(Op op, ValueId x, std::vector<int64_t> axes);
  ValueId matmul(ValueId a, ValueId b, Dtype out, bool transpose_a = false, bool transpose_b = false,
                 ValueId count = ValueId::none);
  void assign(std::string_view name, ValueId x);
  void output(std::string name, ValueId x);

  // Phase and name hint of the nodes that follow. Names are made unique by a suffix.
  void set_phase(Phase phase) { phase_ = phase; }
  void set_name_hint(std::string hint) { hint_ = std::move(hint); }
  Phase phase() const { return phase_; }
  const std::string& name_hint() const { return hint_; }

  const TensorType& type(ValueId id) const;
  const Shape& shape(ValueId id) const { return type(id).shape; }
  Program& program();
  Module& module() { return module_; }

 private:
  std::string unique_name(std::string base);

  Module& module_;
  size_t program_index_;
  Phase phase_ = Phase::forward;
  std::string hint_;
  std::unordered_map<std::string, ValueId> persistents_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, int> next_suffix_;
};

}  // namespace stepc
