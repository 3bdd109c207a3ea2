// Which kernels come out of programs that matter. None of them has a pattern of its own anywhere.
#include "compiler/graph/fuse.h"

#include <doctest/doctest.h>

#include "compiler/graph/autodiff.h"
#include "compiler/graph/fuse_check.h"
#include "compiler/pipeline.h"
#include "ir/graph/builder.h"
#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"
#include "tests/support/golden.h"

namespace stepc {
namespace {

using test::check_golden;

Module parsed(const std::string& text) {
  auto module = parse_module(text, "test.gir");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  return std::move(*module);
}

Module fused(Module module) {
  const Status status = run_passes(module);
  REQUIRE_MESSAGE(status.has_value(), status.error().text());
  const Status checked = check_groups(module.programs[0]);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  const auto again = parse_module(print_module(module), "again.gir");
  REQUIRE_MESSAGE(again.has_value(), again.error().text());
  CHECK(print_module(*again) == print_module(module));
  return module;
}

ValueId find(const Program& program, std::string_view name) {
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].name == name) return static_cast<ValueId>(v);
  FAIL("no value " << name);
  return ValueId::none;
}

// The program with sum(y * dy)'s gradient for each of `wrt` as its only outputs; dy is an input.
Module gradient_of(const std::string& text, const std::vector<std::string>& wrt) {
  Module module = parsed(text);
  GraphBuilder g(module, "p");
  const ValueId y = find(g.program(), "y");
  std::vector<int64_t> axes;
  for (size_t d = 0; d < g.shape(y).size(); ++d) axes.push_back(static_cast<int64_t>(d));
  const ValueId dy = g.input("dy", g.type(y));
  const ValueId loss = g.reduce(Op::reduce_sum, g.mul(g.cast(y, Dtype::f32), g.cast(dy, Dtype::f32)), axes);
  std::vector<ValueId> of;
  for (const std::string& name : wrt) of.push_back(find(g.program(), name));
  const std::vector<ValueId> gradients = differentiate(g, loss, of);
  for (size_t i = 0; i < wrt.size(); ++i) g.output("d" + wrt[i], gradients[i]);
  return module;
}

std::vector<std::string> kernels(const Module& module) {
  std::vector<std::string> templates;
  for (const Group& group : module.programs[0].groups) templates.emplace_back(template_name(group.schedule));
  return templates;
}
using Names = std::vector<std::string>;

// y = x / rms(x) * w.
const std::string kNorm = R"(module "norm"
param @w: f32[256]
program @p {
  %x: bf16[4096, 256] = input {name="x"}
  %w: f32[256] = param {name=@w}
  %wide: f32[4096, 256] = cast(%x)
  %square: f32[4096, 256] = mul(%wide, %wide)
  %sum: f32[4096] = reduce_sum(%square) {axes=[1]}
  %per: f32[4096] = constant {value=0.00390625}
  %mean: f32[4096] = mul(%sum, %per)
  %eps: f32[4096] = constant {value=1e-05}
  %shifted: f32[4096] = add(%mean, %eps)
  %rstd: f32[4096] = rsqrt(%shifted)
  %rstd_wide: f32[4096, 256] = broadcast(%rstd) {axes=[0]}
  %xhat: f32[4096, 256] = mul(%wide, %rstd_wide)
  %w_wide: f32[4096, 256] = broadcast(%w) {axes=[1]}
  %scaled: f32[4096, 256] = mul(%xhat, %w_wide)
  %y: bf16[4096, 256] = cast(%scaled)
)";

TEST_CASE("RMSNorm is one row kernel") {
  const Module module = fused(parsed(kNorm + "  output(%y) {name=\"y\"}\n}\n"));
  CHECK(kernels(module) == Names{"row"});
  check_golden("fuse/norm.gir", print_module(module));
}

TEST_CASE("RMSNorm's gradient is one row kernel with partial sums, and a column sum") {
  const Module module = fused(gradient_of(kNorm + "}\n", {"x", "w"}));
  CHECK(kernels(module) == Names{"row", "column_sum"});
  check_golden("fuse/norm_gradient.gir", print_module(module));
}

const std::string kSwiglu = R"(module "swiglu"
program @p {
  %x: bf16[4096, 1024] = input {name="x"}
  %wide: f32[4096, 1024] = cast(%x)
  %gate: f32[4096, 512] = slice(%wide) {start=[0, 0], limit=[4096, 512]}
  %up: f32[4096, 512] = slice(%wide) {start=[0, 512], limit=[4096, 1024]}
  %sigmoid: f32[4096, 512] = logistic(%gate)
  %silu: f32[4096, 512] = mul(%gate, %sigmoid)
  %product: f32[4096, 512] = mul(%silu, %up)
  %y: bf16[4096, 512] = cast(%product)
)";

TEST_CASE("SwiGLU and its gradient are one pointwise kernel each") {
  const Module forward = fused(parsed(kSwiglu + "  output(%y) {name=\"y\"}\n}\n"));
  CHECK(kernels(forward) == Names{"pointwise"});
  check_golden("fuse/swiglu.gir", print_module(forward));
  const Module gradient = fused(gradient_of(kSwiglu + "}\n", {"x"}));
  CHECK(kernels(gradient) == Names{"pointwise"});
  check_golden("fuse/swiglu_gradient.gir", print_module(gradient));
}

// Rotary embedding of q and k in qkv [B, T, 3, H, d] by given tables; adjacent pairs.
const std::string kRope = R"(module "rope"
program @p {
  %x: bf16[4, 256, 3, 4, 64] = input {name="x"}
  %cos: f32[256, 3, 64] = input {name="cos"}
  %sin: f32[256, 3, 64] = input {name="sin"}
  %wide: f32[4, 256, 3, 4, 64] = cast(%x)
  %cosines: f32[4, 256, 3, 4, 64] = broadcast(%cos) {axes=[1, 2, 4]}
  %sines: f32[4, 256, 3, 4, 64] = broadcast(%sin) {axes=[1, 2, 4]}
  %pairs: f32[4, 256, 3, 4, 32, 2] = reshape(%wide)
  %swapped: f32[4, 256, 3, 4, 32, 2] = reverse(%pairs) {axes=[5]}
  %others: f32[4, 256, 3, 4, 64] = reshape(%swapped)
  %a: f32[4, 256, 3, 4, 64] = mul(%wide, %cosines)
  %b: f32[4, 256, 3, 4, 64] = mul(%others, %sines)
  %sum: f32[4, 256, 3, 4, 64] = add(%a, %b)
  %y: bf16[4, 256, 3, 4, 64] = cast(%sum)
)";

TEST_CASE("RoPE and its gradient are one pointwise kernel each") {
  const Module forward = fused(parsed(kRope + "  output(%y) {name=\"y\"}\n}\n"));
  CHECK(kernels(forward) == Names{"pointwise"});
  check_golden("fuse/rope.gir", print_module(forward));
  const Module gradient = fused(gradient_of(kRope + "}\n", {"x"}));
  CHECK(kernels(gradient) == Names{"pointwise"});
  check_golden("fuse/rope_gradient.gir", print_module(gradient));
}

TEST_CASE("AdamW is one pointwise kernel with three results") {
  const Module module = fused(parsed(R"(module "adamw"
param @w: bf16[512, 256]
state @w.m: f32[512, 256] optimizer
state @w.v: f32[512, 256] optimizer
program @p {
  %g: f32[512, 256] = input {name="g"}
  %lr: f32[] = input {name="lr"}
  %inv_bias1: f32[] = input {name="inv_bias1"}
  %inv_bias2: f32[] = input {name="inv_bias2"}
  %w: bf16[512, 256] = param {name=@w}
  %m: f32[512, 256] = state {name=@w.m}
  %v: f32[512, 256] = state {name=@w.v}
  %wide: f32[512, 256] = cast(%w)
  %beta1: f32[512, 256] = constant {value=0.9}
  %rest1: f32[512, 256] = constant {value=0.1}
  %beta2: f32[512, 256] = constant {value=0.999}
  %rest2: f32[512, 256] = constant {value=0.001}
  %m1: f32[512, 256] = mul(%m, %beta1)
  %m2: f32[512, 256] = mul(%g, %rest1)
  %m_new: f32[512, 256] = add(%m1, %m2)
  %square: f32[512, 256] = mul(%g, %g)
  %v1: f32[512, 256] = mul(%v, %beta2)
  %v2: f32[512, 256] = mul(%square, %rest2)
  %v_new: f32[512, 256] = add(%v1, %v2)
  %inv_bias1_wide: f32[512, 256] = broadcast(%inv_bias1) {axes=[]}
  %inv_bias2_wide: f32[512, 256] = broadcast(%inv_bias2) {axes=[]}
  %m_hat: f32[512, 256] = mul(%m_new, %inv_bias1_wide)
  %v_hat: f32[512, 256] = mul(%v_new, %inv_bias2_wide)
  %deviation: f32[512, 256] = sqrt(%v_hat)
  %eps: f32[512, 256] = constant {value=1e-08}
  %denominator: f32[512, 256] = add(%deviation, %eps)
  %direction: f32[512, 256] = div(%m_hat, %denominator)
  %lr_wide: f32[512, 256] = broadcast(%lr) {axes=[]}
  %step: f32[512, 256] = mul(%direction, %lr_wide)
  %moved: f32[512, 256] = sub(%wide, %step)
  %w_new: bf16[512, 256] = cast(%moved)
  assign(%w_new) {name=@w}
  assign(%m_new) {name=@w.m}
  assign(%v_new) {name=@w.v}
}
)"));
  CHECK(kernels(module) == Names{"pointwise"});
  check_golden("fuse/adamw.gir", print_module(module));
}

const std::string kHead = R"(module "loss"
program @p {
  %logits: bf16[1024, 256] = input {name="logits"}
  %target: i32[1024] = input {name="target"}
  %x: f32[1024, 256] = cast(%logits)
  %largest: f32[1024] = reduce_max(%x) {axes=[1]}
  %fixed: f32[1024] = stop_gradient(%largest)
  %largest_wide: f32[1024, 256] = broadcast(%fixed) {axes=[0]}
  %shifted: f32[1024, 256] = sub(%x, %largest_wide)
  %exps: f32[1024, 256] = exp(%shifted)
  %sums: f32[1024] = reduce_sum(%exps) {axes=[1]}
  %column: i32[1024, 256] = iota {axis=1}
  %target_wide: i32[1024, 256] = broadcast(%target) {axes=[0]}
  %is_target: pred[1024, 256] = equal(%column, %target_wide)
  %zero: f32[1024, 256] = constant {value=0}
  %picked: f32[1024, 256] = select(%is_target, %shifted, %zero)
  %chosen: f32[1024] = reduce_sum(%picked) {axes=[1]}
  %log: f32[1024] = log(%sums)
  %y: f32[1024] = sub(%log, %chosen)
)";

TEST_CASE("cross-entropy is one row kernel, so is its gradient") {
  const Module forward = fused(parsed(kHead + "  output(%y) {name=\"y\"}\n}\n"));
  CHECK(kernels(forward) == Names{"row"});
  check_golden("fuse/cross_entropy.gir", print_module(forward));
  const Module gradient = fused(gradient_of(kHead + "}\n", {"logits"}));
  CHECK(kernels(gradient) == Names{"row"});
  check_golden("fuse/cross_entropy_gradient.gir", print_module(gradient));
}

// x @ w with something after it.
std::string after_product(const std::string& name, int64_t columns, const std::string& tail) {
  return fmt::format(R"(module "{}"
param @w: bf16[256, {}]
program @p {{
  %x: bf16[1024, 256] = input {{name="x"}}
  %w: bf16[256, {}] = param {{name=@w}}
  %product: f32[1024, {}] = matmul(%x, %w) {{transpose_a=false, transpose_b=false}}
)",
                     name, columns, columns, columns) +
         tail;
}

TEST_CASE("a residual sum is a product's epilogue") {
  const Module module = fused(parsed(after_product("residual", 256, R"(
  %residual: f32[1024, 256] = cast(%x)
  %sum: f32[1024, 256] = add(%residual, %product)
  %y: bf16[1024, 256] = cast(%sum)
  output(%y) {name="y"}
}
)")));
  CHECK(kernels(module) == Names{"matmul"});
  check_golden("fuse/matmul_residual.gir", print_module(module));
}

TEST_CASE("SwiGLU is a product's epilogue, with or without the product itself") {
  const std::string tail = R"(
  %z: bf16[1024, 1024] = cast(%product)
  %wide: f32[1024, 1024] = cast(%z)
  %gate: f32[1024, 512] = slice(%wide) {start=[0, 0], limit=[1024, 512]}
  %up: f32[1024, 512] = slice(%wide) {start=[0, 512], limit=[1024, 1024]}
  %sigmoid: f32[1024, 512] = logistic(%gate)
  %silu: f32[1024, 512] = mul(%gate, %sigmoid)
  %gated: f32[1024, 512] = mul(%silu, %up)
  %y: bf16[1024, 512] = cast(%gated)
  output(%y) {name="y"}
)";
  const Module alone = fused(parsed(after_product("swiglu", 1024, tail + "}\n")));
  CHECK(kernels(alone) == Names{"matmul"});
  CHECK(column_map(alone.programs[0], alone.programs[0].groups[0]) == ColumnMap::halves);
  const Module both = fused(parsed(after_product("swiglu", 1024, tail + "  output(%z) {name=\"z\"}\n}\n")));
  CHECK(kernels(both) == Names{"matmul"});
  check_golden("fuse/matmul_swiglu.gir", print_module(both));
}

const std::string kRopeTail = R"(
  %qkv: f32[4, 256, 3, 4, 64] = reshape(%product)
  %position: i32[256, 3, 64] = iota {axis=0}
  %position_real: f32[256, 3, 64] = cast(%position)
  %element: i32[256, 3, 64] = iota {axis=2}
  %element_real: f32[256, 3, 64] = cast(%element)
  %angle: f32[256, 3, 64] = mul(%position_real, %element_real)
  %cos: f32[256, 3, 64] = cos(%angle)
  %sin: f32[256, 3, 64] = sin(%angle)
  %cosines: f32[4, 256, 3, 4, 64] = broadcast(%cos) {axes=[1, 2, 4]}
  %sines: f32[4, 256, 3, 4, 64] = broadcast(%sin) {axes=[1, 2, 4]}
  %pairs: f32[4, 256, 3, 4, 32, 2] = reshape(%qkv)
  %swapped: f32[4, 256, 3, 4, 32, 2] = reverse(%pairs) {axes=[5]}
  %others: f32[4, 256, 3, 4, 64] = reshape(%swapped)
  %a: f32[4, 256, 3, 4, 64] = mul(%qkv, %cosines)
  %b: f32[4, 256, 3, 4, 64] = mul(%others, %sines)
  %sum: f32[4, 256, 3, 4, 64] = add(%a, %b)
  %y: bf16[4, 256, 3, 4, 64] = cast(%sum)
  output(%y) {name="y"}
}
)";

TEST_CASE("RoPE is a product's epilogue that reads tables made once") {
  const Module module = fused(parsed(after_product("rope", 768, kRopeTail)));
  CHECK(kernels(module) == Names{"pointwise", "matmul"});
  CHECK(column_map(module.programs[0], module.programs[0].groups[1]) == ColumnMap::pairs);
  check_golden("fuse/matmul_rope.gir", print_module(module));
}

TEST_CASE("SwiGLU's gradient is the epilogue of the product before it, stored as a concat") {
  const Module module = fused(gradient_of(R"(module "mlp"
param @down: bf16[512, 256]
program @p {
  %z: bf16[1024, 1024] = input {name="z"}
  %down: bf16[512, 256] = param {name=@down}
  %wide: f32[1024, 1024] = cast(%z)
  %gate: f32[1024, 512] = slice(%wide) {start=[0, 0], limit=[1024, 512]}
  %up: f32[1024, 512] = slice(%wide) {start=[0, 512], limit=[1024, 1024]}
  %sigmoid: f32[1024, 512] = logistic(%gate)
  %silu: f32[1024, 512] = mul(%gate, %sigmoid)
  %gated: f32[1024, 512] = mul(%silu, %up)
  %h: bf16[1024, 512] = cast(%gated)
  %y: bf16[1024, 256] = matmul(%h, %down) {transpose_a=false, transpose_b=false}
}
)",
                                          {"z"}));
  CHECK(kernels(module) == Names{"matmul"});
  check_golden("fuse/matmul_swiglu_gradient.gir", print_module(module));
}

}  // namespace
}  // namespace stepc
