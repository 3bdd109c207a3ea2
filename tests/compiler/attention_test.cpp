// Attention and its gradient against the graph evaluator.
#include "tests/support/run_group.h"

namespace stepc {
namespace {

using test::GroupCase;
using test::run_everywhere;

struct Heads {
  int64_t batch, tokens, heads, dim;
  bool causal = true;
};

std::string text(const Heads& h) {
  return fmt::format("B={} T={} H={} d={}{}", h.batch, h.tokens, h.heads, h.dim, h.causal ? " causal" : "");
}

Attrs attributes(const Heads& h) {
  return {{AttrKey::causal, h.causal}, {AttrKey::scale, 1 / std::sqrt(static_cast<double>(h.dim))}};
}

void check_forward(const Heads& h) {
  GroupCase test{"attention " + text(h), Template::attention, [&](GraphBuilder& g) {
                   // The fused projection comes as a matrix.
                   const ValueId rows = g.input("qkv", {Dtype::bf16, {h.batch * h.tokens, 3 * h.heads * h.dim}});
                   const ValueId qkv = g.reshape(rows, {h.batch, h.tokens, 3, h.heads, h.dim});
                   const auto made = g.emit(Op::attention, {qkv}, attributes(h));
                   g.output("out", made[0]);
                   g.output("lse", made[1]);
                 }};
  test.tolerance = {1e-5, 2e-3};  // a probability may round the other way
  run_everywhere(test);
}

// The gradient's operands are the forward pass's own results.
void check_gradient(const Heads& h) {
  Module forward{"forward", {}, {}};
  const TensorType qkv_type{Dtype::bf16, {h.batch, h.tokens, 3, h.heads, h.dim}};
  GraphBuilder g(forward, "p");
  const auto made = g.emit(Op::attention, {g.input("qkv", qkv_type)}, attributes(h));
  g.output("out", made[0]);
  g.output("lse", made[1]);
  GroupCase test{"attention gradient " + text(h), Template::attention_grad, [&](GraphBuilder& b) {
                   const ValueId qkv = b.input("qkv", qkv_type);
                   const ValueId out = b.input("out", {Dtype::bf16, {h.batch, h.tokens, h.heads, h.dim}});
                   const ValueId lse = b.input("lse", {Dtype::f32, {h.batch, h.heads, h.tokens}});
                   const ValueId dout = b.input("dout", {Dtype::bf16, {h.batch, h.tokens, h.heads, h.dim}});
                   b.output("dqkv", b.emit1(Op::attention_grad, {qkv, out, lse, dout}, attributes(h)));
                 }};
  test.tolerance = {1e-5, 2e-2};
  TensorMap none;
  const Module module = test::one_group_module(test);
  const TensorMap inputs = test::random_inputs(test, module.programs[0]);
  auto results = evaluate(forward.programs[0], none, {{"qkv", inputs.at("qkv")}});
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  run_everywhere(test, {{"qkv", inputs.at("qkv")}, {"out", results->at("out")}, {"lse", results->at("lse")}});
}

TEST_CASE("attention of any number of tokens") {
  for (const int64_t tokens : {1, 31, 127, 257}) check_forward({1, tokens, 2, 64});
  check_forward({2, 70, 3, 128});
  check_forward({2, 40, 1, 64, false});
  check_forward({1, 37, 2, 33, false});
  check_forward({1, 19, 3, 5});
  check_forward({0, 19, 3, 8});
  check_forward({1, 0, 3, 8});
}

TEST_CASE("the gradient of attention of any number of tokens") {
  for (const int64_t tokens : {1, 33, 257}) check_gradient({1, tokens, 2, 64});
  check_gradient({2, 70, 3, 128});
  check_gradient({2, 40, 1, 64, false});
  check_gradient({1, 37, 2, 33, false});
  check_gradient({1, 19, 3, 5});
  check_gradient({0, 19, 3, 8});
  check_gradient({1, 0, 3, 8});
}

}  // namespace
}  // namespace stepc
