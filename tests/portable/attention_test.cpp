// Portable attention and its gradient against the graph evaluator; and what ptxas says.
#include "compiler/schedule/cuda/attention.h"

#include "tests/portable/portable.h"

namespace stepc {
namespace {

using test::GroupCase;

AttentionSizes heads_of(int64_t batch, int64_t tokens, int64_t heads, int64_t dim, bool causal = true) {
  return {batch, tokens, heads, dim, causal, 1 / std::sqrt(static_cast<double>(dim))};
}

std::string text(const AttentionSizes& s) {
  return fmt::format("B={} T={} H={} d={}{}", s.batch, s.tokens, s.heads, s.dim, s.causal ? " causal" : "");
}

Attrs attributes(const AttentionSizes& s) { return {{AttrKey::causal, s.causal}, {AttrKey::scale, s.scale}}; }
TensorType qkv_type(const AttentionSizes& s) { return {Dtype::bf16, {s.batch, s.tokens, 3, s.heads, s.dim}}; }
TensorType out_type(const AttentionSizes& s) { return {Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim}}; }

void declare_forward(GraphBuilder& g, const AttentionSizes& s) {
  const auto made = g.emit(Op::attention, {g.input("qkv", qkv_type(s))}, attributes(s));
  g.output("out", made[0]);
  g.output("lse", made[1]);
}

// Probabilities are rounded before they are divided by their sum, so each may round the other way.
GroupCase forward(const AttentionSizes& s) {
  return {"attention " + text(s), Template::attention, [=](GraphBuilder& g) { declare_forward(g, s); }, {1e-5, 4e-3}};
}

GroupCase gradient(const AttentionSizes& s) {
  return {"attention gradient " + text(s),
          Template::attention_grad,
          [=](GraphBuilder& b) {
            const ValueId qkv = b.input("qkv", qkv_type(s));
            const ValueId out = b.input("out", out_type(s));
            const ValueId lse = b.input("lse", {Dtype::f32, {s.batch, s.heads, s.tokens}});
            const ValueId dout = b.input("dout", out_type(s));
            b.output("dqkv", b.emit1(Op::attention_grad, {qkv, out, lse, dout}, attributes(s)));
          },
          {1e-5, 2e-2}};
}

// The gradient's operands are the forward pass's own results.
void run_gradient(const AttentionSizes& s) {
  Module module{"forward", {}, {}};
  GraphBuilder g(module, "p");
  declare_forward(g, s);
  const GroupCase test = gradient(s);
  const TensorMap inputs = test::random_inputs(test, test::one_group_module(test).programs[0]);
  TensorMap none;
  auto results = evaluate(module.programs[0], none, {{"qkv", inputs.at("qkv")}});
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  test::run_portable(test, {{"qkv", inputs.at("qkv")}, {"out", results->at("out")}, {"lse", results->at("lse")}});
}

TEST_CASE("portable attention of any number of tokens") {
  for (const int64_t tokens : {1, 2, 31, 33, 127, 129}) test::run_portable(forward(heads_of(2, tokens, 2, 64)));
  test::run_portable(forward(heads_of(1, 129, 1, 128)));
  test::run_portable(forward(heads_of(1, 70, 2, 80, false)));
  test::run_portable(forward(heads_of(2, 128, 1, 16, false)));
  test::run_portable(forward(heads_of(1, 0, 2, 64)));
}

TEST_CASE("the portable gradient of attention of any number of tokens") {
  for (const int64_t tokens : {1, 2, 31, 33, 127, 129}) run_gradient(heads_of(2, tokens, 2, 64));
  run_gradient(heads_of(1, 129, 1, 128));
  run_gradient(heads_of(1, 70, 2, 80, false));
  run_gradient(heads_of(2, 128, 1, 16, false));
  run_gradient(heads_of(1, 0, 2, 64));
}

TEST_CASE("heads that no portable kernel takes") {
  const Module module = test::one_group_module(forward(heads_of(1, 8, 1, 33)));
  const auto scheduled = cuda::schedule_attention(module.programs[0], module.programs[0].groups[0]);
  REQUIRE(!scheduled.has_value());
  CHECK(scheduled.error().text() == "kernel @k: heads of 33 elements, expected a multiple of 16 up to 128 on a GPU");
}

TEST_CASE("ptxas takes portable attention without spilling") {
  for (const char* arch : {"sm_80", "sm_89", "sm_90a"})
    for (const int64_t dim : {64, 128})
      for (const auto& [tokens, causal] : std::vector<std::pair<int64_t, bool>>{{2048, true}, {1000, false}}) {
        test::check_assembles(forward(heads_of(2, tokens, 4, dim, causal)), arch);
        test::check_assembles(gradient(heads_of(2, tokens, 4, dim, causal)), arch);
      }
}

}  // namespace
}  // namespace stepc
