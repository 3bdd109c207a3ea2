// Gradients of pointwise ops. `g` is the cotangent of the result y. Pointwise arithmetic is f32, so the
// cotangents are too; cast and select also carry bf16 and hand on what they have.
//
// Where an op has no derivative: abs at 0 gives 0; max and min of equal operands give all to the first.
#include "compiler/graph/autodiff_rules.h"

namespace stepc {
namespace {

// condition ? g : 0, in f32.
ValueId where(const GradInput& in, ValueId condition) {
  const ValueId g = in.cotangent_f32();
  return in.builder.select(condition, g, in.zeros(in.builder.shape(g)));
}

ValueId where_not(const GradInput& in, ValueId condition) {
  const ValueId g = in.cotangent_f32();
  return in.builder.select(condition, in.zeros(in.builder.shape(g)), g);
}

}  // namespace

Gradients grad_zero(const GradInput& in) { return Gradients(in.node.operands.size(), ValueId::none); }

Gradients grad_neg(const GradInput& in) {
  return in.each({[&] { return in.builder.unary(Op::neg, in.cotangent()); }});
}

Gradients grad_abs(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] {
    const ValueId zero = in.zeros(in.shape());
    const ValueId is_negative = b.binary(Op::less, in.x(), zero);
    const ValueId negated = b.unary(Op::neg, in.cotangent());
    const ValueId is_zero = b.binary(Op::equal, in.x(), zero);
    return b.select(is_zero, zero, b.select(is_negative, negated, in.cotangent()));
  }});
}

Gradients grad_exp(const GradInput& in) {
  return in.each({[&] { return in.builder.mul(in.cotangent(), in.y()); }});
}

Gradients grad_log(const GradInput& in) {
  return in.each({[&] { return in.builder.div(in.cotangent(), in.x()); }});
}

Gradients grad_sqrt(const GradInput& in) {
  return in.each({[&] { return in.builder.div(in.builder.mul(in.cotangent(), 0.5), in.y()); }});
}

// d x^(-1/2) = -1/2 y^3
Gradients grad_rsqrt(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] {
    const ValueId squared = b.mul(in.y(), in.y());
    return b.mul(b.mul(b.mul(in.cotangent(), -0.5), in.y()), squared);
  }});
}

Gradients grad_sin(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] { return b.mul(in.cotangent(), b.unary(Op::cos, in.x())); }});
}

Gradients grad_cos(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] { return b.mul(in.cotangent(), b.unary(Op::neg, b.unary(Op::sin, in.x()))); }});
}

Gradients grad_tanh(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] {
    const ValueId one = b.constant(1.0, b.type(in.y()));
    return b.mul(in.cotangent(), b.sub(one, b.mul(in.y(), in.y())));
  }});
}

Gradients grad_logistic(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] {
    const ValueId one = b.constant(1.0, b.type(in.y()));
    return b.mul(in.cotangent(), b.mul(in.y(), b.sub(one, in.y())));
  }});
}

// The cotangent as it is: the caller rounds it to the operand's cotangent dtype once all are added.
Gradients grad_cast(const GradInput& in) {
  return in.each({[&] { return in.cotangent_f32(); }});
}

Gradients grad_add(const GradInput& in) {
  const auto pass = [&] { return in.cotangent(); };
  return in.each({pass, pass});
}

Gradients grad_sub(const GradInput& in) {
  return in.each({[&] { return in.cotangent(); }, [&] { return in.builder.unary(Op::neg, in.cotangent()); }});
}

Gradients grad_mul(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] { return b.mul(in.cotangent(), in.x(1)); }, [&] { return b.mul(in.cotangent(), in.x(0)); }});
}

Gradients grad_div(const GradInput& in) {
  GraphBuilder& b = in.builder;
  const auto over_divisor = [&] { return b.div(in.cotangent(), in.x(1)); };
  return in.each({over_divisor, [&] { return b.unary(Op::neg, b.mul(over_divisor(), in.y())); }});
}

// With respect to the exponent: y log a, and 0 at a = 0, where y = 0 for all b > 0.
Gradients grad_pow(const GradInput& in) {
  GraphBuilder& b = in.builder;
  const auto base = [&] {
    const ValueId lower = b.binary(Op::pow, in.x(0), b.add(in.x(1), -1.0));
    return b.mul(in.cotangent(), b.mul(in.x(1), lower));
  };
  const auto exponent = [&] {
    const ValueId zero = in.zeros(in.shape());
    const ValueId log = b.mul(in.y(), b.unary(Op::log, in.x(0)));
    const ValueId is_zero = b.binary(Op::equal, in.x(0), zero);
    return b.mul(in.cotangent(), b.select(is_zero, zero, log));
  };
  return in.each({base, exponent});
}

Gradients grad_max(const GradInput& in) {
  const auto first = [&] { return in.builder.binary(Op::less_equal, in.x(1), in.x(0)); };
  return in.each({[&] { return where(in, first()); }, [&] { return where_not(in, first()); }});
}

Gradients grad_min(const GradInput& in) {
  const auto first = [&] { return in.builder.binary(Op::less_equal, in.x(0), in.x(1)); };
  return in.each({[&] { return where(in, first()); }, [&] { return where_not(in, first()); }});
}

Gradients grad_fma(const GradInput& in) {
  GraphBuilder& b = in.builder;
  return in.each({[&] { return b.mul(in.cotangent(), in.x(1)); }, [&] { return b.mul(in.cotangent(), in.x(0)); },
                  [&] { return in.cotangent(); }});
}

Gradients grad_select(const GradInput& in) {
  return in.each(
      {[] { return ValueId::none; }, [&] { return where(in, in.x(0)); }, [&] { return where_not(in, in.x(0)); }});
}

}  // namespace stepc
