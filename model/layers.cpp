#include "model/layers.h"

#include <cmath>
#include <numeric>

#include "ir/support/check.h"

namespace stepc {
namespace {

// Per-row values [N] repeated along the columns of `shape` [N, D].
ValueId along_rows(GraphBuilder& g, ValueId x, const Shape& shape) { return g.broadcast(x, shape, {0}); }
// Per-column values [D] repeated for the rows of `shape` [N, D].
ValueId along_columns(GraphBuilder& g, ValueId x, const Shape& shape) { return g.broadcast(x, shape, {1}); }

ValueId mean_rows(GraphBuilder& g, ValueId x) {
  const auto rows = static_cast<double>(g.shape(x)[0]);
  return g.mul(g.reduce(Op::reduce_sum, x, {0}), 1.0 / rows);
}

}  // namespace

ValueId rms_norm(GraphBuilder& g, ValueId x, ValueId weight, double eps) {
  const Shape shape = g.shape(x);
  const ValueId squares = g.reduce(Op::reduce_sum, g.mul(x, x), {1});
  const ValueId mean = g.mul(squares, 1.0 / static_cast<double>(shape[1]));
  const ValueId scale = g.unary(Op::rsqrt, g.add(mean, eps));
  return g.mul(g.mul(x, along_rows(g, scale, shape)), along_columns(g, weight, shape));
}

ValueId softmax(GraphBuilder& g, ValueId x) {
  const Shape shape = g.shape(x);
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  std::vector<int64_t> others(static_cast<size_t>(last));
  std::iota(others.begin(), others.end(), 0);
  const auto repeated = [&](ValueId per_row) { return g.broadcast(per_row, shape, others); };
  const ValueId largest = g.unary(Op::stop_gradient, g.reduce(Op::reduce_max, x, {last}));
  const ValueId exps = g.unary(Op::exp, g.sub(x, repeated(largest)));
  return g.div(exps, repeated(g.reduce(Op::reduce_sum, exps, {last})));
}

ValueId rope_table(GraphBuilder& g, int64_t seq, int64_t head_dim, double theta) {
  const Shape shape{seq, 3, head_dim};
  const TensorType ints{Dtype::i32, shape};
  const ValueId position = g.cast(g.iota(0, shape), Dtype::f32);
  const ValueId element = g.iota(2, shape);
  const ValueId pair = g.binary(Op::div, element, g.constant(2, ints));
  const double log_step = -2.0 * std::log(theta) / static_cast<double>(head_dim);
  const ValueId frequency = g.unary(Op::exp, g.mul(g.cast(pair, Dtype::f32), log_step));
  const ValueId is_v = g.binary(Op::equal, g.iota(1, shape), g.constant(2, ints));
  const ValueId zero = g.constant(0, {Dtype::f32, shape});
  const ValueId angle = g.select(is_v, zero, g.mul(position, frequency));
  const ValueId is_even = g.binary(Op::equal, g.binary(Op::rem, element, g.constant(2, ints)), g.constant(0, ints));
  return g.select(is_even, g.unary(Op::cos, angle), g.unary(Op::sin, angle));
}

ValueId rope(GraphBuilder& g, ValueId qkv, ValueId table) {
  const Shape all = g.shape(qkv);
  const int64_t seq = all[1], pairs = all[4] / 2;
  const Shape paired{all[0], seq, 3, all[3], pairs, 2};
  const auto turn = [&](int64_t which) {
    const ValueId split = g.reshape(table, {seq, 3, pairs, 2});
    const ValueId one = g.reshape(g.slice(split, 3, which, which + 1), {seq, 3, pairs});
    return g.broadcast(one, paired, {1, 2, 4});
  };
  const ValueId is_first = g.binary(Op::equal, g.iota(5, paired), g.constant(0, {Dtype::i32, paired}));
  const TensorType reals{Dtype::f32, paired};
  const ValueId sign = g.select(is_first, g.constant(-1, reals), g.constant(1, reals));
  const ValueId x = g.reshape(qkv, paired);
  const ValueId partner = g.emit1(Op::reverse, {x}, {{AttrKey::axes, std::vector<int64_t>{5}}});
  return g.reshape(g.add(g.mul(x, turn(0)), g.mul(g.mul(partner, turn(1)), sign)), all);
}

ValueId swiglu(GraphBuilder& g, ValueId x) {
  const auto axis = static_cast<int64_t>(g.shape(x).size()) - 1;
  const int64_t width = g.shape(x).back();
  const ValueId gate = g.slice(x, axis, 0, width / 2);
  const ValueId up = g.slice(x, axis, width / 2, width);
  return g.mul(g.mul(gate, g.unary(Op::logistic, gate)), up);
}

namespace {

// Of qkv f32[B, T, 3, H, d]: softmax(scale q k^T) v, f32[B, T, H, d].
ValueId attention_of_products(GraphBuilder& g, ValueId qkv, double scale) {
  const Shape all = g.shape(qkv);
  const int64_t batch = all[0], seq = all[1], heads = all[3], head_dim = all[4];
  const auto part = [&](int64_t which) {
    const ValueId sliced = g.reshape(g.slice(qkv, 2, which, which + 1), {batch, seq, heads, head_dim});
    return g.transpose(sliced, {0, 2, 1, 3});
  };
  const ValueId scores = g.mul(g.matmul(part(0), part(1), Dtype::f32, false, true), scale);
  const Shape shape = g.shape(scores);
  const ValueId seen = g.binary(Op::less_equal, g.iota(3, shape), g.iota(2, shape));
  // exp of it is exactly 0 beside any score.
  const ValueId masked = g.select(seen, scores, g.constant(-1e30, {Dtype::f32, shape}));
  return g.transpose(g.matmul(softmax(g, masked), part(2), Dtype::f32), {0, 2, 1, 3});
}

ValueId mix_heads(GraphBuilder& g, const ModelConfig& model, ValueId qkv) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(model.head_dim));
  switch (model.precision) {
    case PrecisionPolicy::bf16: {
      Attrs attrs{{AttrKey::causal, true}, {AttrKey::scale, scale}};
      if (model.attention_gradient == AttentionGradient::atomic) attrs.set(AttrKey::atomic, true);
      return g.emit(Op::attention, {g.cast(qkv, Dtype::bf16)}, attrs)[0];
    }
    case PrecisionPolicy::fp32: return attention_of_products(g, qkv, scale);
  }
  STEPC_UNREACHABLE("precision {}", static_cast<int>(model.precision));
}

}  // namespace

ValueId attention(GraphBuilder& g, const ModelConfig& model, ValueId h, const AttentionWeights& weights,
                  ValueId rope_table) {
  const Shape rows = g.shape(h);
  const Shape heads{rows[0] / model.seq, model.seq, 3, model.heads, model.head_dim};
  const ValueId projected = g.reshape(g.matmul(h, weights.qkv, Dtype::f32), heads);
  const ValueId mixed = mix_heads(g, model, rope(g, projected, rope_table));
  return g.matmul(g.reshape(mixed, rows), weights.out, Dtype::f32);
}

ValueId experts(GraphBuilder& g, ValueId x, const ExpertWeights& weights, ValueId count) {
  const Dtype stored = g.type(x).dtype;
  const ValueId projected = g.cast(g.matmul(x, weights.gate_up, stored, false, false, count), Dtype::f32);
  const ValueId gated = g.cast(swiglu(g, projected), stored);
  return g.matmul(gated, weights.down, stored, false, false, count);
}

namespace {

// [tokens, experts]: 2 at a token's first choice of RoutingMode::equal, less by 1/top at each further one, else 0.
ValueId equal_preferences(GraphBuilder& g, const ModelConfig& model, int64_t tokens) {
  const Shape shape{tokens, model.experts};
  const TensorType ints{Dtype::i32, shape};
  const auto number = [&](int64_t value) { return g.constant(static_cast<double>(value), ints); };
  // The rank of expert e among the choices of token n: (e - n * top) modulo experts, made of numbers that are no less
  // than 0.
  const ValueId first = g.binary(Op::rem, g.mul(g.iota(0, shape), number(model.top)), number(model.experts));
  const ValueId ahead = g.add(g.sub(g.iota(1, shape), first), number(model.experts));
  const ValueId rank = g.binary(Op::rem, ahead, number(model.experts));
  const ValueId preference = g.add(g.mul(g.cast(rank, Dtype::f32), -1.0 / static_cast<double>(model.top)), 2.0);
  return g.select(g.binary(Op::less, rank, number(model.top)), preference, g.constant(0, {Dtype::f32, shape}));
}

}  // namespace

Routing router(GraphBuilder& g, const ModelConfig& model, ValueId h, ValueId weight, int64_t capacity) {
  Routing routing;
  routing.probs = softmax(g, g.matmul(g.cast(h, Dtype::f32), weight, Dtype::f32));
  const Attrs attrs{{AttrKey::top, model.top}, {AttrKey::capacity, capacity}};
  const int64_t tokens = g.shape(h)[0];
  const bool own = model.routing == RoutingMode::own;
  const ValueId preferences = own ? routing.probs : equal_preferences(g, model, tokens);
  const std::vector<ValueId> routed = g.emit(Op::route, {preferences}, attrs);
  routing.expert = routed[0];
  routing.slot = routed[1];
  routing.assignment = routed[2];
  routing.count = routed[3];
  // The chosen probabilities as a sum over a one-hot selection: its gradient is pointwise, where that of a
  // gather would scatter.
  const Shape choices{tokens, model.top, model.experts};
  const ValueId chosen = g.binary(Op::equal, g.broadcast(routed[0], choices, {0, 1}), g.iota(2, choices));
  const ValueId everywhere = g.broadcast(routing.probs, choices, {0, 2});
  const ValueId picked = g.select(chosen, everywhere, g.constant(0, {Dtype::f32, choices}));
  const ValueId top = g.reduce(Op::reduce_sum, picked, {2});
  routing.weights = g.div(top, along_rows(g, g.reduce(Op::reduce_sum, top, {1}), {tokens, model.top}));
  return routing;
}

ValueId balance_loss(GraphBuilder& g, const Routing& routing) {
  const auto experts_count = static_cast<double>(g.shape(routing.count)[0]);
  const auto assignments = static_cast<double>(g.shape(routing.slot)[0]);
  const ValueId share = g.mul(g.cast(routing.count, Dtype::f32), 1.0 / assignments);
  const ValueId product = g.mul(g.unary(Op::stop_gradient, share), mean_rows(g, routing.probs));
  return g.mul(g.reduce(Op::reduce_sum, product, {0}), experts_count);
}

ValueId mixture(GraphBuilder& g, const ModelConfig& model, ValueId h, const Routing& routing,
                const ExpertWeights& weights, int64_t capacity) {
  const int64_t tokens = g.shape(h)[0];
  const Shape picks{tokens, model.top, model.dim};
  const Shape pick_rows{tokens * model.top, model.dim};
  const ValueId repeated = g.reshape(g.broadcast(h, picks, {0, 2}), pick_rows);
  const ValueId sent = g.emit1(Op::gather_rows, {repeated, routing.assignment, routing.slot});
  // Slots are filled from the first on, and what comes back of an empty one is read by no token.
  const ValueId count = model.expert_rows == ExpertRows::counted ? routing.count : ValueId::none;
  const ValueId made = experts(g, g.reshape(sent, {model.experts, capacity, model.dim}), weights, count);
  const ValueId rows = g.reshape(made, {model.experts * capacity, model.dim});
  const ValueId back = g.emit1(Op::gather_rows, {rows, routing.slot, routing.assignment});
  const ValueId values = g.reshape(g.cast(back, Dtype::f32), picks);
  return g.reduce(Op::reduce_sum, g.mul(values, g.broadcast(routing.weights, picks, {0, 1})), {1});
}

ValueId cross_entropy(GraphBuilder& g, ValueId logits, ValueId targets, int64_t vocab) {
  const Shape shape = g.shape(logits);
  const ValueId column = g.iota(1, shape);
  if (vocab < shape[1]) {
    const ValueId exists = g.binary(Op::less, column, g.constant(static_cast<double>(vocab), {Dtype::i32, shape}));
    // exp of it is exactly 0, and unlike -inf it stays finite under any subtraction.
    logits = g.select(exists, logits, g.constant(-1e30, {Dtype::f32, shape}));
  }
  const ValueId largest = g.unary(Op::stop_gradient, g.reduce(Op::reduce_max, logits, {1}));
  const ValueId shifted = g.sub(logits, along_rows(g, largest, shape));
  const ValueId sums = g.reduce(Op::reduce_sum, g.unary(Op::exp, shifted), {1});
  const ValueId is_target = g.binary(Op::equal, column, along_rows(g, targets, shape));
  const ValueId picked = g.select(is_target, shifted, g.constant(0, {Dtype::f32, shape}));
  const ValueId losses = g.sub(g.unary(Op::log, sums), g.reduce(Op::reduce_sum, picked, {1}));
  return mean_rows(g, losses);
}

AdamWState adamw(GraphBuilder& g, const TrainConfig& train, const AdamWState& old, ValueId gradient, bool decay,
                 const AdamWScalars& scalars) {
  const TensorType stored = g.type(old.parameter);
  const ValueId parameter = g.cast(old.parameter, Dtype::f32);
  const ValueId m = g.add(g.mul(old.moment1, train.beta1), g.mul(gradient, 1 - train.beta1));
  const ValueId v = g.add(g.mul(old.moment2, train.beta2), g.mul(g.mul(gradient, gradient), 1 - train.beta2));
  const ValueId deviation = g.unary(Op::sqrt, g.mul(v, scalars.inv_bias2));
  ValueId direction = g.div(g.mul(m, scalars.inv_bias1), g.add(deviation, train.eps));
  if (decay && train.decay > 0) direction = g.add(direction, g.mul(parameter, train.decay));
  const ValueId moved = g.sub(parameter, g.mul(direction, scalars.lr));
  const ValueId apply = stored.shape.empty() ? scalars.apply : g.broadcast(scalars.apply, stored.shape, {});
  return {g.cast(g.select(apply, moved, parameter), stored.dtype), g.select(apply, m, old.moment1),
          g.select(apply, v, old.moment2)};
}

ValueId sum_of_squares(GraphBuilder& g, ValueId x) {
  // Rows first: a long reduction is split by shape, the same on every device.
  const Shape shape = g.shape(x);
  const int64_t columns = shape.empty() ? 1 : shape.back();
  const ValueId rows = g.reshape(x, {columns == 0 ? 0 : numel(shape) / columns, columns});
  return g.reduce(Op::reduce_sum, g.reduce(Op::reduce_sum, g.mul(rows, rows), {1}), {0});
}

}  // namespace stepc
