// The evaluator's entries, eval_<op> for each row of the op table (a missing one does not compile). An
// entry computes in double; evaluate.cpp rounds its results to their dtypes afterwards, in one place.
#pragma once

#include "ir/graph/evaluate.h"

namespace stepc {

// One node being evaluated.
struct Evaluation {
  const Program& program;
  const Node& node;
  Precision precision;
  std::vector<const Tensor*> operands;
  std::vector<Tensor> results;  // of the right types, their data zero
  const TensorMap& inputs;
  const TensorMap& persistents;
  TensorMap& assigned;
  TensorMap& outputs;

  const double* data(size_t i) const { return operands[i]->data.data(); }
  const Shape& shape(size_t i) const { return operands[i]->type.shape; }
  double* result(size_t i = 0) { return results[i].data.data(); }
  const Shape& result_shape(size_t i = 0) const { return results[i].type.shape; }
  size_t result_count(size_t i = 0) const { return results[i].data.size(); }
};

using EvalRule = Status (*)(Evaluation&);

#define OP(name, ...) Status eval_##name(Evaluation& e);
#include "ir/graph/graph_ops.def"
#undef OP

}  // namespace stepc
