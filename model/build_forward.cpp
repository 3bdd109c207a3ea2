#include "model/forward.h"
#include "model/layers.h"
#include "model/parameters.h"

namespace stepc {
namespace {

class BlockBuilder {
 public:
  BlockBuilder(GraphBuilder& g, const ModelConfig& model, int64_t layer) : g_(g), model_(model), layer_(layer) {}

  ValueId attention_part(ValueId x, ValueId table) {
    hint("attn");
    const ValueId wide = g_.cast(x, Dtype::f32);
    const ValueId h = g_.cast(rms_norm(g_, wide, weight("attn_norm"), model_.norm_eps), storage_dtype(model_));
    const ValueId mixed = attention(g_, model_, h, {weight("qkv"), weight("attn_out")}, table);
    return g_.cast(g_.add(wide, mixed), storage_dtype(model_));
  }

  ValueId feed_forward_part(ValueId x, int64_t capacity, Forward& result) {
    hint("ffn");
    const ValueId wide = g_.cast(x, Dtype::f32);
    const ValueId h = g_.cast(rms_norm(g_, wide, weight("ffn_norm"), model_.norm_eps), storage_dtype(model_));
    const ValueId made = is_dense(model_) ? dense(h) : routed(h, capacity, result);
    return g_.cast(g_.add(wide, made), storage_dtype(model_));
  }

 private:
  ValueId weight(std::string_view name) { return g_.persistent(fmt::format("blocks.{}.{}", layer_, name)); }
  void hint(std::string_view part) { g_.set_name_hint(fmt::format("b{}.{}", layer_, part)); }

  ValueId dense(ValueId h) {
    const Shape shape = g_.shape(h);
    const ValueId x = g_.reshape(h, {1, shape[0], shape[1]});
    return g_.reshape(g_.cast(experts(g_, x, {weight("gate_up"), weight("down")}), Dtype::f32), shape);
  }

  ValueId routed(ValueId h, int64_t capacity, Forward& result) {
    hint("router");
    const Routing routing = router(g_, model_, h, weight("router"), capacity);
    result.choices.push_back(routing.expert);
    result.counts.push_back(routing.count);
    result.balances.push_back(balance_loss(g_, routing));
    hint("moe");
    return mixture(g_, model_, h, routing, {weight("gate_up"), weight("down")}, capacity);
  }

  GraphBuilder& g_;
  const ModelConfig& model_;
  int64_t layer_;
};

}  // namespace

Forward forward(GraphBuilder& g, const ModelConfig& model, ValueId tokens, int64_t capacity) {
  g.set_name_hint("rope");
  const ValueId table = rope_table(g, model.seq, model.head_dim, model.rope_theta);
  g.set_name_hint("x");
  const ValueId ids = g.reshape(tokens, {numel(g.shape(tokens))});
  Forward result;
  ValueId x = g.emit1(Op::gather_rows, {g.persistent("embed"), ids});
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    BlockBuilder block(g, model, layer);
    x = block.attention_part(x, table);
    x = block.feed_forward_part(x, capacity, result);
  }
  result.residual = x;
  return result;
}

ValueId head_logits(GraphBuilder& g, const ModelConfig& model, ValueId residual) {
  const ValueId weight = g.persistent("head");  // before other values take its name
  g.set_name_hint("head");
  const ValueId wide = g.cast(residual, Dtype::f32);
  const ValueId h = g.cast(rms_norm(g, wide, g.persistent("final_norm"), model.norm_eps), storage_dtype(model));
  return g.matmul(h, weight, storage_dtype(model));
}

ValueId token_loss(GraphBuilder& g, const ModelConfig& model, const Forward& result, ValueId targets) {
  const ValueId logits = g.cast(head_logits(g, model, result.residual), Dtype::f32);
  g.set_name_hint("loss");
  return cross_entropy(g, logits, g.reshape(targets, {g.shape(logits)[0]}), model.vocab);
}

}  // namespace stepc
