#include "ir/graph/parse.h"

#include <doctest/doctest.h>

#include "ir/graph/print.h"

namespace stepc {
namespace {

// Every op once, as the printer spells it.
constexpr std::string_view kEveryOp = R"(module "every \"op\""

param @w: bf16[3, 4]
state @w.m: f32[3, 4] optimizer
state @w.grad: f32[] gradients
state @w.extra: i32[0, 4] weights

program @all {
  %x: f32[2, 3] = input {name="x"}
  %i: i32[2, 3] = input {name="i"}
  %w: bf16[3, 4] = param {name=@w}
  %m: f32[3, 4] = state {name=@w.m}
  %c: f32[2, 3] = constant {value=-1.5e-07}
  %c.inf: f32[] = constant {value=-inf}
  %c.nan: f32[] = constant {value=nan}
  %seed: i32[] = constant {value=2147483647}
  %yes: pred[2, 3] = constant {value=1}
  %iota: i32[2, 3] = iota {axis=1}
  %bits: i32[7] = random_bits(%seed, %seed, %seed)
  %neg: f32[2, 3] = neg(%x)
  %abs: i32[2, 3] = abs(%i)
  %exp: f32[2, 3] = exp(%x) !backward
  %log: f32[2, 3] = log(%x) !optimizer
  %sqrt: f32[2, 3] = sqrt(%x)
  %rsqrt: f32[2, 3] = rsqrt(%x)
  %sin: f32[2, 3] = sin(%x)
  %cos: f32[2, 3] = cos(%x)
  %tanh: f32[2, 3] = tanh(%x)
  %logistic: f32[2, 3] = logistic(%x)
  %floor: f32[2, 3] = floor(%x)
  %finite: pred[2, 3] = is_finite(%x)
  %not: pred[2, 3] = logical_not(%yes)
  %cast: bf16[2, 3] = cast(%x)
  %unit: f32[7] = unit_from_bits(%bits)
  %stop: bf16[2, 3] = stop_gradient(%cast)
  %add: f32[2, 3] = add(%x, %c)
  %sub: i32[2, 3] = sub(%i, %iota)
  %mul: f32[2, 3] = mul(%x, %c)
  %div: f32[2, 3] = div(%x, %c)
  %rem: i32[2, 3] = rem(%i, %i)
  %pow: f32[2, 3] = pow(%x, %x)
  %max: f32[2, 3] = max(%x, %c)
  %min: f32[2, 3] = min(%x, %c)
  %equal: pred[2, 3] = equal(%i, %iota)
  %less: pred[2, 3] = less(%x, %c)
  %less_equal: pred[2, 3] = less_equal(%x, %c)
  %and: pred[2, 3] = logical_and(%yes, %less)
  %or: pred[2, 3] = logical_or(%yes, %less)
  %fma: f32[2, 3] = fma(%x, %c, %x)
  %select: f32[2, 3] = select(%yes, %x, %c)
  %reshape: f32[3, 2] = reshape(%x)
  %transpose: f32[3, 2] = transpose(%x) {permutation=[1, 0]}
  %broadcast: f32[5, 2, 3] = broadcast(%x) {axes=[1, 2]}
  %slice: f32[2, 0] = slice(%x) {start=[0, 3], limit=[2, 3]}
  %pad: f32[3, 5] = pad(%x) {low=[1, 0], high=[0, 2]}
  %reverse: f32[2, 3] = reverse(%x) {axes=[]}
  %concat: f32[2, 8] = concat(%x, %slice, %c, %slice.2) {axis=1}
  %slice.2: f32[2, 2] = slice(%x) {start=[0, 1], limit=[2, 3]}
  %sum: f32[3] = reduce_sum(%x) {axes=[0]}
  %largest: f32[] = reduce_max(%x) {axes=[0, 1]}
  %smallest: f32[2, 3] = reduce_min(%x) {axes=[]}
  %product: f32[2, 4] = matmul(%cast, %w) {transpose_a=false, transpose_b=false}
  %product.t: bf16[3, 3] = matmul(%w, %w) {transpose_a=false, transpose_b=true}
  %live: i32[] = input {name="live"}
  %product.counted: f32[4, 4] = matmul(%w, %w, %live) {transpose_a=true, transpose_b=false}
  %rows: i32[5] = input {name="rows"}
  %inverse: i32[3] = input {name="inverse"}
  %gather: bf16[5, 4] = gather_rows(%w, %rows)
  %gather.2: bf16[5, 4] = gather_rows(%w, %rows, %inverse)
  %scatter: f32[3, 4] = scatter_add_rows(%gather, %rows)
  %qkv: bf16[2, 5, 3, 2, 4] = input {name="qkv"}
  %out: bf16[2, 5, 2, 4], %lse: f32[2, 2, 5] = attention(%qkv) {causal=true, scale=0.5}
  %dqkv: bf16[2, 5, 3, 2, 4] = attention_grad(%qkv, %out, %lse, %out) {causal=true, scale=0.5} !backward
  %expert: i32[2, 2], %slot: i32[4], %assignment: i32[12], %count: i32[3] = route(%x) {top=2, capacity=4}
  assign(%m) {name=@w.m} !optimizer
  output(%x) {name="loss\x01\n\\"}
}

program @empty {
}
)";

// kEveryOp uses %slice.2 before it is defined, which an error test wants; this puts it right.
std::string every_op() {
  std::string text(kEveryOp);
  const std::string concat = "  %concat: f32[2, 8] = concat(%x, %slice, %c, %slice.2) {axis=1}\n";
  const size_t at = text.find(concat);
  text.erase(at, concat.size());
  const size_t sum = text.find("  %sum:");
  return text.insert(sum, concat);
}

std::string error_of(std::string_view text) {
  const Result<Module> module = parse_module(text, "a.gir");
  return module ? "no error" : module.error().text();
}

std::string in_program(std::string_view lines) {
  return fmt::format("module \"m\"\nprogram @p {{\n%x: f32[2, 3] = input {{name=\"x\"}}\n{}\n}}\n", lines);
}

TEST_CASE("a text with every op prints as it was read") {
  const std::string text = every_op();
  const Result<Module> module = parse_module(text, "a.gir");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  CHECK(print_module(*module) == text);
  CHECK(module->name == "every \"op\"");
  std::vector<bool> seen(kOpCount, false);
  for (const Node& node : module->programs[0].nodes) seen[static_cast<size_t>(node.op)] = true;
  for (int op = 0; op < kOpCount; ++op) CHECK_MESSAGE(seen[static_cast<size_t>(op)], op_info(static_cast<Op>(op)).name);
}

TEST_CASE("blanks, comments, attribute order and empty parentheses are free") {
  const Result<Module> module = parse_module(
      "// head\nmodule\"m\"program@p{%x:f32[2,3]=input(){name=\"x\"}// tail\r\n"
      "%s:f32[1,3]=slice(%x){limit=[1,3],start=[0,0]}!forward output(%s){name=\"\"}}//",
      "a.gir");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  CHECK(print_module(*module) == R"(module "m"

program @p {
  %x: f32[2, 3] = input {name="x"}
  %s: f32[1, 3] = slice(%x) {start=[0, 0], limit=[1, 3]}
  output(%s) {name=""}
}
)");
  CHECK(module->programs[0].nodes[1].where == Location{"a.gir", 3, 13});
}

TEST_CASE("syntax errors tell position, what was expected and what was found") {
  CHECK(error_of("") == "a.gir:1:1: expected 'module' at the start of the file, found the end of the file");
  CHECK(error_of("module tiny") == "a.gir:1:8: expected the module's name in quotes, found 'tiny'");
  CHECK(error_of("module \"m") ==
        "a.gir:1:8: expected the module's name in quotes, found a string without its closing quote");
  CHECK(error_of("module \"\\q\"") ==
        "a.gir:1:8: expected the module's name in quotes with no escapes but \\\", \\\\, \\n and \\xNN, found \"\\q\"");
  CHECK(error_of("module \"m\"\nnode") == "a.gir:2:1: expected 'param', 'state' or 'program', found 'node'");
  CHECK(error_of("module \"m\"\nparam w: f32[]") == "a.gir:2:7: expected an @name, found 'w'");
  CHECK(error_of("module \"m\"\nparam @w f32[]") == "a.gir:2:10: expected ':' after a name, found 'f32'");
  CHECK(error_of("module \"m\"\nparam @w: f32[2 3]") == "a.gir:2:17: expected ']' after a shape, found '3'");
  CHECK(error_of("module \"m\"\nparam @w: f32[2,]") == "a.gir:2:17: expected an extent, found ']'");
  CHECK(error_of("module \"m\"\nparam @w: f16[2]") == "a.gir:2:11: unknown dtype 'f16'; did you mean 'bf16'?");
  CHECK(error_of("module \"m\"\nparam @w: f32[-1]") == "a.gir:2:15: expected an extent of at least 0, found -1");
  CHECK(error_of("module \"m\"\nparam @w: f32[1.5]") == "a.gir:2:15: expected an extent, found '1.5'");
  CHECK(error_of("module \"m\"\nparam @w: f32[99999999999999999999]") ==
        "a.gir:2:15: expected an extent of 64 bits, found '99999999999999999999'");
  CHECK(error_of("module \"m\"\nparam @w: f32[4611686018427387904, 2]") ==
        "a.gir:2:11: the bytes of f32[4611686018427387904, 2] do not fit 64 bits");
  CHECK(error_of("module \"m\"\nparam @w: f32[4611686018427387904]") ==
        "a.gir:2:11: the bytes of f32[4611686018427387904] do not fit 64 bits");
  CHECK(error_of("module \"m\"\nstate @w: f32[2] param") == "a.gir:2:18: unknown arena 'param'");
  CHECK(error_of("module \"m\"\nstate @w: f32[2] weight") ==
        "a.gir:2:18: unknown arena 'weight'; did you mean 'weights'?");
  CHECK(error_of("module \"m\"\nparam @w: f32[2]\nparam @w: f32[2]") == "a.gir:3:7: @w is declared twice");
  CHECK(error_of("module \"m\"\nprogram @p {") ==
        "a.gir:2:13: expected an operation or '}', found the end of the file");
  CHECK(error_of("module \"m\"\nprogram @p {}\nprogram @p {}") == "a.gir:3:9: program @p is defined twice");
  CHECK(error_of(std::string("module \"m\"\n\0", 12)) ==
        "a.gir:2:1: expected 'param', 'state' or 'program', found a byte that is no part of the language");
}

TEST_CASE("errors in operations tell position, what was expected and what was found") {
  CHECK(error_of(in_program("%y: f32[2, 3] = rehsape(%x)")) ==
        "a.gir:4:17: unknown operation 'rehsape'; did you mean 'reshape'?");
  CHECK(error_of(in_program("%y: f32[2, 3] = convolution(%x)")) == "a.gir:4:17: unknown operation 'convolution'");
  CHECK(error_of(in_program("%y: f32[2, 3] neg(%x)")) == "a.gir:4:15: expected '=' after a result's type, found 'neg'");
  CHECK(error_of(in_program("%y: f32[2, 3] = neg(%z)")) == "a.gir:4:21: %z is not defined before its use");
  CHECK(error_of(in_program("%y: f32[2, 3] = neg(%y)")) == "a.gir:4:21: %y is not defined before its use");
  CHECK(error_of(in_program("%x: f32[2, 3] = neg(%x)")) == "a.gir:4:1: %x is defined twice");
  CHECK(error_of(in_program("%y: f32[2, 3] = neg(%x")) == "a.gir:5:1: expected ')' after an operand, found '}'");
  CHECK(error_of(in_program("%y: f32[2, 3] = neg(x)")) == "a.gir:4:21: expected an operand, found 'x'");
  CHECK(error_of(in_program("%: f32[2, 3] = neg(%x)")) ==
        "a.gir:4:1: expected an operation or '}', found '%' without a name");
  CHECK(error_of(in_program("%y: f32[2, 3] = neg(%x) {axis=1}")) == "a.gir:4:26: neg has no attribute 'axis'");
  CHECK(error_of(in_program("%y: f32[2] = reduce_sum(%x) {axis=[1]}")) ==
        "a.gir:4:30: reduce_sum has no attribute 'axis'; did you mean 'axes'?");
  CHECK(error_of(in_program("%y: f32[2] = reduce_sum(%x) {axes=1}")) ==
        "a.gir:4:35: expected '[' after '=', found '1'");
  CHECK(error_of(in_program("%y: f32[2] = reduce_sum(%x) {axes=[1], axes=[1]}")) ==
        "a.gir:4:40: attribute 'axes' is given twice");
  CHECK(error_of(in_program("%y: f32[2] = reduce_sum(%x)")) ==
        "a.gir:4:14: reduce_sum: expected attributes {axes}, found {}");
  CHECK(error_of(in_program("%y: f32[2, 3] = neg(%x) !forwards")) ==
        "a.gir:4:26: unknown phase 'forwards'; did you mean 'forward'?");
  CHECK(error_of(in_program("%y: f32[] = constant {value=1e999}")) ==
        "a.gir:4:29: expected a number that a double can hold, found '1e999'");
  CHECK(error_of(in_program("%y: f32[] = constant {value=yes}")) == "a.gir:4:29: expected a number, found 'yes'");
  CHECK(error_of(in_program("%y: f32[] = param {name=\"w\"}")) ==
        "a.gir:4:25: expected the @name of a param or state, found \"w\"");
  CHECK(error_of(in_program("%y: f32[] = input {name=@w}")) == "a.gir:4:25: expected a name in quotes, found @w");
  CHECK(error_of(in_program("assign(%x) {name=@w}")) == "a.gir:4:1: assign: no param or state @w");
  CHECK(error_of(kEveryOp) == "a.gir:57:47: %slice.2 is not defined before its use; did you mean 'slice'?");
}

constexpr std::string_view kFused = R"(module "m"

param @w: bf16[3, 4]

program @p {
  %x: f32[2, 3] = input {name="x"}
  kernel @norm row(rows=2, columns=3) (%x) -> (%s, %xb) {  // 18 FLOPs, 44 bytes
    %sq: f32[2, 3] = mul(%x, %x)
    %s: f32[2] = reduce_sum(%sq) {axes=[1]}
    %xb: bf16[2, 3] = cast(%x)
  }
  %w: bf16[3, 4] = param {name=@w}
  kernel @head.0 matmul(m=2, n=4, k=3, batch=1) (%xb, %w) -> (%e) {  // 56 FLOPs, 68 bytes
    %y: f32[2, 4] = matmul(%xb, %w) {transpose_a=false, transpose_b=false}
    %e: f32[2, 4] = exp(%y)
  }
  output(%e) {name="e"}
  output(%s) {name="s"}
}
)";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result(text);
  const size_t at = result.find(from);
  REQUIRE(at != std::string::npos);
  return result.replace(at, from.size(), to);
}

TEST_CASE("kernel groups print with their facts and parse back") {
  const Result<Module> module = parse_module(kFused, "a.gir");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  CHECK(print_module(*module) == kFused);
  REQUIRE(module->programs[0].groups.size() == 2);
  CHECK(module->programs[0].groups[0].nodes == std::vector{NodeId{1}, NodeId{2}, NodeId{3}});
  // The header's parts may be left out.
  const std::string bare = replaced(replaced(kFused, " row(rows=2, columns=3) (%x) -> (%s, %xb)", " row"),
                                    "batch=1) (%xb, %w) -> (%e)", "batch=1)");
  const Result<Module> again = parse_module(bare, "a.gir");
  REQUIRE_MESSAGE(again.has_value(), again.error().text());
  CHECK(print_module(*again) == kFused);
}

TEST_CASE("a kernel's header must agree with its operations") {
  CHECK(error_of(replaced(kFused, "columns=3", "columns=4")) ==
        "a.gir:7:16: expected problem row(rows=2, columns=3), found row(rows=2, columns=4)");
  CHECK(error_of(replaced(kFused, "(%xb, %w)", "(%w, %xb)")) ==
        "a.gir:13:49: expected operands (%xb, %w), found (%w, %xb)");
  CHECK(error_of(replaced(kFused, "(%s, %xb)", "(%s)")) == "a.gir:7:47: expected results (%s, %xb), found (%s)");
  CHECK(error_of(replaced(kFused, "@norm row(rows=2, columns=3)", "@norm rows(rows=2, columns=3)")) ==
        "a.gir:7:16: unknown template 'rows'; did you mean 'row'?");
  CHECK(error_of(replaced(kFused, "@norm row(rows=2, columns=3) (%x) -> (%s, %xb)", "@norm route")) ==
        "a.gir: kernel @norm: expected a route in a kernel of template route, found none");
  CHECK(error_of(replaced(kFused, "@head.0", "@norm")) == "a.gir:13:10: kernel @norm is defined twice");
  CHECK(error_of(replaced(kFused, "    %e: f32[2, 4] = exp(%y)\n  }\n  output(%e) {name=\"e\"}",
                          "    output(%y) {name=\"e\"}\n  }\n")) ==
        "a.gir:15:5: kernel @head.0: output cannot be in a kernel");
  CHECK(error_of(in_program("kernel @k pointwise {}")) == "a.gir:4:8: expected an operation in kernel @k, found none");
  CHECK(error_of(in_program("kernel @k pointwise { kernel @l pointwise {} }")) ==
        "a.gir:4:23: expected an operation or '}', found 'kernel'");
}

TEST_CASE("of kernels that depend on each other in a circle the text is refused") {
  CHECK(error_of(in_program("kernel @a pointwise {\n%y: f32[2, 3] = neg(%x)\n}")) == "no error");
  Result<Module> module =
      parse_module(in_program("%a: f32[2, 3] = neg(%x)\n%b: f32[2, 3] = neg(%a)\n%c: f32[2, 3] = neg(%b)"), "a.gir");
  REQUIRE(module.has_value());
  Program& program = module->programs[0];
  program.groups = {{"outer", Template::pointwise, {NodeId{1}, NodeId{3}}},
                    {"inner", Template::pointwise, {NodeId{2}}}};
  CHECK(print_program(program).find("in a circle") != std::string::npos);
}

}  // namespace
}  // namespace stepc
