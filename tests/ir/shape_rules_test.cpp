// Every shape rule with operands that it takes and ones that it refuses, with the exact message.
#include <doctest/doctest.h>

#include "ir/graph/builder.h"
#include "ir/graph/parse.h"
#include "ir/graph/verify.h"

namespace stepc {
namespace {

// The verifier's word on one operation: "" if it is right. Types are given as texts; operands are %a, %b...
std::string verdict(std::string_view results, std::string_view operation, std::vector<std::string_view> operands) {
  std::string text = "module \"m\"\nparam @w: bf16[2]\nstate @s: f32[3] optimizer\nprogram @p {\n";
  for (size_t i = 0; i < operands.size(); ++i)
    text += fmt::format("%{0}: {1} = input {{name=\"{0}\"}}\n", static_cast<char>('a' + i), operands[i]);
  if (!results.empty()) text += fmt::format("{} = ", results);
  text += fmt::format("{}\n}}\n", operation);
  const Result<Module> module = parse_module(text, "t");
  return module ? "" : module.error().message;
}

TEST_CASE("operand, result and attribute counts") {
  CHECK(verdict("%r: f32[2]", "add(%a)", {"f32[2]"}) == "add: expected 2 operands, found 1");
  CHECK(verdict("%r: f32[2]", "neg(%a, %a)", {"f32[2]"}) == "neg: expected 1 operand, found 2");
  CHECK(verdict("%r: f32[2]", "neg", {}) == "neg: expected 1 operand, found 0");
  CHECK(verdict("%r: f32[2]", "concat() {axis=0}", {}) == "concat: expected 1 to 64 operands, found 0");
  CHECK(verdict("", "neg(%a)", {"f32[2]"}) == "neg: expected 1 result, found 0");
  CHECK(verdict("%r: f32[2], %s: f32[2]", "neg(%a)", {"f32[2]"}) == "neg: expected 1 result, found 2");
  CHECK(verdict("%r: f32[2]", "output(%a) {name=\"x\"}", {"f32[2]"}) == "output: expected 0 results, found 1");
  CHECK(verdict("%r: f32[3, 2]", "matmul(%a, %a) {transpose_a=true}", {"f32[2, 3]"}) ==
        "matmul: expected attributes {transpose_a, transpose_b}, found {transpose_a}");
}

TEST_CASE("leaves") {
  CHECK(verdict("%r: f32[2]", "constant {value=0.5}", {}) == "");
  CHECK(verdict("%r: bf16[2]", "constant {value=0.5}", {}) ==
        "constant: expected a result of dtype f32, i32 or pred, found bf16");
  CHECK(verdict("%r: i32[2]", "constant {value=0.5}", {}) ==
        "constant: expected an integer of 32 bits as value for i32, found 0.5");
  CHECK(verdict("%r: i32[2]", "constant {value=-2147483648}", {}) == "");
  CHECK(verdict("%r: i32[2]", "constant {value=2147483648}", {}) ==
        "constant: expected an integer of 32 bits as value for i32, found 2147483648");
  CHECK(verdict("%r: i32[2]", "constant {value=nan}", {}) ==
        "constant: expected an integer of 32 bits as value for i32, found nan");
  CHECK(verdict("%r: pred[2]", "constant {value=2}", {}) == "constant: expected value 0 or 1 for pred, found 2");
  CHECK(verdict("%r: i32[2, 3]", "iota {axis=1}", {}) == "");
  CHECK(verdict("%r: i32[2, 3]", "iota {axis=2}", {}) == "iota: expected axis in [0, 2), found 2");
  CHECK(verdict("%r: f32[2, 3]", "iota {axis=1}", {}) == "iota: expected a result of dtype i32, found f32[2, 3]");
  CHECK(verdict("%r: i32[2147483648]", "iota {axis=0}", {}) ==
        "iota: expected an extent of at most 2147483647 along the axis, found i32[2147483648]");
  CHECK(verdict("%r: i32[5]", "random_bits(%a, %a, %a)", {"i32[]"}) == "");
  CHECK(verdict("%r: i32[5]", "random_bits(%a, %b, %a)", {"i32[]", "i32[1]"}) ==
        "random_bits: expected operand 2 of type i32[], found i32[1]");
  CHECK(verdict("%r: f32[5]", "random_bits(%a, %a, %a)", {"i32[]"}) ==
        "random_bits: expected a result of dtype i32, found f32[5]");
}

TEST_CASE("persistents") {
  CHECK(verdict("%r: bf16[2]", "param {name=@w}", {}) == "");
  CHECK(verdict("%r: f32[2]", "param {name=@w}", {}) == "param: expected bf16[2] like @w, found f32[2]");
  CHECK(verdict("%r: bf16[2]", "state {name=@w}", {}) == "state: @w is a param, not a state");
  CHECK(verdict("%r: f32[3]", "param {name=@s}", {}) == "param: @s is a state, not a param");
  CHECK(verdict("%r: f32[3]", "state {name=@absent}", {}) == "state: no param or state @absent");
  CHECK(verdict("", "assign(%a) {name=@s}", {"f32[3]"}) == "");
  CHECK(verdict("", "assign(%a) {name=@s}", {"f32[2]"}) == "assign: expected f32[3] like @s, found f32[2]");
  CHECK(verdict("", "assign(%a) {name=@s}\nassign(%a) {name=@s}", {"f32[3]"}) ==
        "expected one assign of \"s\" in a program, found another");
  CHECK(verdict("", "output(%a) {name=\"o\"}\noutput(%a) {name=\"o\"}", {"f32[3]"}) ==
        "expected one output \"o\" in a program, found another");
  CHECK(verdict("%r: f32[3]", "input {name=\"a\"}", {"f32[3]"}) ==
        "expected one input \"a\" in a program, found another");
}

TEST_CASE("pointwise: dtypes and equal shapes") {
  CHECK(verdict("%r: i32[2]", "add(%a, %a)", {"i32[2]"}) == "");
  CHECK(verdict("%r: f32[]", "add(%a, %a)", {"f32[]"}) == "");
  CHECK(verdict("%r: bf16[2]", "add(%a, %a)", {"bf16[2]"}) ==
        "add: expected operand 1 of dtype f32 or i32, found bf16[2]");
  CHECK(verdict("%r: f32[2]", "add(%a, %b)", {"f32[2]", "f32[3]"}) ==
        "add: expected operand 2 of type f32[2], found f32[3]");
  CHECK(verdict("%r: f32[2]", "add(%a, %b)", {"f32[2]", "i32[2]"}) ==
        "add: expected operand 2 of type f32[2], found i32[2]");
  CHECK(verdict("%r: f32[3]", "add(%a, %a)", {"f32[2]"}) == "add: expected a result of type f32[2], found f32[3]");
  CHECK(verdict("%r: i32[2]", "exp(%a)", {"i32[2]"}) == "exp: expected operand 1 of dtype f32, found i32[2]");
  CHECK(verdict("%r: f32[2]", "rem(%a, %a)", {"f32[2]"}) == "rem: expected operand 1 of dtype i32, found f32[2]");
  CHECK(verdict("%r: pred[2]", "logical_and(%a, %b)", {"pred[2]", "pred[1]"}) ==
        "logical_and: expected operand 2 of type pred[2], found pred[1]");
  CHECK(verdict("%r: pred[2]", "logical_not(%a)", {"i32[2]"}) ==
        "logical_not: expected operand 1 of dtype pred, found i32[2]");
  CHECK(verdict("%r: f32[2]", "less(%a, %a)", {"f32[2]"}) == "less: expected a result of type pred[2], found f32[2]");
  CHECK(verdict("%r: pred[2]", "is_finite(%a)", {"i32[2]"}) ==
        "is_finite: expected operand 1 of dtype f32, found i32[2]");
  CHECK(verdict("%r: f32[2]", "unit_from_bits(%a)", {"f32[2]"}) ==
        "unit_from_bits: expected operand 1 of dtype i32, found f32[2]");
  CHECK(verdict("%r: f32[2]", "fma(%a, %a, %b)", {"f32[2]", "f32[]"}) ==
        "fma: expected operand 3 of type f32[2], found f32[]");
}

TEST_CASE("casts go only where rounding is defined") {
  for (const auto& [from, to] :
       {std::pair("f32", "bf16"), {"bf16", "f32"}, {"f32", "i32"}, {"i32", "f32"}, {"pred", "f32"}, {"pred", "i32"}})
    CHECK(verdict(fmt::format("%r: {}[2]", to), "cast(%a)", {fmt::format("{}[2]", from)}) == "");
  CHECK(verdict("%r: f32[2]", "cast(%a)", {"f32[2]"}) == "cast: no cast from f32 to f32");
  CHECK(verdict("%r: bf16[2]", "cast(%a)", {"i32[2]"}) == "cast: no cast from i32 to bf16");
  CHECK(verdict("%r: pred[2]", "cast(%a)", {"f32[2]"}) == "cast: no cast from f32 to pred");
  CHECK(verdict("%r: bf16[3]", "cast(%a)", {"f32[2]"}) == "cast: expected a result of type bf16[2], found bf16[3]");
}

TEST_CASE("select") {
  CHECK(verdict("%r: bf16[2]", "select(%a, %b, %b)", {"pred[2]", "bf16[2]"}) == "");
  CHECK(verdict("%r: f32[2]", "select(%a, %a, %a)", {"f32[2]"}) ==
        "select: expected operand 1 of dtype pred, found f32[2]");
  CHECK(verdict("%r: f32[2]", "select(%a, %b, %b)", {"pred[3]", "f32[2]"}) ==
        "select: expected operand 2 of shape [3], found f32[2]");
  CHECK(verdict("%r: f32[2]", "select(%a, %b, %c)", {"pred[2]", "f32[2]", "i32[2]"}) ==
        "select: expected operand 3 of type f32[2], found i32[2]");
}

TEST_CASE("views") {
  CHECK(verdict("%r: f32[3, 2]", "reshape(%a)", {"f32[6]"}) == "");
  CHECK(verdict("%r: f32[0, 9]", "reshape(%a)", {"f32[5, 0]"}) == "");
  CHECK(verdict("%r: f32[4]", "reshape(%a)", {"f32[6]"}) == "reshape: expected a result of 6 elements, found [4]");
  CHECK(verdict("%r: i32[6]", "reshape(%a)", {"f32[6]"}) == "reshape: expected a result of type f32[6], found i32[6]");
  CHECK(verdict("%r: f32[5, 2, 3]", "transpose(%a) {permutation=[2, 0, 1]}", {"f32[2, 3, 5]"}) == "");
  CHECK(verdict("%r: f32[2, 3]", "transpose(%a) {permutation=[0, 0]}", {"f32[2, 3]"}) ==
        "transpose: expected a permutation of 0 to 1, found [0, 0]");
  CHECK(verdict("%r: f32[2, 3]", "transpose(%a) {permutation=[0]}", {"f32[2, 3]"}) ==
        "transpose: expected 2 values in permutation, one per dimension, found 1");
  CHECK(verdict("%r: f32[4, 2]", "broadcast(%a) {axes=[1]}", {"f32[2]"}) == "");
  CHECK(verdict("%r: f32[4, 2]", "broadcast(%a) {axes=[0]}", {"f32[2]"}) ==
        "broadcast: expected extent 2 along axis 0 of the result, found [4, 2]");
  CHECK(verdict("%r: f32[4, 4]", "broadcast(%a) {axes=[1, 0]}", {"f32[4, 4]"}) ==
        "broadcast: expected ascending axes in [0, 2), found [1, 0]");
  CHECK(verdict("%r: f32[4]", "broadcast(%a) {axes=[]}", {"f32[4]"}) ==
        "broadcast: expected 1 values in axes, one per dimension, found 0");
  CHECK(verdict("%r: f32[1]", "slice(%a) {start=[2], limit=[3]}", {"f32[3]"}) == "");
  CHECK(verdict("%r: f32[1]", "slice(%a) {start=[3], limit=[4]}", {"f32[3]"}) ==
        "slice: expected 0 <= start <= limit <= 3 along dimension 0, found start 3 and limit 4");
  CHECK(verdict("%r: f32[1]", "slice(%a) {start=[-1], limit=[0]}", {"f32[3]"}) ==
        "slice: expected 0 <= start <= limit <= 3 along dimension 0, found start -1 and limit 0");
  CHECK(verdict("%r: f32[6]", "pad(%a) {low=[1], high=[2]}", {"f32[3]"}) == "");
  CHECK(verdict("%r: f32[6]", "pad(%a) {low=[-1], high=[2]}", {"f32[3]"}) ==
        "pad: expected low and high of at least 0, found -1 and 2 along dimension 0");
  CHECK(verdict("%r: f32[6]", "pad(%a) {low=[9223372036854775807], high=[2]}", {"f32[3]"}) ==
        "pad: the extent along dimension 0 does not fit 64 bits");
  CHECK(verdict("%r: f32[6]", "pad(%a) {low=[4611686018427387904], high=[0]}", {"f32[3]"}) ==
        "pad: the bytes of f32[4611686018427387907] do not fit 64 bits");
  CHECK(verdict("%r: f32[3]", "reverse(%a) {axes=[1]}", {"f32[3]"}) ==
        "reverse: expected ascending axes in [0, 1), found [1]");
  CHECK(verdict("%r: f32[2, 5]", "concat(%a, %b) {axis=1}", {"f32[2, 3]", "f32[2, 2]"}) == "");
  CHECK(verdict("%r: f32[2, 5]", "concat(%a, %b) {axis=0}", {"f32[2, 3]", "f32[2, 2]"}) ==
        "concat: expected operand 2 to equal f32[2, 3] but along axis 0, found f32[2, 2]");
  CHECK(verdict("%r: f32[]", "concat(%a) {axis=0}", {"f32[]"}) == "concat: expected axis in [0, 0), found 0");
}

TEST_CASE("reductions") {
  CHECK(verdict("%r: f32[3]", "reduce_sum(%a) {axes=[0, 2]}", {"f32[2, 3, 5]"}) == "");
  CHECK(verdict("%r: f32[2]", "reduce_max(%a) {axes=[]}", {"f32[2]"}) == "");
  CHECK(verdict("%r: f32[2]", "reduce_max(%a) {axes=[0]}", {"f32[2]"}) ==
        "reduce_max: expected a result of type f32[], found f32[2]");
  CHECK(verdict("%r: bf16[]", "reduce_sum(%a) {axes=[0]}", {"bf16[2]"}) ==
        "reduce_sum: expected operand 1 of dtype f32, found bf16[2]");
  CHECK(verdict("%r: f32[]", "reduce_sum(%a) {axes=[0, 0]}", {"f32[2]"}) ==
        "reduce_sum: expected ascending axes in [0, 1), found [0, 0]");
}

TEST_CASE("matmul") {
  const std::string_view plain = "matmul(%a, %b) {transpose_a=false, transpose_b=false}";
  const std::string_view both = "matmul(%a, %b) {transpose_a=true, transpose_b=true}";
  CHECK(verdict("%r: bf16[2, 5]", plain, {"f32[2, 3]", "f32[3, 5]"}) == "");
  CHECK(verdict("%r: f32[7, 2, 5]", both, {"bf16[7, 3, 2]", "bf16[7, 5, 3]"}) == "");
  CHECK(verdict("%r: f32[2, 5]", plain, {"f32[2, 3]", "f32[4, 5]"}) ==
        "matmul: expected operand 2 to share k = 3 and the batch dimensions of f32[2, 3], found f32[4, 5]");
  CHECK(verdict("%r: f32[2, 2, 5]", plain, {"f32[2, 2, 3]", "f32[3, 5]"}) ==
        "matmul: expected operand 2 to share k = 3 and the batch dimensions of f32[2, 2, 3], found f32[3, 5]");
  CHECK(verdict("%r: f32[2, 5]", plain, {"f32[2, 3]", "bf16[3, 5]"}) ==
        "matmul: expected operand 2 of dtype f32 like operand 1, found bf16[3, 5]");
  CHECK(verdict("%r: f32[]", plain, {"f32[3]", "f32[3]"}) ==
        "matmul: expected operand 1 of dtype f32 or bf16 and rank 2 or more, found f32[3]");
  CHECK(verdict("%r: i32[2, 5]", plain, {"f32[2, 3]", "f32[3, 5]"}) ==
        "matmul: expected a result of dtype f32 or bf16, found i32[2, 5]");
  CHECK(verdict("%r: f32[2, 4]", plain, {"f32[2, 3]", "f32[3, 5]"}) ==
        "matmul: expected a result of type f32[2, 5], found f32[2, 4]");
  const std::string_view counted = "matmul(%a, %b, %c) {transpose_a=false, transpose_b=true}";
  CHECK(verdict("%r: f32[2, 5]", counted, {"f32[2, 3]", "f32[5, 3]", "i32[]"}) == "");
  CHECK(verdict("%r: f32[4, 7, 2, 5]", counted, {"bf16[4, 7, 2, 3]", "bf16[4, 7, 5, 3]", "i32[4, 7]"}) == "");
  CHECK(verdict("%r: f32[4, 7, 2, 5]", counted, {"bf16[4, 7, 2, 3]", "bf16[4, 7, 5, 3]", "i32[28]"}) ==
        "matmul: expected operand 3 of type i32[4, 7], found i32[28]");
  CHECK(verdict("%r: f32[2, 5]", counted, {"f32[2, 3]", "f32[5, 3]", "f32[]"}) ==
        "matmul: expected operand 3 of type i32[], found f32[]");
  CHECK(verdict("%r: f32[2147483648, 2147483648]", both, {"f32[0, 2147483648]", "f32[2147483648, 0]"}) ==
        "the bytes of f32[2147483648, 2147483648] do not fit 64 bits");
}

TEST_CASE("rows") {
  CHECK(verdict("%r: bf16[7, 3]", "gather_rows(%a, %b)", {"bf16[5, 3]", "i32[7]"}) == "");
  CHECK(verdict("%r: bf16[7, 3]", "gather_rows(%a, %b, %c)", {"bf16[5, 3]", "i32[7]", "i32[5]"}) == "");
  CHECK(verdict("%r: bf16[7, 3]", "gather_rows(%a, %b, %b)", {"bf16[5, 3]", "i32[7]"}) ==
        "gather_rows: expected operand 3 of type i32[5], found i32[7]");
  CHECK(verdict("%r: f32[7]", "gather_rows(%a, %b)", {"f32[5]", "i32[7]"}) ==
        "gather_rows: expected operand 1 of dtype f32, bf16 or i32 and rank 2, found f32[5]");
  CHECK(verdict("%r: f32[7, 3]", "gather_rows(%a, %b)", {"f32[5, 3]", "i32[7, 1]"}) ==
        "gather_rows: expected operand 2 of type i32[N], found i32[7, 1]");
  CHECK(verdict("%r: f32[9, 3]", "scatter_add_rows(%a, %b)", {"bf16[5, 3]", "i32[5]"}) == "");
  CHECK(verdict("%r: f32[9, 2]", "scatter_add_rows(%a, %b)", {"bf16[5, 3]", "i32[5]"}) ==
        "scatter_add_rows: expected a result of type f32[R, 3], found f32[9, 2]");
  CHECK(verdict("%r: f32[9, 3]", "scatter_add_rows(%a, %b)", {"bf16[5, 3]", "i32[4]"}) ==
        "scatter_add_rows: expected operand 2 of type i32[5], found i32[4]");
  CHECK(verdict("%r: f32[9, 3]", "scatter_add_rows(%a, %b)", {"i32[5, 3]", "i32[5]"}) ==
        "scatter_add_rows: expected operand 1 of dtype f32 or bf16 and rank 2, found i32[5, 3]");
}

TEST_CASE("attention and its gradient") {
  const std::string_view attention = "attention(%a) {causal=true, scale=1}";
  const std::string_view gradient = "attention_grad(%a, %b, %c, %b) {causal=true, scale=1}";
  const std::string_view atomic = "attention_grad(%a, %b, %c, %b) {causal=true, scale=1, atomic=true}";
  CHECK(verdict("%r: bf16[1, 2, 3, 3, 4]", atomic, {"bf16[1, 2, 3, 3, 4]", "bf16[1, 2, 3, 4]", "f32[1, 3, 2]"}) == "");
  CHECK(verdict("%r: bf16[1, 2, 3, 4], %l: f32[1, 3, 2]", attention, {"bf16[1, 2, 3, 3, 4]"}) == "");
  CHECK(verdict("%r: bf16[1, 2, 3, 4], %l: f32[1, 2, 3]", attention, {"bf16[1, 2, 3, 3, 4]"}) ==
        "attention: expected result 2 of type f32[1, 3, 2], found f32[1, 2, 3]");
  CHECK(verdict("%r: bf16[1, 2, 3, 4], %l: f32[1, 3, 2]", attention, {"bf16[1, 2, 2, 3, 4]"}) ==
        "attention: expected operand 1 of type bf16[B, T, 3, H, d], found bf16[1, 2, 2, 3, 4]");
  CHECK(verdict("%r: bf16[1, 2, 3, 3, 4]", gradient, {"bf16[1, 2, 3, 3, 4]", "bf16[1, 2, 3, 4]", "f32[1, 3, 2]"}) ==
        "");
  CHECK(verdict("%r: bf16[1, 2, 3, 3, 4]", gradient, {"bf16[1, 2, 3, 3, 4]", "bf16[1, 2, 3, 4]", "f32[1, 2, 3]"}) ==
        "attention_grad: expected operand 3 of type f32[1, 3, 2], found f32[1, 2, 3]");
  CHECK(verdict("%r: bf16[1, 2, 3, 3, 4]", gradient, {"bf16[1, 2, 3, 3, 4]", "f32[1, 2, 3, 4]", "f32[1, 3, 2]"}) ==
        "attention_grad: expected operand 2 of type bf16[1, 2, 3, 4], found f32[1, 2, 3, 4]");
}

TEST_CASE("route") {
  const std::string_view results = "%e: i32[5, 2], %s: i32[10], %a2: i32[12], %c: i32[4]";
  CHECK(verdict(results, "route(%a) {top=2, capacity=3}", {"f32[5, 4]"}) == "");
  CHECK(verdict(results, "route(%a) {top=5, capacity=3}", {"f32[5, 4]"}) == "route: expected top in [1, 4], found 5");
  CHECK(verdict(results, "route(%a) {top=2, capacity=0}", {"f32[5, 4]"}) ==
        "route: expected capacity of at least 1, found 0");
  CHECK(verdict(results, "route(%a) {top=2, capacity=3}", {"bf16[5, 4]"}) ==
        "route: expected operand 1 of type f32[N, E], found bf16[5, 4]");
  CHECK(verdict(results, "route(%a) {top=2, capacity=9223372036854775807}", {"f32[5, 4]"}) ==
        "route: expected at most 2147483647 assignments and slots");
}

TEST_CASE("the verifier refuses programs that only a bug can make") {
  Module module{"m", {}, {}};
  GraphBuilder builder(module, "p");
  const ValueId x = builder.input("x", {Dtype::f32, {2}});
  const ValueId y = builder.unary(Op::neg, x);
  builder.output("y", y);
  REQUIRE(verify(module).has_value());
  const auto verdict_on = [](const Module& broken) {
    const Status status = verify(broken);
    return status ? std::string() : status.error().text();
  };
  Module broken = module;
  broken.programs[0].nodes[1].operands[0] = y;
  CHECK(verdict_on(broken) == "program @p, %neg: neg: operand %neg is not defined before its use");
  broken = module;
  broken.programs[0].nodes[1].operands[0] = ValueId{99};
  CHECK(verdict_on(broken) == "program @p, %neg: neg: operand none is not defined before its use");
  broken = module;
  broken.programs[0].values[1].name = "x";
  CHECK(verdict_on(broken) == "program @p: %x is defined twice");
  broken = module;
  broken.programs[0].values[1].name = "a b";
  CHECK(verdict_on(broken) == "program @p: 'a b' is no value name");
  broken = module;
  broken.programs[0].values[1].producer = NodeId{0};
  CHECK(verdict_on(broken) == "program @p: %neg is not a result of its producer");
  broken = module;
  broken.programs[0].values[1].type.shape = {3};
  CHECK(verdict_on(broken) == "program @p, %neg: neg: expected a result of type f32[2], found f32[3]");
  broken = module;
  broken.programs[0].groups = {{"k", Template::pointwise, {NodeId{1}}}, {"l", Template::pointwise, {NodeId{1}}}};
  CHECK(verdict_on(broken) == "kernel @l: neg is in another kernel");
  broken.programs[0].groups[1].name = "k";
  CHECK(verdict_on(broken) == "program @p: kernel @k is defined twice");
  broken.programs[0].groups = {{"k", Template::pointwise, {NodeId{0}}}};
  CHECK(verdict_on(broken) == "kernel @k: input cannot be in a kernel");
  broken.programs[0].groups = {{"k", Template::pointwise, {}}};
  CHECK(verdict_on(broken) == "kernel @k: expected at least one op, found none");
  broken.programs[0].groups = {{"k", Template::row, {NodeId{1}}}};
  CHECK(verdict_on(broken) == "kernel @k: expected a reduction in a kernel of template row, found none");
}

TEST_CASE("the verifier refuses groups that depend on each other in a circle") {
  Module module{"m", {}, {}};
  GraphBuilder builder(module, "p");
  const ValueId a = builder.unary(Op::neg, builder.input("x", {Dtype::f32, {2}}));
  const ValueId b = builder.unary(Op::neg, a);
  builder.unary(Op::neg, b);
  builder.program().groups = {{"outer", Template::pointwise, {NodeId{1}, NodeId{3}}},
                              {"inner", Template::pointwise, {NodeId{2}}}};
  const Status status = verify(module);
  REQUIRE_FALSE(status.has_value());
  CHECK(status.error().text() == "program @p: kernels depend on each other in a circle");
}

}  // namespace
}  // namespace stepc
