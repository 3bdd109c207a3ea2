// What follows a product, made on the accumulators: SwiGLU and its gradient, RoPE, residuals, casts; several results.
#include "compiler/schedule/sm90/templates.h"
#include "tests/hopper/run_hopper.h"

namespace stepc::sm90 {
namespace {

using test::GroupCase;

const GpuTarget kSmall{"sm_90a", 2};

ScheduledKernel scheduled(const Program& program, const Group& group) {
  auto kernel = schedule_gemm(program, group, kSmall);
  REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
  REQUIRE_MESSAGE(kernel->has_value(), "the template does not take the group");
  return std::move(**kernel);
}

// The product is rounded before what follows: where that falls the other way it shows in full.
void check(GroupCase test) {
  test.tolerance = {1e-5, 0.02};
  for (const char* name : {"x", "w"}) test.ranges[name] = {-0.5, 0.5};
  test::check_on_gpu(test, scheduled);
}

ValueId wide(GraphBuilder& g, ValueId x) { return g.cast(x, Dtype::f32); }

TEST_CASE("a residual is added to the product") {
  for (const int64_t m : {128, 200})
    check({fmt::format("residual {}", m), Template::matmul, [&](GraphBuilder& g) {
             const ValueId x = g.input("x", {Dtype::bf16, {m, 96}});
             const ValueId w = g.input("w", {Dtype::bf16, {96, 320}});
             const ValueId h = g.input("h", {Dtype::bf16, {m, 320}});
             const ValueId y = wide(g, g.matmul(x, w, Dtype::bf16));
             g.output("y", g.cast(g.add(wide(g, h), y), Dtype::bf16));
           }});
}

TEST_CASE("SwiGLU: the product and what its halves give") {
  for (const int64_t f : {128, 200})
    check({fmt::format("swiglu {}", f), Template::matmul, [&](GraphBuilder& g) {
             const ValueId x = g.input("x", {Dtype::bf16, {2, 136, 96}});
             const ValueId w = g.input("w", {Dtype::bf16, {2, 96, 2 * f}});
             const ValueId z = g.matmul(x, w, Dtype::bf16);
             const ValueId gate = g.slice(wide(g, z), 2, 0, f);
             const ValueId up = g.slice(wide(g, z), 2, f, 2 * f);
             g.output("z", z);
             g.output("y", g.cast(g.mul(g.mul(gate, g.unary(Op::logistic, gate)), up), Dtype::bf16));
           }});
}

TEST_CASE("a weight gradient is added to what is there, in f32") {
  check({"accumulate", Template::matmul, [&](GraphBuilder& g) {
           const ValueId x = g.input("x", {Dtype::bf16, {264, 136}});
           const ValueId dy = g.input("dy", {Dtype::bf16, {264, 200}});
           const ValueId old = g.input("old", {Dtype::f32, {136, 200}});
           g.output("dw", g.add(old, g.matmul(x, dy, Dtype::f32, true, false)));
         }});
}

// Neighbouring columns are turned by an angle of their row and pair: half of [m, heads, pairs, 2].
TEST_CASE("RoPE: pairs of columns meet") {
  const int64_t tokens = 136, heads = 3, dim = 64;
  check({"rope", Template::matmul, [&](GraphBuilder& g) {
           const Shape split{tokens, heads, dim / 2, 2};
           const ValueId x = g.input("x", {Dtype::bf16, {tokens, 96}});
           const ValueId w = g.input("w", {Dtype::bf16, {96, heads * dim}});
           const ValueId y = g.reshape(wide(g, g.matmul(x, w, Dtype::bf16)), split);
           const ValueId cosine = g.broadcast(g.input("cos", {Dtype::f32, {tokens, dim / 2, 2}}), split, {0, 2, 3});
           const ValueId sine = g.broadcast(g.input("sin", {Dtype::f32, {tokens, dim / 2, 2}}), split, {0, 2, 3});
           const ValueId swapped = g.emit1(Op::reverse, {y}, {{AttrKey::axes, std::vector<int64_t>{3}}});
           const ValueId turned = g.add(g.mul(y, cosine), g.mul(swapped, sine));
           g.output("y", g.cast(g.reshape(turned, {tokens, heads * dim}), Dtype::bf16));
         }});
}

TEST_CASE("the gradient of SwiGLU behind the product that gives dy") {
  const int64_t m = 136, f = 128;
  check({"swiglu gradient", Template::matmul, [&](GraphBuilder& g) {
           const ValueId dout = g.input("x", {Dtype::bf16, {m, 96}});
           const ValueId w = g.input("w", {Dtype::bf16, {f, 96}});
           const ValueId dy = wide(g, g.matmul(dout, w, Dtype::bf16, false, true));
           const ValueId z = wide(g, g.input("z", {Dtype::bf16, {m, 2 * f}}));
           const ValueId gate = g.slice(z, 1, 0, f);
           const ValueId up = g.slice(z, 1, f, 2 * f);
           const ValueId sigmoid = g.unary(Op::logistic, gate);
           const ValueId silu = g.mul(gate, sigmoid);
           const ValueId slope = g.add(sigmoid, g.mul(silu, g.add(g.unary(Op::neg, sigmoid), 1.0)));
           const std::vector<ValueId> parts{g.cast(g.mul(g.mul(dy, up), slope), Dtype::bf16),
                                            g.cast(g.mul(dy, silu), Dtype::bf16)};
           g.output("dz", g.emit1(Op::concat, parts, {{AttrKey::axis, int64_t{1}}}));
         }});
}

}  // namespace
}  // namespace stepc::sm90
