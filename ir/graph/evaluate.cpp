// The evaluator's walk: nodes in order, results rounded to their dtypes, values dropped after their last
// reader, assigned states committed at the end.
#include "ir/graph/evaluate.h"

#include <array>
#include <cmath>

#include "ir/graph/evaluate_rules.h"
#include "ir/graph/print.h"

namespace stepc {
namespace {

constexpr std::array<EvalRule, kOpCount> kEvalRules = {
#define OP(name, ...) eval_##name,
#include "ir/graph/graph_ops.def"
#undef OP
};

// 4 GiB of doubles. The evaluator is a reference for small cases.
constexpr int64_t kMaxElements = int64_t{1} << 29;

void round_to_dtype(Tensor& tensor, Precision precision) {
  switch (tensor.type.dtype) {
    case Dtype::f32:
      if (precision == Precision::f32)
        for (double& x : tensor.data) x = static_cast<double>(static_cast<float>(x));
      return;
    case Dtype::bf16:
      for (double& x : tensor.data) x = static_cast<double>(round_to_bf16(x));
      return;
    case Dtype::i32:
    case Dtype::pred: return;
  }
}

// The index of each value's last reader; its producer where there is none.
std::vector<size_t> last_readers(const Program& program) {
  std::vector<size_t> last(program.values.size());
  for (size_t v = 0; v < program.values.size(); ++v) last[v] = index_of(program.values[v].producer);
  for (size_t n = 0; n < program.nodes.size(); ++n)
    for (ValueId operand : program.nodes[n].operands) last[index_of(operand)] = n;
  return last;
}

class Evaluator {
 public:
  Evaluator(const Program& program, Precision precision, const TensorMap& inputs, TensorMap& persistents,
            TensorMap* trace)
      : program_(program), precision_(precision), inputs_(inputs), persistents_(persistents), trace_(trace) {}

  Result<TensorMap> run() {
    values_.resize(program_.values.size());
    const std::vector<size_t> last = last_readers(program_);
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[n];
      Status status = run_node(node);
      if (!status) return tl::unexpected(located(std::move(status).error(), node));
      for (const std::vector<ValueId>& ids : {node.operands, node.results})
        for (ValueId id : ids)
          if (last[index_of(id)] == n) values_[index_of(id)] = {};
    }
    for (auto& [name, tensor] : assigned_) persistents_[name] = std::move(tensor);
    return std::move(outputs_);
  }

 private:
  Status run_node(const Node& node) {
    Evaluation e{program_, node, precision_, {}, {}, inputs_, persistents_, assigned_, outputs_};
    for (ValueId id : node.operands) e.operands.push_back(&values_[index_of(id)]);
    for (ValueId id : node.results) {
      const TensorType& type = program_.type(id);
      const int64_t count = numel(type.shape);
      if (count > kMaxElements) return user_error("{} is too large for the evaluator", type_text(type));
      e.results.push_back({type, std::vector<double>(static_cast<size_t>(count))});
    }
    STEPC_TRY(kEvalRules[static_cast<size_t>(node.op)](e));
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Value& value = program_.value(node.results[i]);
      round_to_dtype(e.results[i], precision_);
      if (trace_) (*trace_)[value.name] = e.results[i];
      values_[index_of(node.results[i])] = std::move(e.results[i]);
    }
    return {};
  }

  Error located(Error error, const Node& node) const {
    error.where = node.where;
    const std::string value = node.results.empty() ? "" : fmt::format(", %{}", program_.value(node.results[0]).name);
    error.message = fmt::format("program @{}{}: {}: {}", program_.name, value, op_info(node.op).name, error.message);
    return error;
  }

  const Program& program_;
  Precision precision_;
  const TensorMap& inputs_;
  TensorMap& persistents_;
  TensorMap* trace_;
  std::vector<Tensor> values_;
  TensorMap assigned_;
  TensorMap outputs_;
};

}  // namespace

Result<TensorMap> evaluate(const Program& program, TensorMap& persistents, const TensorMap& inputs, Precision precision,
                           TensorMap* trace) {
  return Evaluator(program, precision, inputs, persistents, trace).run();
}

}  // namespace stepc
