#include "compiler/graph/order.h"

#include <doctest/doctest.h>

#include "ir/graph/fused.h"
#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"

namespace stepc {
namespace {

// The kernels' names in the order in which they run.
std::vector<std::string> order_of(const std::string& body) {
  auto module = parse_module(
      "module \"m\"\nstate @s: f32[4] optimizer\nstate @t: f32[4] optimizer\nprogram @p {\n"
      "  %s: f32[4] = state {name=@s}\n  %t: f32[4] = state {name=@t}\n" +
          body + "}\n",
      "o.gir");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  const std::string before = print_module(*module);
  order(module->programs[0]);
  const Status verified = verify(*module);
  REQUIRE_MESSAGE(verified.has_value(), verified.error().text());
  const auto again = parse_module(print_module(*module), "again.gir");
  REQUIRE(again.has_value());
  CHECK(print_module(*again) == print_module(*module));
  std::vector<std::string> names;
  const auto units = unit_order(module->programs[0]);
  REQUIRE(units.has_value());
  for (const Unit& unit : *units)
    if (unit.group >= 0) names.push_back(module->programs[0].groups[static_cast<size_t>(unit.group)].name);
  return names;
}
using Names = std::vector<std::string>;

TEST_CASE("readers of an old value come before the kernel that makes the new one") {
  CHECK(order_of("  kernel @update pointwise { %new: f32[4] = neg(%s) }\n"
                 "  kernel @reader pointwise { %x: f32[4] = exp(%s) }\n"
                 "  kernel @other pointwise { %y: f32[4] = exp(%t) }\n"
                 "  assign(%new) {name=@s}\n  output(%x) {name=\"x\"}\n  output(%y) {name=\"y\"}\n") ==
        Names{"reader", "update", "other"});
}

TEST_CASE("also where the new value is reshaped outside of kernels") {
  CHECK(order_of("  kernel @update pointwise { %q: f32[4] = neg(%t) \n %new: f32[2, 2] = reshape(%q) }\n"
                 "  %flat: f32[4] = reshape(%new)\n"
                 "  kernel @reader pointwise { %x: f32[4] = exp(%s) }\n"
                 "  assign(%flat) {name=@s}\n  output(%x) {name=\"x\"}\n") == Names{"reader", "update"});
}

TEST_CASE("a reader that needs the new value cannot come first") {
  CHECK(order_of("  kernel @update pointwise { %new: f32[4] = neg(%s) }\n"
                 "  kernel @reader pointwise { %x: f32[4] = add(%s, %new) }\n"
                 "  assign(%new) {name=@s}\n  output(%x) {name=\"x\"}\n") == Names{"update", "reader"});
}

TEST_CASE("two updates that read each other's old values: the circle is cut at the first") {
  CHECK(order_of("  kernel @first pointwise { %a: f32[4] = add(%s, %t) }\n"
                 "  kernel @second pointwise { %b: f32[4] = sub(%s, %t) }\n"
                 "  assign(%a) {name=@s}\n  assign(%b) {name=@t}\n") == Names{"first", "second"});
}

}  // namespace
}  // namespace stepc
