#include "ir/graph/builder.h"

#include <doctest/doctest.h>

#include "ir/graph/print.h"
#include "ir/graph/verify.h"

namespace stepc {
namespace {

TEST_CASE("a small program prints as it was built") {
  Module module{"tiny", {}, {}};
  module.persistents.push_back({"blocks.0.w", {Dtype::bf16, {4, 3}}, true, Arena::weights});
  module.persistents.push_back({"blocks.0.w.m", {Dtype::f32, {4, 3}}, false, Arena::optimizer});
  GraphBuilder builder(module, "step");
  const ValueId x = builder.input("x", {Dtype::f32, {2, 4}});
  builder.set_name_hint("h");
  const ValueId h = builder.mul(x, 0.5);
  const ValueId rounded = builder.cast(h, Dtype::bf16);
  const ValueId product = builder.matmul(rounded, builder.persistent("blocks.0.w"), Dtype::f32);
  builder.set_phase(Phase::optimizer);
  builder.assign("blocks.0.w.m", builder.add(builder.persistent("blocks.0.w.m"), 1.0));
  builder.output("y", product);
  REQUIRE(verify(module).has_value());
  CHECK(print_module(module) == R"(module "tiny"

param @blocks.0.w: bf16[4, 3]
state @blocks.0.w.m: f32[4, 3] optimizer

program @step {
  %x: f32[2, 4] = input {name="x"}
  %h: f32[2, 4] = constant {value=0.5}
  %h.1: f32[2, 4] = mul(%x, %h)
  %h.2: bf16[2, 4] = cast(%h.1)
  %blocks.0.w: bf16[4, 3] = param {name=@blocks.0.w}
  %h.3: f32[2, 3] = matmul(%h.2, %blocks.0.w) {transpose_a=false, transpose_b=false}
  %blocks.0.w.m: f32[4, 3] = state {name=@blocks.0.w.m} !optimizer
  %h.4: f32[4, 3] = constant {value=1} !optimizer
  %h.5: f32[4, 3] = add(%blocks.0.w.m, %h.4) !optimizer
  assign(%h.5) {name=@blocks.0.w.m} !optimizer
  output(%h.3) {name="y"} !optimizer
}
)");
}

TEST_CASE("a scalar operand is broadcast, names stay unique when a builder continues a program") {
  Module module{"m", {}, {}};
  {
    GraphBuilder builder(module, "p");
    builder.input("x", {Dtype::f32, {3}});
  }
  GraphBuilder builder(module, "p");
  const ValueId x = builder.unary(Op::neg, ValueId{0});
  builder.set_name_hint("x");
  const ValueId scalar = builder.reduce(Op::reduce_sum, x, {0});
  const ValueId sum = builder.add(scalar, x);
  CHECK(builder.shape(sum) == Shape{3});
  REQUIRE(verify(module).has_value());
  CHECK(print_program(builder.program()) == R"(program @p {
  %x: f32[3] = input {name="x"}
  %neg: f32[3] = neg(%x)
  %x.1: f32[] = reduce_sum(%neg) {axes=[0]}
  %x.2: f32[3] = broadcast(%x.1) {axes=[]}
  %x.3: f32[3] = add(%x.2, %neg)
}
)");
}

}  // namespace
}  // namespace stepc
