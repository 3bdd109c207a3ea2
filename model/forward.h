// The forward part that training, evaluation and sampling share.
#pragma once

#include <vector>

#include "ir/graph/builder.h"
#include "model/config.h"

namespace stepc {

// The residual stream bf16[N, D] after all blocks, and what routing did (nothing for a dense model).
struct Forward {
  ValueId residual;
  std::vector<ValueId> choices;   // i32[N, K] per layer: the experts of each token
  std::vector<ValueId> counts;    // i32[E] per layer
  std::vector<ValueId> balances;  // balance loss per layer
};
// `tokens` is i32[B, T]; `capacity` is the slots of each expert.
Forward forward(GraphBuilder& g, const ModelConfig& model, ValueId tokens, int64_t capacity);

// Final norm and head of residual rows bf16[N, D]: bf16[N, vocab_padded].
ValueId head_logits(GraphBuilder& g, const ModelConfig& model, ValueId residual);

// Mean cross-entropy after `result`, targets i32[B, T].
ValueId token_loss(GraphBuilder& g, const ModelConfig& model, const Forward& result, ValueId targets);

// The programs, one source each: build_init.cpp, build_train.cpp, build_infer.cpp.
void build_init(Module& module, const Config& config);
void build_eval(Module& module, const Config& config);
void build_sample(Module& module, const Config& config);

}  // namespace stepc
