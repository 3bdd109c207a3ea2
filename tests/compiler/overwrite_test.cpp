// Results that take the place of operands: where one kernel may, and where the plan does it.
#include "compiler/plan/overwrite.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/plan/plan.h"
#include "ir/graph/parse.h"

namespace stepc {
namespace {

Module parsed(const std::string& body) {
  auto module =
      parse_module("module \"m\"\nprogram @p {\n  %in: f32[4, 32] = input {name=\"in\"}\n" + body + "}\n", "o.gir");
  REQUIRE_MESSAGE(module.has_value(), (module ? "" : module.error().text()));
  return *module;
}

ValueId value(const Program& program, const std::string& name) {
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].name == name) return static_cast<ValueId>(v);
  FAIL("no value " << name);
  return ValueId::none;
}

// Whether the only kernel may write %y over %x.
bool may(const std::string& kernel) {
  const Module module =
      parsed("  kernel @make pointwise { %x: f32[4, 32] = exp(%in) }\n" + kernel + "  output(%y) {name=\"y\"}\n");
  const Program& program = module.programs[0];
  return can_overwrite(program, program.groups[1], value(program, "x"), value(program, "y"));
}

TEST_CASE("overwrite: pointwise ops at the same index") {
  CHECK(may("kernel @k pointwise { %y: f32[4, 32] = mul(%x, %in) }\n"));
  CHECK(may(
      "kernel @k pointwise { %z: f32[4, 32] = exp(%in)\n %y: f32[4, 32] = sub(%z, %x) }\noutput(%z) {name=\"z\"}\n"));
  // Another element, another size, another result that would read what is gone.
  CHECK(!may("kernel @k pointwise { %r: f32[4, 32] = reverse(%x) {axes=[1]}\n %y: f32[4, 32] = exp(%r) }\n"));
  CHECK(!may("kernel @k pointwise { %y: bf16[4, 32] = cast(%x) }\n"));
  CHECK(!may("kernel @k pointwise { %z: f32[4, 32] = exp(%x)\n %y: f32[4, 32] = neg(%x) }\noutput(%z) {name=\"z\"}\n"));
  // Nothing of the old value's element is needed for the new one: another thread may still have to read it.
  CHECK(
      !may("kernel @k pointwise { %y: f32[4, 32] = exp(%in)\n %z: f32[4, 32] = neg(%x) }\noutput(%z) {name=\"z\"}\n"));
}

TEST_CASE("overwrite: sums over a row are complete before it is stored") {
  const std::string normed =
      "kernel @k row { %s: f32[4] = reduce_sum(%x) {axes=[1]}\n %b: f32[4, 32] = broadcast(%s) {axes=[0]}\n"
      " %y: f32[4, 32] = div(%x, %b)";
  CHECK(may(normed + " }\n"));
  CHECK(may(normed + "\n %l: f32[4] = log(%s) }\noutput(%l) {name=\"l\"}\n"));
  // A sum over rows is gathered while they are stored.
  CHECK(!may(
      normed +
      "\n %q: f32[2, 2, 32] = reshape(%x)\n %c: f32[2, 32] = reduce_sum(%q) {axes=[1]} }\noutput(%c) {name=\"c\"}\n"));
  // A short sum is unrolled where it is used.
  CHECK(
      !may("kernel @k pointwise { %h: f32[64, 2] = reshape(%x)\n %s: f32[64] = reduce_sum(%h) {axes=[1]}\n"
           " %b: f32[64, 2] = broadcast(%s) {axes=[0]}\n %w: f32[4, 32] = reshape(%b)\n"
           " %y: f32[4, 32] = div(%x, %w) }\n"));
}

// A single element at a row's end is read by each thread of a GPU when it gets there.
TEST_CASE("overwrite: not what is summed, where a row has an odd number of elements") {
  const auto summed = [](const std::string& columns) {
    const std::string type = "f32[4, " + columns + "]";
    const Module module =
        parsed("  %w: " + type + " = input {name=\"w\"}\n  kernel @make pointwise { %x: " + type +
               " = exp(%w) }\n  kernel @k row { %s: f32[4] = reduce_sum(%x) {axes=[1]}\n %b: " + type +
               " = broadcast(%s) {axes=[0]}\n %y: " + type + " = div(%x, %b) }\n  output(%y) {name=\"y\"}\n");
    const Program& program = module.programs[0];
    return can_overwrite(program, program.groups[1], value(program, "x"), value(program, "y"));
  };
  CHECK(summed("514"));
  CHECK(!summed("513"));
}

// "y=x" for a buffer y that lies in x's place, else its name; activations only.
std::string places(const std::string& body) {
  const Module module = parsed(body);
  const ModuleLayout layout = layout_persistents(module).value();
  const Program& program = module.programs[0];
  const auto plan = plan_program(program, layout, unscheduled_launches(program), {.reorder = false});
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  std::string text;
  for (const PlanBuffer& buffer : plan->buffers) {
    if (buffer.arena != PlanArena::activations) continue;
    text += (text.empty() ? "" : " ") + buffer.name;
    if (buffer.alias_of >= 0) text += "=" + plan->buffers[static_cast<size_t>(buffer.alias_of)].name;
  }
  return text + fmt::format(" {}", plan->activations_bytes);
}

std::string step(const std::string& y, const std::string& of) {
  return fmt::format("  kernel @{0} pointwise {{ %{0}: f32[4, 32] = {1} }}\n", y, of);
}
const std::string kEnd = "  output(%d) {name=\"d\"}\n";

TEST_CASE("overwrite: by the last reader, again and again") {
  CHECK(places(step("a", "exp(%in)") + step("b", "neg(%a)") + step("c", "exp(%b)") + step("d", "neg(%c)") + kEnd) ==
        "a b=a c=a 512");
  CHECK(places(step("a", "exp(%in)") + step("b", "neg(%a)") + step("c", "mul(%b, %a)") + step("d", "neg(%c)") + kEnd) ==
        "a b c=b 1024");
  // Two results, one place; an output is in nobody's place, and nobody is in its.
  CHECK(places(step("a", "exp(%in)") +
               "  kernel @b pointwise { %b: f32[4, 32] = neg(%a)\n %c: f32[4, 32] = exp(%in) }\n" +
               step("d", "mul(%c, %b)") + kEnd) == "a b=a c 1024");
  CHECK(places(step("a", "exp(%in)") + step("b", "neg(%a)") + step("d", "exp(%b)") + kEnd +
               "  output(%a) {name=\"a\"}\n") == "b 512");
}

// The kernel also reads the old value in another shape, and there from the other end.
TEST_CASE("overwrite: not where two operands share a place") {
  CHECK(places(step("a", "exp(%in)") + "  %f: f32[128] = reshape(%a)\n" +
               "  kernel @b pointwise { %r: f32[128] = reverse(%f) {axes=[0]}\n %g: f32[4, 32] = reshape(%r)\n"
               " %b: f32[4, 32] = sub(%a, %g) }\n" +
               step("d", "exp(%b)") + kEnd) == "a f=a b 1024");
}

}  // namespace
}  // namespace stepc
