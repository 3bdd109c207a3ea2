// The layers of the model as small builders over primitive ops. None of them is an op: making one kernel of
// a norm, a rotation or an optimizer's update is the fuser's job. Values are f32 unless a type says bf16, which means
// the dtype that the configuration stores values in (storage_dtype): f32 where `precision` is fp32.
#pragma once

#include "ir/graph/builder.h"
#include "model/config.h"

namespace stepc {

// x[N, D] / sqrt(mean(x^2) + eps) * weight[D], per row.
ValueId rms_norm(GraphBuilder& g, ValueId x, ValueId weight, double eps);

// exp(x - max) / sum along the last axis of x.
ValueId softmax(GraphBuilder& g, ValueId x);

// Rotations [T, 3, d] for q, k and v side by side: v's angle is 0. In places 2p and 2p + 1 stand cosine and sine of
// pair p's angle: who turns a pair reads both together, and no number twice.
ValueId rope_table(GraphBuilder& g, int64_t seq, int64_t head_dim, double theta);
// qkv[B, T, 3, H, d], adjacent pairs (2p, 2p + 1) of q and k turned by position x theta^(-2p/d).
ValueId rope(GraphBuilder& g, ValueId qkv, ValueId table);

// silu(gate) * up, gate and up the halves of the last axis of x[E, C, 2F].
ValueId swiglu(GraphBuilder& g, ValueId x);

// Causal self-attention with its two products: h bf16[N, D] -> [N, D]. The op of that name knows bf16 alone; in f32
// it is made of products and a softmax over scores that are stored, which is for comparisons, not for speed.
struct AttentionWeights {
  ValueId qkv;  // bf16[D, 3D]
  ValueId out;  // bf16[D, D]
};
ValueId attention(GraphBuilder& g, const ModelConfig& model, ValueId h, const AttentionWeights& weights,
                  ValueId rope_table);

// Gated two-layer networks, one per leading index: x bf16[E, C, D] -> bf16[E, C, D]. `count` i32[E], if given: so many
// rows of x[e] come first, the others are zeros.
struct ExpertWeights {
  ValueId gate_up;  // bf16[E, D, 2F]
  ValueId down;     // bf16[E, F, D]
};
ValueId experts(GraphBuilder& g, ValueId x, const ExpertWeights& weights, ValueId count = ValueId::none);

// Which experts a token goes to, its places with them, and the weight of each in its sum.
struct Routing {
  ValueId probs;       // [N, E]
  ValueId expert;      // i32[N, K]
  ValueId weights;     // [N, K], each row summing to 1
  ValueId slot;        // i32[N*K]
  ValueId assignment;  // i32[E*C]
  ValueId count;       // i32[E]
};
Routing router(GraphBuilder& g, const ModelConfig& model, ValueId h, ValueId weight, int64_t capacity);
// E x sum over experts of (share of assignments x mean probability); no gradient through the share.
ValueId balance_loss(GraphBuilder& g, const Routing& routing);
// The routed feed-forward: h bf16[N, D] -> [N, D], zero where an assignment was dropped.
ValueId mixture(GraphBuilder& g, const ModelConfig& model, ValueId h, const Routing& routing,
                const ExpertWeights& weights, int64_t capacity);

// Mean over rows of -log softmax(logits[N, columns])[target]; columns from `vocab` on do not exist.
ValueId cross_entropy(GraphBuilder& g, ValueId logits, ValueId targets, int64_t vocab);

// One AdamW update. Scalars are f32[] values; where `apply` (pred[]) is false everything keeps its old value.
struct AdamWScalars {
  ValueId lr;
  ValueId inv_bias1;
  ValueId inv_bias2;
  ValueId apply;
};
struct AdamWState {
  ValueId parameter;  // f32 or bf16
  ValueId moment1;
  ValueId moment2;
};
AdamWState adamw(GraphBuilder& g, const TrainConfig& train, const AdamWState& old, ValueId gradient, bool decay,
                 const AdamWScalars& scalars);

// Sum of squares of all elements.
ValueId sum_of_squares(GraphBuilder& g, ValueId x);

}  // namespace stepc
