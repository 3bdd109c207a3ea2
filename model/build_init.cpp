// The init program: every parameter from Philox words, keyed by the seed and a stream per name, so that the
// same seed gives the same weights on any device; states are zeros.
#include <cmath>

#include "model/forward.h"
#include "model/parameters.h"

namespace stepc {
namespace {

// Uniform in [-1, 1) / sqrt(fan_in).
ValueId random_values(GraphBuilder& g, const ParameterInfo& parameter, ValueId seed) {
  const Shape& shape = parameter.type.shape;
  const TensorType scalar{Dtype::i32, {}};
  const ValueId stream = g.constant(parameter_stream(parameter.name), scalar);
  const ValueId bits = g.emit1(Op::random_bits, {seed, stream, g.constant(0, scalar)}, {}, {Dtype::i32, shape});
  const ValueId unit = g.unary(Op::unit_from_bits, bits);
  const ValueId symmetric = g.add(g.mul(unit, 2.0), -1.0);
  return g.mul(symmetric, 1.0 / std::sqrt(static_cast<double>(parameter.fan_in)));
}

// Columns from `vocab` on are zero.
ValueId without_padding(GraphBuilder& g, ValueId x, int64_t vocab) {
  const Shape shape = g.shape(x);
  if (vocab == shape[1]) return x;
  const ValueId limit = g.constant(static_cast<double>(vocab), {Dtype::i32, shape});
  const ValueId exists = g.binary(Op::less, g.iota(1, shape), limit);
  return g.select(exists, x, g.constant(0, {Dtype::f32, shape}));
}

}  // namespace

void build_init(Module& module, const Config& config) {
  GraphBuilder g(module, "init");
  const ValueId seed = g.input("seed", {Dtype::i32, {}});
  for (const ParameterInfo& parameter : parameter_table(config.model)) {
    g.set_name_hint(parameter.name);
    ValueId value = parameter.fan_in == 0 ? g.constant(1, parameter.type) : random_values(g, parameter, seed);
    if (parameter.term == ParameterTerm::head) value = without_padding(g, value, config.model.vocab);
    g.assign(parameter.name, g.cast(value, parameter.type.dtype));
  }
  g.set_phase(Phase::optimizer);
  for (const Persistent& persistent : module.persistents) {
    if (persistent.is_param) continue;
    g.set_name_hint(persistent.name);
    g.assign(persistent.name, g.constant(0, persistent.type));
  }
}

}  // namespace stepc
