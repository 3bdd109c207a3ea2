#include "ir/text/json.h"

#include <doctest/doctest.h>

namespace stepc {
namespace {

std::string error_of(std::string_view text) { return parse_json(text, "f.json").error().text(); }

TEST_CASE("JSON is read back as it was written") {
  JsonValue value;
  value.add("name", "a \"quoted\"\n name");
  value.add("sizes", JsonValue::list(std::vector<int64_t>{0, -1, INT64_MAX, INT64_MIN}));
  value.add("real", 0.1);
  value.add("whole", 2.0);
  value.add("nothing", JsonValue());
  value.add("flag", true);
  value.add("empty", JsonValue::Object{});
  const std::string text = json_text(value);
  CHECK(json_text(parse_json(text, "f").value()) == text);
  CHECK(json_text(value, 1000) ==
        R"({"name": "a \"quoted\"\n name", "sizes": [0, -1, 9223372036854775807, -9223372036854775808], )"
        R"("real": 0.1, "whole": 2.0, "nothing": null, "flag": true, "empty": {}})");
  CHECK(json_text(JsonValue(JsonValue::Array{1, "two"}), 3) == "[\n  1,\n  \"two\"\n]");
}

TEST_CASE("what is not strict JSON is refused, with its place") {
  CHECK(error_of("") == "f.json:1:1: expected more JSON, found the end");
  CHECK(error_of("{\"a\": 1") == "f.json:1:8: expected more JSON, found the end");
  CHECK(error_of("{\"a\": 1,\n \"b\" 2}") == "f.json:2:6: malformed JSON");
  CHECK(error_of("{} x") == "f.json:1:4: malformed JSON");
  CHECK(error_of("{\"a\": 1, \"a\": 2}") == "f.json: key \"a\" appears twice");
  CHECK(error_of("18446744073709551614") == "f.json: 18446744073709551614 does not fit 64 bits");
  CHECK(error_of("184467440737095516140") == "f.json: 184467440737095516140 does not fit 64 bits");
  CHECK(error_of("\"\xff\"") == "f.json:1:2: malformed JSON");
  CHECK(!parse_json(std::string(100, '['), "f").has_value());
}

TEST_CASE("a cursor names the place, what it expected and what it found") {
  const JsonValue value = parse_json(R"({"steps": [{"grid": 1}, {"grid": "x"}], "name": 3})", "p").value();
  const JsonCursor top(value, "plan.json");
  const auto steps = top.member("steps").value().items().value();
  CHECK(steps[0].integer("grid", 0, 7).value() == 1);
  CHECK(steps[1].integer("grid", 0, 7).error().text() ==
        "plan.json: steps[1].grid: expected an integer from 0 to 7, found \"x\"");
  CHECK(steps[0].integer("grid", 2).error().text() ==
        "plan.json: steps[0].grid: expected an integer of at least 2, found 1");
  CHECK(top.string("name").error().text() == "plan.json: name: expected a string, found 3");
  CHECK(top.string("nam").error().text() == "plan.json: expected the key \"nam\", found none");
  CHECK(top.expect_keys({"steps"}).error().text() == "plan.json: unknown key \"name\"");
  CHECK(steps[0].items().error().text() == "plan.json: steps[0]: expected an array, found {\"grid\": 1}");
}

}  // namespace
}  // namespace stepc
