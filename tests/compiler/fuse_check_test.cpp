#include "compiler/graph/fuse_check.h"

#include <doctest/doctest.h>

#include "ir/graph/fused.h"
#include "ir/graph/parse.h"
#include "ir/graph/print.h"

namespace stepc {
namespace {

// A program whose kernel @k has the given template and body, between the inputs and the outputs of `names`.
Module kernel_module(const std::string& inputs, const std::string& schedule, const std::string& body,
                     const std::vector<std::string>& results) {
  std::string text = "module \"m\"\nprogram @p {\n" + inputs + "  kernel @k " + schedule + " {\n" + body + "  }\n";
  for (const std::string& name : results) text += "  output(%" + name + ") {name=\"" + name + "\"}\n";
  auto module = parse_module(text + "}\n", "k.gir");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  return std::move(*module);
}

std::string check_text(const Module& module) {
  const Program& program = module.programs[0];
  const Status status = check_group(program, program.groups[0]);
  return status ? "" : status.error().message;
}

TEST_CASE("a pointwise kernel stores bases of equal size, through one-to-one views and concat") {
  const std::string x = "  %x: f32[4, 6] = input {name=\"x\"}\n";
  CHECK(check_text(kernel_module(x, "pointwise",
                                 "%a: f32[4, 6] = neg(%x)\n%b: f32[24] = reshape(%a)\n%c: f32[6, 4] = transpose(%x) "
                                 "{permutation=[1, 0]}\n%d: f32[4, 12] = concat(%a, %x) {axis=1}\n",
                                 {"b", "c", "d"})) == "");
  CHECK(check_text(kernel_module(
            x, "pointwise", "%a: f32[4, 6] = neg(%x)\n%b: f32[4, 3] = slice(%a) {start=[0, 0], limit=[4, 3]}\n",
            {"a", "b"})) == "kernel @k: slice, %b: expected 24 elements like the other results, found 12");
  CHECK(check_text(kernel_module(x, "pointwise", "%a: f32[4, 12] = concat(%x, %x) {axis=1}\n%b: f32[4, 12] = neg(%a)\n",
                                 {"b"})) ==
        "kernel @k: concat, %a: a concat is evaluated only where it is stored as a result");
  CHECK(check_text(kernel_module(x, "pointwise", "%a: f32[4] = reduce_sum(%x) {axes=[1]}\n", {"a"})) == "");
  CHECK(check_text(kernel_module(x, "pointwise", "%a: f32[4, 6] = neg(%x)\n%b: f32[4, 6] = abs(%x)\n", {"a"})) ==
        "kernel @k: abs, %b: no result of the kernel needs it");
}

TEST_CASE("17 elements are no small reduction") {
  const std::string x = "  %x: f32[4, 17] = input {name=\"x\"}\n";
  CHECK(check_text(kernel_module(x, "pointwise", "%a: f32[4] = reduce_sum(%x) {axes=[1]}\n", {"a"})) ==
        "kernel @k: reduce_sum, %a: not in a kernel of template pointwise");
  CHECK(check_text(kernel_module(x, "row", "%a: f32[4] = reduce_sum(%x) {axes=[1]}\n", {"a"})) == "");
  CHECK(check_text(kernel_module(x, "column_sum", "%a: f32[4] = reduce_sum(%x) {axes=[1]}\n", {"a"})) ==
        "kernel @k: expected a reduction over a leading or middle axis in a kernel of template column_sum, found none");
}

TEST_CASE("a row kernel reads reductions at the current row") {
  const std::string x = "  %x: f32[2, 20, 20] = input {name=\"x\"}\n";
  const std::string sum = "%s: f32[2, 20] = reduce_sum(%x) {axes=[2]}\n";
  CHECK(check_text(kernel_module(x, "row",
                                 sum + "%w: f32[2, 20, 20] = broadcast(%s) {axes=[0, 1]}\n%y: f32[2, 20, 20] = "
                                       "mul(%x, %w)\n%z: f32[40, 20] = reshape(%y)\n",
                                 {"s", "y", "z"})) == "");
  CHECK(check_text(kernel_module(x, "row",
                                 sum + "%w: f32[2, 20, 20] = broadcast(%s) {axes=[0, 2]}\n%y: f32[2, 20, 20] = "
                                       "mul(%x, %w)\n",
                                 {"y"})) ==
        "kernel @k: reduce_sum, %s: it is read at another row than the current one");
  CHECK(check_text(kernel_module(x, "row", sum + "%t: f32[2] = reduce_sum(%s) {axes=[1]}\n", {"s", "t"})) ==
        "kernel @k: reduce_sum, %t: expected a result of 40 rows of 20 columns, found f32[2]");
}

TEST_CASE("what a row kernel stores has its rows as leading axes") {
  const std::string x = "  %x: f32[5, 7, 50] = input {name=\"x\"}\n";
  const std::string body = "%t: f32[7, 5, 50] = transpose(%x) {permutation=[1, 0, 2]}\n";
  const std::string back = "%y: f32[7, 5, 50] = exp(%t)\n%z: f32[5, 7, 50] = transpose(%y) {permutation=[1, 0, 2]}\n";
  const std::string one_axis = "%m: f32[7, 5] = reduce_max(%t) {axes=[2]}\n";
  const std::string two_axes = "%m: f32[7] = reduce_max(%t) {axes=[1, 2]}\n";
  CHECK(check_text(kernel_module(x, "row", body + one_axis + back, {"m", "z"})) == "");
  CHECK(check_text(kernel_module(x, "row", body + two_axes + back, {"m", "z"})) ==
        "kernel @k: transpose, %z: its columns are several axes and stored in another order");
  CHECK(check_text(kernel_module(x, "row", body + two_axes + "%y: f32[5, 7, 50] = exp(%x)\n", {"m", "y"})) ==
        "kernel @k: exp, %y: expected a result of 7 rows of 250 columns, found f32[5, 7, 50]");
}

TEST_CASE("a row kernel may write partial sums over its rows") {
  const std::string x = "  %x: f32[40, 20] = input {name=\"x\"}\n";
  const std::string body =
      "%s: f32[40] = reduce_sum(%x) {axes=[1]}\n%r: f32[4, 10, 20] = reshape(%x)\n%p: f32[4, 20] = reduce_sum(%r) "
      "{axes=[1]}\n";
  CHECK(check_text(kernel_module(x, "row", body, {"s", "p"})) == "");
  CHECK(check_text(kernel_module(
            x, "row", body + "%r2: f32[5, 8, 20] = reshape(%x)\n%q: f32[5, 20] = reduce_sum(%r2) {axes=[1]}\n",
            {"s", "p", "q"})) ==
        "kernel @k: reduce_sum, %q: expected a result of 40 rows of 20 columns, found f32[5, 20]");
}

TEST_CASE("a column sum reduces an axis that is not the last") {
  const std::string x = "  %x: f32[3, 40, 5] = input {name=\"x\"}\n";
  const std::string square = "%y: f32[3, 40, 5] = mul(%x, %x)\n";
  CHECK(check_text(kernel_module(x, "column_sum", square + "%s: f32[3, 5] = reduce_sum(%y) {axes=[1]}\n", {"s"})) ==
        "");
  CHECK(check_text(kernel_module(x, "column_sum", square + "%s: f32[3, 5] = reduce_sum(%y) {axes=[1]}\n",
                                 {"s", "y"})) == "kernel @k: mul, %y: expected 15 elements like the sums, found 600");
}

TEST_CASE("sums over one axis are read at their own column, with arithmetic after them") {
  const std::string x = "  %x: f32[40, 20] = input {name=\"x\"}\n  %w: f32[20] = input {name=\"w\"}\n";
  const std::string sums = "%s: f32[20] = reduce_sum(%x) {axes=[0]}\n%t: f32[20] = reduce_max(%x) {axes=[0]}\n";
  CHECK(check_text(kernel_module(x, "column_sum", sums + "%y: f32[20] = mul(%s, %w)\n%z: f32[20] = sub(%y, %t)\n",
                                 {"y", "z"})) == "");
  CHECK(check_text(kernel_module(x, "column_sum",
                                 sums + "%r: f32[20] = reverse(%t) {axes=[0]}\n%y: f32[20] = mul(%s, %r)\n", {"y"})) ==
        "kernel @k: reduce_max, %t: it is read at another column than the current one");
}

const std::string kFactors = "  %a: f32[6, 5] = input {name=\"a\"}\n  %b: f32[5, 8] = input {name=\"b\"}\n";
const std::string kProduct = "%p: f32[6, 8] = matmul(%a, %b) {transpose_a=false, transpose_b=false}\n";

ColumnMap columns_of(const Module& module) { return column_map(module.programs[0], module.programs[0].groups[0]); }

TEST_CASE("a product is read at its own column, its pair's or the other half's") {
  const Module identity = kernel_module(
      kFactors, "matmul", kProduct + "%q: f32[2, 3, 8] = reshape(%p)\n%r: f32[2, 3, 8] = exp(%q)\n", {"r"});
  CHECK(check_text(identity) == "");
  CHECK(columns_of(identity) == ColumnMap::identity);

  const Module pairs = kernel_module(kFactors, "matmul",
                                     kProduct +
                                         "%q: f32[2, 3, 4, 2] = reshape(%p)\n%r: f32[2, 3, 4, 2] = reverse(%q) "
                                         "{axes=[3]}\n%s: f32[2, 3, 4, 2] = sub(%q, %r)\n",
                                     {"s"});
  CHECK(check_text(pairs) == "");
  CHECK(columns_of(pairs) == ColumnMap::pairs);

  const Module halves = kernel_module(
      kFactors, "matmul",
      kProduct +
          "%g: f32[6, 4] = slice(%p) {start=[0, 0], limit=[6, 4]}\n%u: f32[6, 4] = slice(%p) {start=[0, 4], "
          "limit=[6, 8]}\n%y: f32[6, 4] = mul(%g, %u)\n%n: f32[6, 8] = neg(%p)\n",
      {"y", "n"});
  CHECK(check_text(halves) == "");
  CHECK(columns_of(halves) == ColumnMap::halves);
}

TEST_CASE("what a matmul's epilogue cannot do") {
  const std::string apart =
      "kernel @k: matmul, %p: the product is read at a column that is neither its own nor one "
      "that meets it";
  CHECK(check_text(kernel_module(kFactors, "matmul",
                                 kProduct + "%r: f32[6, 8] = reverse(%p) {axes=[1]}\n%s: f32[6, 8] = add(%p, %r)\n",
                                 {"s"})) == apart);
  CHECK(check_text(kernel_module(kFactors, "matmul",
                                 "%c: f32[6, 5] = neg(%a)\n%p: f32[6, 8] = matmul(%c, %b) "
                                 "{transpose_a=false, transpose_b=false}\n",
                                 {"p"})) ==
        "kernel @k: neg, %c: an operand of the matmul must be made outside of its kernel");
  CHECK(check_text(kernel_module(kFactors, "matmul", kProduct + "%s: f32[6] = reduce_sum(%p) {axes=[1]}\n", {"s"})) ==
        "kernel @k: reduce_sum, %s: expected 48 elements like the product, found 6");
}

TEST_CASE("kernels of no elements are checked too") {
  const std::string x = "  %x: f32[0, 20] = input {name=\"x\"}\n";
  CHECK(check_text(kernel_module(x, "row", "%s: f32[0] = reduce_sum(%x) {axes=[1]}\n", {"s"})) == "");
  CHECK(check_text(kernel_module(x, "pointwise", "%y: f32[0, 20] = neg(%x)\n%z: f32[20, 0] = reshape(%y)\n", {"z"})) ==
        "");
}

TEST_CASE("the store base is the value before trailing one-to-one views inside the kernel") {
  const Module module = kernel_module(
      "  %x: f32[4, 6] = input {name=\"x\"}\n", "pointwise",
      "%a: f32[4, 6] = neg(%x)\n%b: f32[6, 4] = transpose(%a) {permutation=[1, 0]}\n%c: f32[24] = reshape(%b)\n",
      {"c"});
  const Program& program = module.programs[0];
  const ValueId result = group_results(program, program.groups[0])[0];
  CHECK(program.value(result).name == "c");
  CHECK(program.value(store_base(program, program.groups[0], result)).name == "a");
}

}  // namespace
}  // namespace stepc
