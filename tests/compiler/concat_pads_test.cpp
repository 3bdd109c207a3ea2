#include "compiler/graph/concat_pads.h"

#include <doctest/doctest.h>

#include "compiler/graph/dce.h"
#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"

namespace stepc {
namespace {

// The program's nodes after the pass and dce, from the first that is no input.
std::string rewritten(const std::string& body) {
  auto module = parse_module(
      "module \"m\"\nprogram @p {\n  %a: f32[2, 3] = input {name=\"a\"}\n  %b: f32[2, 4] = input "
      "{name=\"b\"}\n" +
          body + "}\n",
      "c.gir");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  concat_pads(module->programs[0]);
  dce(module->programs[0]);
  REQUIRE(verify(*module).has_value());
  std::string text;
  for (const Node& node : module->programs[0].nodes)
    if (node.op != Op::input) text += print_node(module->programs[0], node) + "\n";
  return text;
}

const std::string kPads =
    "  %p: f32[2, 7] = pad(%a) {low=[0, 0], high=[0, 4]}\n  %q: f32[2, 7] = pad(%b) {low=[0, 3], high=[0, 0]}\n";

TEST_CASE("pads that tile an axis become a concat, in whatever order they are added") {
  for (const char* operands : {"%p, %q", "%q, %p"})
    CHECK(rewritten(kPads + "  %s: f32[2, 7] = add(" + std::string(operands) + ")\n  output(%s) {name=\"s\"}\n") ==
          "%s.1: f32[2, 7] = concat(%a, %b) {axis=1}\noutput(%s.1) {name=\"s\"}\n");
}

TEST_CASE("three pads become one concat, a cast goes to its pieces") {
  CHECK(rewritten("  %p: f32[2, 10] = pad(%a) {low=[0, 0], high=[0, 7]}\n"
                  "  %q: f32[2, 10] = pad(%b) {low=[0, 3], high=[0, 3]}\n"
                  "  %r: f32[2, 10] = pad(%a) {low=[0, 7], high=[0, 0]}\n"
                  "  %s: f32[2, 10] = add(%r, %p)\n  %t: f32[2, 10] = add(%s, %q)\n  %u: bf16[2, 10] = cast(%t)\n"
                  "  output(%u) {name=\"u\"}\n") ==
        "%u.1: bf16[2, 3] = cast(%a)\n%u.2: bf16[2, 4] = cast(%b)\n%u.3: bf16[2, 3] = cast(%a)\n"
        "%u.4: bf16[2, 10] = concat(%u.1, %u.2, %u.3) {axis=1}\noutput(%u.4) {name=\"u\"}\n");
}

TEST_CASE("pads that overlap, leave a gap or lie along two axes stay a sum") {
  const auto stays = [](const std::string& second, const std::string& shape) {
    const std::string text =
        rewritten("  %p: f32" + shape + " = pad(%a) {low=[0, 0], high=[" + (shape == "[2, 7]" ? "0, 4" : "0, 5") +
                  "]}\n" + second + "  %s: f32" + shape + " = add(%p, %q)\n  output(%s) {name=\"s\"}\n");
    return text.find("= add(") != std::string::npos && text.find("concat") == std::string::npos;
  };
  CHECK(stays("  %q: f32[2, 7] = pad(%b) {low=[0, 2], high=[0, 1]}\n", "[2, 7]"));
  CHECK(stays("  %q: f32[2, 8] = pad(%b) {low=[0, 4], high=[0, 0]}\n", "[2, 8]"));
  CHECK(stays("  %q: f32[2, 7] = neg(%p)\n", "[2, 7]"));
}

}  // namespace
}  // namespace stepc
