// Programs without gradients: the loss of a batch, and the logits to sample from.
#include "model/forward.h"

namespace stepc {

void build_eval(Module& module, const Config& config) {
  const ModelConfig& model = config.model;
  GraphBuilder g(module, "eval");
  const TensorType ids{Dtype::i32, {config.train.batch, model.seq}};
  const ValueId tokens = g.input("tokens", ids);
  const ValueId targets = g.input("targets", ids);
  const Forward result = forward(g, model, tokens, expert_capacity(model, numel(ids.shape)));
  g.output("loss", token_loss(g, model, result, targets));
}

void build_sample(Module& module, const Config& config) {
  const ModelConfig& model = config.model;
  GraphBuilder g(module, "sample");
  const ValueId tokens = g.input("tokens", {Dtype::i32, {1, model.seq}});
  const ValueId position = g.input("position", {Dtype::i32, {1}});
  // With a slot for every token nothing is dropped, so later (unwritten) tokens do not touch earlier ones.
  const Forward result = forward(g, model, tokens, model.seq);
  const ValueId row = g.emit1(Op::gather_rows, {result.residual, position});
  const ValueId logits = g.slice(g.cast(head_logits(g, model, row), Dtype::f32), 1, 0, model.vocab);
  g.output("logits", g.reshape(logits, {model.vocab}));
}

}  // namespace stepc
