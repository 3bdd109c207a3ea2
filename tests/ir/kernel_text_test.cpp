// Kernel IR as text: the kernels of docs/kernels come back byte for byte, built kernels print as expected and
// parse back, mistakes are reported with their place, and no input whatever makes the parser fail otherwise.
#include <doctest/doctest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "ir/kernel/builder.h"
#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"
#include "test_paths.h"

namespace stepc::kernel {
namespace {

std::string doc_kernel(const std::string& name) {
  std::ifstream file(std::string(STEPC_SOURCE_DIR) + "/docs/kernels/" + name);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string without_comment_lines(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    const size_t start = line.find_first_not_of(' ');
    if (start == std::string::npos || line.compare(start, 2, "//") != 0) result += line + "\n";
  }
  return result;
}

const char* const kDocs[] = {"up_swiglu.sm90.kir", "attention_grad.sm90.kir", "rmsnorm_grad.host.kir"};

std::string error_of(const std::string& text) {
  const auto kernel = parse_kernel(text, "k.kir");
  return kernel ? "no error" : kernel.error().text();
}

TEST_CASE("names of fragments are the first free number; a body's numbers are free again behind it") {
  KernelBuilder builder("names", Target::host);
  builder.set_grid(1);
  builder.begin_role("all");
  const auto make = [&](const std::string& name) {
    const Value v = builder.named(name, builder.constant(1, Dtype::f32));
    return builder.kernel().frag(v.id).name;
  };
  CHECK(make("x") == "x");
  CHECK(make("x") == "x_2");
  CHECK(make("x_2") == "x_2_2");
  CHECK(make("y") == "y");
  Value last;
  builder.loop("i", 0, 2, 1, [&](Index) {
    CHECK(make("x") == "x_3");
    last = builder.named("x", builder.constant(2, Dtype::f32));
    CHECK(builder.kernel().frag(last.id).name == "x_4");
    CHECK(make("y") == "y_2");
    builder.named("z", last);  // x_4 is free again
    CHECK(make("x") == "x_4");
    CHECK(make("x") == "x_5");
  });
  CHECK(make("x") == "x_3");
  CHECK(make("z") == "z");
  CHECK(make("x") == "x_4");
}

TEST_CASE("the kernels of docs/kernels print as they are written") {
  for (const char* name : kDocs) {
    CAPTURE(name);
    const std::string text = doc_kernel(name);
    const auto kernel = parse_kernel(text, name);
    REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
    CHECK(print_kernel(*kernel) == without_comment_lines(text));
  }
}

TEST_CASE("the accesses of the host kernel of docs/kernels are proved in bounds") {
  const auto kernel = parse_kernel(doc_kernel("rmsnorm_grad.host.kir"), "k.kir");
  REQUIRE(kernel.has_value());
  CHECK(unproved_accesses(*kernel) == std::vector<std::string>{});
}

TEST_CASE("a built kernel prints, and parses to the same text") {
  KernelBuilder builder("scale.rows", Target::host);
  const BufferId x = builder.global("x", Dtype::f32, {1023, 250}, {256, 1});
  const BufferId ids = builder.global("ids", Dtype::i32, {1023});
  const BufferId y = builder.global("y", Dtype::bf16, {1023, 250});
  const BufferId scratch = builder.shared("scratch", Dtype::f32, {250});
  const Index n = builder.scalar("n", {1, 1023}, 1);
  builder.set_grid(ceil_div(n, 64));
  builder.begin_role("main");
  const Index first = builder.name("first", builder.task() * 64);
  builder.loop("r", first, min(first + 64, n), 1, [&](Index r) {
    const Index row = builder.load_index(ids, {r}, {0, 1022});
    const auto sums = builder.loop("c", 0, 250, 64, {builder.constant(0, Dtype::f32, {64})},
                                   [&](Index c, const std::vector<Value>& carried) {
                                     const Value v = builder.load_first(x, {row, c}, {64}, 250 - c);
                                     builder.store_first(v, scratch, {c}, 250 - c);
                                     return std::vector<Value>{builder.pointwise(Op::fma, {v, v, carried[0]})};
                                   });
    const Value sum = builder.named("sum", builder.reduce(Op::reduce_sum, sums[0]));
    const auto chosen = builder.branch(
        less(row, 10), [&] { return std::vector<Value>{sum}; },
        [&] { return std::vector<Value>{builder.pointwise(Op::rsqrt, {sum})}; });
    builder.loop("c", 0, 250, 64, [&](Index c) {
      const Value v = builder.load_first(scratch, {c}, {64}, 250 - c);
      const Value scaled = builder.pointwise(Op::mul, {v, chosen[0]});
      builder.store_first(builder.cast(scaled, Dtype::bf16), y, {row, c}, 250 - c);
    });
    builder.when(equal(row % 2, 0), [&] { builder.store(builder.constant(1, Dtype::bf16), y, {row, 0}); });
  });
  Kernel kernel = builder.finish();
  kernel.buffers[0].overwritten = true;
  const std::string expected = R"(kernel @scale.rows host
global %x: f32[1023, 250] strides [256, 1] overwritten
global %ids: i32[1023]
global %y: bf16[1023, 250]
shared %scratch: f32[250]
scalar %n {low=1, high=1023}
grid (%n + 63) / 64

role @main {
  %first: index = task * 64
  for %r = %first .. min(%n, %first + 64) {
    %ids_i: index = load_index %ids[%r] {low=0, high=1022}
    %c: f32[64] = constant {value=0}
    for %c_2 = 0 .. 250 step 64 carry (%c_3: f32[64] = %c) -> (%c_end: f32[64]) {
      %x_v: f32[64] = load %x[%ids_i, %c_2], 250 - %c_2
      store %x_v, %scratch[%c_2], 250 - %c_2
      %fma: f32[64] = fma %x_v, %x_v, %c_3
      yield %fma
    }
    %sum: f32[] = reduce_sum %c_end
    if less(%ids_i, 10) -> (%sum_either: f32[]) {
      yield %sum
    } else {
      %rsqrt: f32[] = rsqrt %sum
      yield %rsqrt
    }
    for %c_2 = 0 .. 250 step 64 {
      %scratch_v: f32[64] = load %scratch[%c_2], 250 - %c_2
      %sum_either_wide: f32[64] = splat %sum_either
      %mul: f32[64] = mul %scratch_v, %sum_either_wide
      %bf16: bf16[64] = cast %mul
      store %bf16, %y[%ids_i, %c_2], 250 - %c_2
    }
    if equal(%ids_i % 2, 0) {
      %c_2: bf16[] = constant {value=1}
      store %c_2, %y[%ids_i, 0]
    }
  }
}
)";
  CHECK(print_kernel(kernel) == expected);
  CHECK(unproved_accesses(kernel) == std::vector<std::string>{});
  const auto again = parse_kernel(expected, "k.kir");
  REQUIRE_MESSAGE(again.has_value(), again.error().text());
  CHECK(print_kernel(*again) == expected);
}

TEST_CASE("index expressions keep their tree and need no more parentheses than they print") {
  for (const char* text : {"%i + %j * 2 - 3", "(%i + %j) * 2", "%i - (%j - 3)", "%i / 2 % 3 * 4", "%i / (2 * 3)",
                           "%i * (%j % 4)", "min(%i + 1, max(%j, task)) % 5", "less(%i, -3) + equal(%j, 0) * -2",
                           "%i - -9223372036854775808", "-1 * %i", "0 - %i * %j", "(%i + 1) % 8 / 2"}) {
    const std::string kernel =
        fmt::format("kernel @k host\nscalar %i\nscalar %j\ngrid 4\n\nrole @main {{\n  %x: index = {}\n}}\n", text);
    const auto parsed = parse_kernel(kernel, "k.kir");
    REQUIRE_MESSAGE(parsed.has_value(), parsed.error().text());
    CHECK(print_kernel(*parsed) == kernel);
  }
}

// ---- errors --------------------------------------------------------------------------------------------------------

std::string body_error(const std::string& body) {
  return error_of(
      "kernel @k host\nglobal %x: f32[8, 64]\nglobal %ids: i32[8]\nshared %s: bf16[64]\nscalar %n\ngrid 4\nrole @main "
      "{\n" +
      body + "\n}\n");
}

TEST_CASE("mistakes in the head of a kernel") {
  CHECK(error_of("") == "k.kir:1:1: expected 'kernel' after comments, found the end of the file");
  CHECK(error_of("kernel k host") == "k.kir:1:8: expected the @name of a kernel, found 'k'");
  CHECK(error_of("kernel @k gpu") == "k.kir:1:11: expected a target (host, cuda or sm90), found 'gpu'");
  CHECK(error_of("kernel @k host\nglobal %x: f64[3]") ==
        "k.kir:2:12: expected a dtype (f32, bf16, i32 or pred), found 'f64'");
  CHECK(error_of("kernel @k host\nglobal %x: f32[3\ngrid 1") == "k.kir:3:1: expected ']' after integers, found 'grid'");
  CHECK(error_of("kernel @k host\nglobal %x: f32[4000000000, 4000000000]") ==
        "k.kir:2:15: expected a shape of at most 2^63 - 1 elements, found [4000000000, 4000000000]");
  CHECK(error_of("kernel @k host\nglobal %x: f32[3]\nshared %x: f32[3]\ngrid 1") ==
        "k.kir:3:8: %x is already the buffer %x");
  CHECK(error_of("kernel @k host\nlocal %x: f32[3]") == "k.kir:2:1: expected a declaration or 'grid', found 'local'");
  CHECK(error_of("kernel @k host\nscalar %n {lo=3}\ngrid 1") ==
        "k.kir:2:12: expected low, high or multiple_of, found 'lo'");
  CHECK(error_of("kernel @k host\nscalar %n {low=3, high=2}\ngrid 1") == "k.kir:2:8: %n has no values");
  CHECK(error_of("kernel @k host\ngrid %n") == "k.kir:2:6: unknown index %n");
  CHECK(error_of("kernel @k host\ngrid 1") ==
        "k.kir:2:7: expected 'role' after the grid or a role, found the end of the file");
  CHECK(error_of("kernel @k host\ngrid 1\nrole @a {\n") ==
        "k.kir:4:1: expected an operation or '}', found the end of the file");
  CHECK(error_of("kernel @k host\ngrid 1\nrole @a warps 4 {\n}") ==
        "a kernel for the host has one role, without warps and registers");
  CHECK(error_of("kernel @k host\nbarrier %b: 1 arrivals 1\ngrid 1\nrole @a {\n}") ==
        "%b is of sm90, found in a kernel for host");
  CHECK(error_of("kernel @k host\nglobal %x: f32[8, 4] strides [4]\ngrid 1\nrole @a {\n}") ==
        "%x has 1 strides, expected 2");
  CHECK(error_of("kernel @k host\nglobal %x: f32[8, 4] strides [1, 8]\ngrid 1\nrole @a {\n}") ==
        "%x has stride 8 in its last dimension, expected 1");
}

TEST_CASE("mistakes in ops") {
  CHECK(body_error("%a: f32[64] = lode %x[0, 0]") == "k.kir:8:15: unknown operation 'lode'; did you mean 'load'?");
  CHECK(body_error("%a: f32[64] = load %y[0, 0]") == "k.kir:8:20: unknown buffer %y");
  CHECK(body_error("%a: f32[64] = load %n[0, 0]") == "k.kir:8:20: expected a buffer, found the index %n");
  CHECK(body_error("%a: f32[64] = load %x[0]") == "k.kir:8:1: load: %x has 2 dimensions, found 1 indices");
  CHECK(body_error("%a: f32[64] = load %x[0, 0] {value=1}") ==
        "k.kir:8:30: load has no attribute 'value'; it takes rows");
  CHECK(body_error("%a: bf16[64] = load %x[0, 0]") == "k.kir:8:1: load: %a is bf16, expected the f32 of %x");
  CHECK(body_error("%a: f32[64] = load %x[0, 0]\n%b: f32[64] = add %a") ==
        "k.kir:10:1: expected ',' after an operand, found '}'");
  CHECK(body_error("%a: f32[64] = load %x[0, 0]\n%b: f32[64] = add %a, %c") == "k.kir:9:23: unknown fragment %c");
  CHECK(body_error("%a: f32[64] = load %x[0, 0]\n%b: f32[64] = add %a, %x") ==
        "k.kir:9:23: expected a fragment, found the buffer %x");
  CHECK(body_error("%a: f32[64] = load %x[0, 0]\n%b: f32[32] = add %a, %a") ==
        "k.kir:9:1: add: %b is f32[32], expected f32[64]");
  CHECK(body_error("%a: f32[64] = load %x[0, 0]\n%b: pred[64] = logical_not %a") ==
        "k.kir:9:1: logical_not takes pred operands, found f32");
  CHECK(body_error("%a: f32[64] = load %x[0, 0]\n%a: f32[64] = neg %a") == "k.kir:9:1: %a is already the fragment %a");
  CHECK(body_error("for %i = 0 .. 8 {\n%a: f32[64] = load %x[%i, 0]\n}\n%b: f32[64] = neg %a") ==
        "k.kir:11:19: unknown fragment %a");
  CHECK(body_error("%z: f32[] = constant {value=0}\nfor %i = 0 .. 8 carry (%a: f32[] = %z) -> (%b: f32[]) {\n}") ==
        "k.kir:9:1: loop: the body yields 0 fragments, expected 1");
  CHECK(body_error("for %i = 0 . 8 {\n}") == "k.kir:8:14: expected '.' after the first index, found '8'");
  CHECK(body_error("for %i = 0 .. 8 step 0 {\n}") ==
        "k.kir:8:1: loop: a step that may be 0, expected a positive number");
  CHECK(body_error("%i: index = 5 / %n") == "k.kir:8:1: index: the divisor %n may be 0, expected a positive number");
  CHECK(body_error("%i: index = copy") == "k.kir:8:13: `copy` in a role without copies");
  CHECK(body_error("%i: index = min(3 4)") == "k.kir:8:19: expected ',' after the first of two indices, found '4'");
  CHECK(body_error("fence_async") == "k.kir:8:1: fence_async: not an op of kernels for host");
  CHECK(body_error("yield\nyield") == "k.kir:8:1: yield: yield is not the last op of its body");
  CHECK(body_error("%o: i32[4] = constant {value=1}\n%i: index = to_index %o") ==
        "k.kir:9:1: to_index: %o is i32[4], expected i32[]");
  CHECK(body_error("%i: index = load_index %x[0, 0]") == "k.kir:8:1: load_index: %x is f32, expected i32");
  CHECK(body_error("%c: pred[4] = constant {value=2}") == "k.kir:8:1: constant: value 2, expected 0 or 1");
  CHECK(body_error("%c: f32[0] = constant {value=2}") ==
        "k.kir:8:1: constant: %c is f32[0], expected 1 to 65536 lanes");
}

TEST_CASE("accesses that are provably out of bounds") {
  CHECK(body_error("%a: f32[64] = load %x[8, 0]") ==
        "k.kir:8:1: load: out of bounds of %x[8, 64], dimension 0: 8 (8 to 8)");
  CHECK(body_error("%a: f32[64] = load %x[0, 1]") ==
        "k.kir:8:1: load: out of bounds of %x[8, 64], dimension 1: 1 (1 to 1) and 63 more");
  CHECK(body_error("for %i = 9 .. 20 {\n%a: f32[64] = load %x[%i, 0]\n}") ==
        "k.kir:9:1: load: out of bounds of %x[8, 64], dimension 0: %i (9 to 19)");
  CHECK(body_error("%a: f32[64] = load %x[task - 5, 0]") ==
        "k.kir:8:1: load: out of bounds of %x[8, 64], dimension 0: task - 5 (-5 to -2)");
}

TEST_CASE("what ranges cannot prove is listed") {
  const std::string head = "kernel @k host\nglobal %x: f32[1023]\nscalar %n\ngrid 16\nrole @main {\n";
  const auto unproved = [&](const std::string& body) {
    const auto kernel = parse_kernel(head + body + "\n}\n", "k.kir");
    REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
    return unproved_accesses(*kernel);
  };
  using List = std::vector<std::string>;
  CHECK(unproved("%a: f32[64] = load %x[task * 64]") ==
        List{"load %x[1023], dimension 0: task * 64 (0 to 960) and 63 more"});
  CHECK(unproved("%a: f32[64] = load %x[task * 64], 1023 - task * 64") == List{});
  CHECK(unproved("%a: f32[64] = load %x[task * 64], min(64, 1023 - task * 64)") == List{});
  CHECK(unproved("%a: f32[64] = load %x[task * 64], %n") ==
        List{"load %x[1023], dimension 0: task * 64 (0 to 960), %n of them"});
  CHECK(unproved("for %i = task * 64 .. min(task * 64 + 64, 1023) {\n%a: f32[] = load %x[%i]\n}") == List{});
  CHECK(unproved("for %i = 0 .. min(64, 1023 - task * 64) {\n%a: f32[] = load %x[task * 64 + %i]\n}") == List{});
  CHECK(unproved("for %i = 0 .. 64 {\n%a: f32[] = load %x[task * 64 + %i]\n}").size() == 1);
  CHECK(unproved("for %i = 0 .. 64 {\nif less(task * 64 + %i, 1023) {\n%a: f32[] = load %x[task * 64 + %i]\n}\n}") ==
        List{});
  CHECK(unproved("%a: f32[32] = load %x[task * 64 % 960 / 64 * 64]") == List{});
  const std::string rows = "%first: index = task * 64\n%rows: index = min(1023 - %first, 60)\n";
  CHECK(unproved(rows + "for %r = 0 .. %rows / 8 * 8 step 8 {\n%a: f32[8] = load %x[%first + %r]\n}") == List{});
  CHECK(unproved(rows + "for %r = 0 .. %rows / 8 * 8 + 1 step 8 {\n%a: f32[8] = load %x[%first + %r]\n}").size() == 1);
  CHECK(unproved("%r: index = task * 64 + 63\nif less(%r, 1023) {\n%a: f32[64] = load %x[%r - 63]\n}") == List{});
}

// ---- fuzz
// ------------------------------------------------------------------------------------------------------------

TEST_CASE("mutated kernels parse or give an error, and what parses prints stably") {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return random() % n; };
  int parsed_count = 0;
  for (const char* name : kDocs) {
    const std::string original = without_comment_lines(doc_kernel(name));
    for (int round = 0; round < 400; ++round) {
      std::string text = original;
      for (size_t i = 0; i <= pick(3); ++i) {
        const size_t at = pick(text.size());
        const size_t length = std::min<size_t>(1 + pick(round % 2 ? 3 : 60), text.size() - at);
        if (pick(3) == 0)
          text.erase(at, length);
        else if (pick(2) == 0)
          text.insert(at, original.substr(pick(original.size()), length));
        else
          text[at] = "0123456789%@[](){}.,-+*/=\"\n xyz\xff"[pick(33)];
        if (text.empty()) text = "k";
      }
      const auto kernel = parse_kernel(text, "fuzz.kir");
      if (!kernel) {
        CHECK_FALSE(kernel.error().message.empty());
        continue;
      }
      ++parsed_count;
      const std::string printed = print_kernel(*kernel);
      const auto again = parse_kernel(printed, "again.kir");
      REQUIRE_MESSAGE(again.has_value(), again.error().text());
      CHECK(print_kernel(*again) == printed);
      unproved_accesses(*kernel);
    }
  }
  CHECK(parsed_count > 20);
}

TEST_CASE("deep nesting and long expressions are errors") {
  const auto with_index = [](const std::string& index) { return body_error("%i: index = " + index); };
  CHECK(with_index(std::string(100000, '(')) == "k.kir:8:78: expected at most 64 levels of parentheses in an index");
  std::string sum = "1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  CHECK(with_index(sum) == "k.kir:8:526: expected at most 256 operators in an index expression");
  std::string loops;
  for (int i = 0; i < 1000; ++i) loops += fmt::format("for %i{} = 0 .. 1 {{\n", i);
  CHECK(body_error(loops) == "k.kir:72:1: expected at most 64 levels of bodies");
}

}  // namespace
}  // namespace stepc::kernel
