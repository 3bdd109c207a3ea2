// Programs at the edge of what needs a kernel.
#include <doctest/doctest.h>

#include "compiler/graph/fuse.h"
#include "compiler/graph/fuse_check.h"
#include "compiler/graph/order.h"
#include "compiler/plan/plan.h"
#include "ir/graph/evaluate.h"
#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"

namespace stepc {
namespace {

// The fused program's kernels, one a line: "template: ops". Checks that it verifies, keeps its promises and can be
// planned.
std::string kernels_of(const std::string& body, Updates updates = Updates::in_products) {
  auto module = parse_module(
      "module \"m\"\nparam @w: f32[4, 6]\nstate @s: f32[4, 6] optimizer\nstate @t: f32[4, 6] "
      "optimizer\nprogram @p {\n" +
          body + "}\n",
      "e.gir");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  Program& program = module->programs[0];
  fuse(program, {.updates = updates});
  order(program);
  const Status verified = verify(*module);
  REQUIRE_MESSAGE(verified.has_value(), verified.error().text());
  const Status checked = check_groups(program);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  const auto plan = plan_program(program, layout_persistents(*module).value(), unscheduled_launches(program));
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  std::string text;
  for (const Group& group : program.groups) {
    text += std::string(template_name(group.schedule)) + ":";
    for (NodeId id : group.nodes) text += " " + std::string(op_info(program.node(id).op).name);
    text += "\n";
  }
  return text;
}

const std::string kW = "  %w: f32[4, 6] = param {name=@w}\n";
const std::string kS = "  %s: f32[4, 6] = state {name=@s}\n";

TEST_CASE("what is in memory already needs no kernel") {
  CHECK(kernels_of(kW + "  output(%w) {name=\"w\"}\n") == "");
  CHECK(kernels_of(kW + "  %r: f32[24] = reshape(%w)\n  output(%r) {name=\"r\"}\n") == "");
  CHECK(kernels_of(kS + "  assign(%s) {name=@t}\n") == "");
  CHECK(kernels_of("") == "");
}

TEST_CASE("constants and views that are handed out are made by a kernel") {
  CHECK(kernels_of("  %c: f32[4, 6] = constant {value=0}\n  assign(%c) {name=@s}\n") == "pointwise: constant\n");
  CHECK(kernels_of(kW + "  %v: f32[6, 4] = transpose(%w) {permutation=[1, 0]}\n  output(%v) {name=\"v\"}\n") ==
        "pointwise: transpose\n");
  CHECK(kernels_of("  %i: i32[7] = iota {axis=0}\n  output(%i) {name=\"i\"}\n") == "pointwise: iota\n");
}

TEST_CASE("updates join all products, those of bf16, or none") {
  const auto update = [](const std::string& dtype, Updates updates) {
    return kernels_of(kS + "  %x: " + dtype + "[4, 8] = input {name=\"x\"}\n  %y: " + dtype +
                          "[8, 6] = input {name=\"y\"}\n  %g: f32[4, 6] = matmul(%x, %y) {transpose_a=false, "
                          "transpose_b=false} !backward\n"
                          "  %n: f32[4, 6] = add(%s, %g) !optimizer\n  assign(%n) {name=@s} !optimizer\n",
                      updates);
  };
  const std::string together = "matmul: matmul add\n", apart = "matmul: matmul\npointwise: add\n";
  CHECK(update("f32", Updates::in_products) == together);
  CHECK(update("bf16", Updates::in_products) == together);
  CHECK(update("f32", Updates::in_bf16_products) == apart);
  CHECK(update("bf16", Updates::in_bf16_products) == together);
  CHECK(update("f32", Updates::apart) == apart);
  CHECK(update("bf16", Updates::apart) == apart);
}

TEST_CASE("one value for an output, a state and other kernels is made once") {
  CHECK(kernels_of(kW + kS +
                   "  %a: f32[4, 6] = add(%w, %s)\n  output(%a) {name=\"a\"}\n  output(%a) {name=\"b\"}\n"
                   "  assign(%a) {name=@s}\n  %f: f32[24] = reshape(%a)\n  output(%f) {name=\"f\"}\n"
                   "  %e: f32[24] = exp(%f)\n  output(%e) {name=\"e\"}\n") == "pointwise: add reshape exp\n");
}

TEST_CASE("a transpose that a product and other ops read is made once and evaluated elsewhere") {
  CHECK(kernels_of(kW + "  %v: f32[6, 4] = transpose(%w) {permutation=[1, 0]}\n"
                        "  %p: f32[4, 4] = matmul(%w, %v) {transpose_a=false, transpose_b=false}\n"
                        "  %e: f32[6, 4] = exp(%v)\n  output(%p) {name=\"p\"}\n  output(%e) {name=\"e\"}\n") ==
        "pointwise: transpose transpose exp\nmatmul: matmul\n");
}

TEST_CASE("dead nodes are gone, also those that fusion made dead") {
  CHECK(kernels_of(kW + "  %d: f32[4, 6] = exp(%w)\n  %i: i32[2] = constant {value=1}\n"
                        "  %v: i32[4] = constant {value=-1}\n  %g: f32[2, 6] = gather_rows(%w, %i, %v)\n"
                        "  output(%g) {name=\"g\"}\n") == "pointwise: constant gather_rows\n");
}

TEST_CASE("a reduction over axes that are apart is one over the last axes of a transpose") {
  CHECK(kernels_of("  %x: f32[5, 7, 9] = input {name=\"x\"}\n  %r: f32[7] = reduce_max(%x) {axes=[0, 2]}\n"
                   "  output(%r) {name=\"r\"}\n") == "row: transpose reduce_max\n");
}

TEST_CASE("a concat of unequal pieces becomes selections, one of equal pieces is stored by piece") {
  CHECK(kernels_of(kW + "  %v: f32[4, 2] = slice(%w) {start=[0, 0], limit=[4, 2]}\n"
                        "  %c: f32[4, 8] = concat(%w, %v) {axis=1}\n  output(%c) {name=\"c\"}\n") ==
        "pointwise: iota constant less pad slice pad select\n");
  CHECK(kernels_of(kW + "  %v: f32[4, 6] = exp(%w)\n  %c: f32[4, 12] = concat(%w, %v) {axis=1}\n"
                        "  output(%c) {name=\"c\"}\n") == "pointwise: exp concat\n");
}

TEST_CASE("a sum whose circle through another kernel forbids a merge stays apart") {
  // exp -> column sum -> broadcast -> mul(exp, ..): exp and mul cannot be one kernel around the sum.
  const std::string text = kernels_of(
      "  %x: f32[640, 1000] = input {name=\"x\"}\n  %a: f32[640, 1000] = exp(%x)\n"
      "  %s: f32[1000] = reduce_sum(%a) {axes=[0]}\n  %b: f32[640, 1000] = broadcast(%s) {axes=[1]}\n"
      "  %y: f32[640, 1000] = div(%a, %b)\n  output(%y) {name=\"y\"}\n");
  CHECK(text == "column_sum: exp reduce_sum\npointwise: exp broadcast div\n");
}

}  // namespace
}  // namespace stepc
