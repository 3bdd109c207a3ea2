// The fields of a Config in the order in which they print. Included by the sources of config.h alone.
#pragma once

#include "model/config.h"

namespace stepc {

// Calls visit(name, reference) for every field; references are int64_t, double or one of the enums.
template <class ConfigRef, class Visit>
void visit_fields(ConfigRef& config, Visit&& visit) {
  auto& model = config.model;
  visit("vocab", model.vocab);
  visit("vocab_padded", model.vocab_padded);
  visit("dim", model.dim);
  visit("heads", model.heads);
  visit("head_dim", model.head_dim);
  visit("layers", model.layers);
  visit("ffn", model.ffn);
  visit("experts", model.experts);
  visit("top", model.top);
  visit("seq", model.seq);
  visit("capacity_factor", model.capacity_factor);
  visit("routing", model.routing);
  visit("expert_rows", model.expert_rows);
  visit("attention_gradient", model.attention_gradient);
  visit("rope_theta", model.rope_theta);
  visit("norm_eps", model.norm_eps);
  visit("precision", model.precision);
  auto& train = config.train;
  visit("batch", train.batch);
  visit("accumulation", train.accumulation);
  visit("steps", train.steps);
  visit("seed", train.seed);
  visit("lr", train.lr);
  visit("schedule", train.schedule);
  visit("warmup", train.warmup);
  visit("final_lr_fraction", train.final_lr_fraction);
  visit("beta1", train.beta1);
  visit("beta2", train.beta2);
  visit("eps", train.eps);
  visit("decay", train.decay);
  visit("clip", train.clip);
  visit("aux_coefficient", train.aux_coefficient);
  visit("aux_horizon", train.aux_horizon);
}

}  // namespace stepc
