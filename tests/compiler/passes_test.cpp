// cse, dce, split_column_sum and the pipeline.
#include <algorithm>

#include "compiler/graph/cse.h"
#include "compiler/graph/dce.h"
#include "compiler/graph/split_column_sum.h"
#include "compiler/pipeline.h"
#include "tests/compiler/pass_test.h"

namespace stepc::test {
namespace {

TEST_CASE("cse merges equal nodes, to the first and the earliest phase") {
  CHECK(after(cse, R"(%x: f32[3] = input {name="x"}
%a: f32[3] = exp(%x) !backward
%b: f32[3] = exp(%x)
%c: f32[3] = mul(%a, %b)
%d: f32[3] = mul(%b, %a) !optimizer
output(%c) {name="c"}
output(%d) {name="d"}
)") == R"(%x: f32[3] = input {name="x"}
%a: f32[3] = exp(%x)
%c: f32[3] = mul(%a, %a)
output(%c) {name="c"}
output(%c) {name="d"}
)");
}

TEST_CASE("cse merges results of several") {
  CHECK(after(cse, R"(%p: f32[4, 2] = input {name="p"}
%e: i32[4, 1], %s: i32[4], %a: i32[6], %n: i32[2] = route(%p) {top=1, capacity=3}
%e2: i32[4, 1], %s2: i32[4], %a2: i32[6], %n2: i32[2] = route(%p) {top=1, capacity=3}
%e3: i32[4, 1], %s3: i32[4], %a3: i32[8], %n3: i32[2] = route(%p) {top=1, capacity=4}
output(%s) {name="s"}
output(%n2) {name="n"}
output(%a3) {name="a"}
)") == R"(%p: f32[4, 2] = input {name="p"}
%e: i32[4, 1], %s: i32[4], %a: i32[6], %n: i32[2] = route(%p) {top=1, capacity=3}
%e3: i32[4, 1], %s3: i32[4], %a3: i32[8], %n3: i32[2] = route(%p) {top=1, capacity=4}
output(%s) {name="s"}
output(%n) {name="n"}
output(%a3) {name="a"}
)");
}

TEST_CASE("cse keeps apart what differs in attributes, types or the sign of zero") {
  const std::string lines = R"(%x: f32[4] = input {name="x"}
%z: f32[4] = input {name="z"}
%a: f32[2, 2] = reshape(%x)
%b: f32[4, 1] = reshape(%x)
%c: bf16[4] = cast(%x)
%d: i32[4] = cast(%x)
%e: f32[4] = constant {value=0}
%f: f32[4] = constant {value=-0}
%g: f32[4] = slice(%x) {start=[0], limit=[4]}
%h: f32[2] = slice(%x) {start=[0], limit=[2]}
%i: f32[2] = slice(%x) {start=[2], limit=[4]}
)";
  std::string outputs;
  for (char name : std::string("abcdefghiz")) outputs += std::string("output(%") + name + ") {name=\"" + name + "\"}\n";
  CHECK(after(cse, lines + outputs) == lines + outputs);
}

TEST_CASE("dce drops what reaches no output and no assign, and keeps inputs") {
  CHECK(after(dce, R"(%x: f32[3] = input {name="x"}
%unused: f32[5] = input {name="unused"}
%p: f32[3] = param {name=@p}
%s: f32[3] = state {name=@s}
%a: f32[3] = exp(%x)
%b: f32[3] = add(%a, %p)
%c: f32[3] = mul(%a, %a)
%d: f32[3] = mul(%c, %s)
assign(%b) {name=@s}
)") == R"(%x: f32[3] = input {name="x"}
%unused: f32[5] = input {name="unused"}
%p: f32[3] = param {name=@p}
%a: f32[3] = exp(%x)
%b: f32[3] = add(%a, %p)
assign(%b) {name=@s}
)");
}

std::string sum(const std::string& from, const std::string& axes, const std::string& to) {
  return "%x: f32" + from + " = input {name=\"x\"}\n%y: f32" + to + " = reduce_sum(%x) {axes=" + axes +
         "} !backward\noutput(%y) {name=\"y\"}\n";
}

TEST_CASE("split_column_sum sums in parts") {
  CHECK(after(split_column_sum, sum("[640, 3]", "[0]", "[3]")) == R"(%x: f32[640, 3] = input {name="x"}
%y.rows: f32[64, 10, 3] = reshape(%x) !backward
%y.partial: f32[64, 3] = reduce_sum(%y.rows) {axes=[1]} !backward
%y: f32[3] = reduce_sum(%y.partial) {axes=[0]} !backward
output(%y) {name="y"}
)");
  CHECK(after(split_column_sum, sum("[10, 12, 3, 5]", "[0, 1]", "[3, 5]")) ==
        R"(%x: f32[10, 12, 3, 5] = input {name="x"}
%y.rows: f32[15, 8, 3, 5] = reshape(%x) !backward
%y.partial: f32[15, 3, 5] = reduce_sum(%y.rows) {axes=[1]} !backward
%y: f32[3, 5] = reduce_sum(%y.partial) {axes=[0]} !backward
output(%y) {name="y"}
)");
  CHECK(after(split_column_sum, sum("[128, 64]", "[0, 1]", "[]")) == R"(%x: f32[128, 64] = input {name="x"}
%y.rows: f32[64, 128] = reshape(%x) !backward
%y.partial: f32[64] = reduce_sum(%y.rows) {axes=[1]} !backward
%y: f32[] = reduce_sum(%y.partial) {axes=[0]} !backward
output(%y) {name="y"}
)");
}

TEST_CASE("split_column_sum leaves short sums, primes, empty ones and sums over other axes") {
  for (const std::string& lines :
       {sum("[64, 3]", "[0]", "[3]"), sum("[127, 3]", "[0]", "[3]"), sum("[0, 3]", "[0]", "[3]"),
        sum("[640, 640]", "[1]", "[640]"), sum("[2, 640, 3]", "[1]", "[2, 3]"), sum("[32, 32]", "[0, 1]", "[]"),
        sum("[134]", "[]", "[134]")})
    CHECK(after(split_column_sum, lines) == lines);
}

const std::string kPipelineBody = R"(%x: f32[128, 3] = input {name="x"}
%one: f32[128, 3] = constant {value=1}
%a: f32[128, 3] = mul(%x, %one)
%b: f32[128, 3] = exp(%a)
%c: f32[128, 3] = exp(%x)
%d: f32[128, 3] = add(%b, %c)
%e: f32[3] = reduce_sum(%d) {axes=[0]}
output(%e) {name="e"}
)";

std::vector<std::string> passes_run(const PassOptions& options, std::string* text = nullptr) {
  Module module = parsed_body(kPipelineBody);
  std::vector<std::string> names;
  PassOptions observed = options;
  observed.after = [&](const Pass& pass, const Module&) { names.emplace_back(pass.name); };
  const Status status = run_passes(module, observed);
  REQUIRE(status.has_value());
  if (text) *text = body_of(module.programs[0]);
  return names;
}

TEST_CASE("the pipeline runs its passes in order") {
  std::vector<std::string> all;
  for (const Pass& pass : passes()) all.emplace_back(pass.name);
  CHECK(passes_run({}) == all);
  std::string text;
  passes_run({{}, "split_column_sum", {}}, &text);
  CHECK(text == R"(%x: f32[128, 3] = input {name="x"}
%b: f32[128, 3] = exp(%x)
%d: f32[128, 3] = add(%b, %b)
%e.rows: f32[16, 8, 3] = reshape(%d)
%e.partial: f32[16, 3] = reduce_sum(%e.rows) {axes=[1]}
%e: f32[3] = reduce_sum(%e.partial) {axes=[0]}
output(%e) {name="e"}
)");
}

TEST_CASE("passes can be left out and stopped after, by name") {
  std::string text;
  CHECK(passes_run({{"fold", "cse"}, "dce", {}}, &text) == std::vector<std::string>{"dce"});
  CHECK(text == kPipelineBody);
  CHECK(passes_run({{}, "fold", {}}) == std::vector<std::string>{"fold"});
  CHECK(passes_run({{"fold"}, "fold", {}}).empty());
}

TEST_CASE("names that are no pass are the user's error") {
  Module module = parsed_body(kPipelineBody);
  std::string known;
  for (const Pass& pass : passes()) known += (known.empty() ? "" : ", ") + std::string(pass.name);
  const Status disabled = run_passes(module, {{"flod"}, "", {}});
  REQUIRE(!disabled.has_value());
  CHECK(disabled.error().text() == "no pass 'flod'; the passes are: " + known);
  const Status stopped = run_passes(module, {{}, "end", {}});
  REQUIRE(!stopped.has_value());
  CHECK(stopped.error().text() == "no pass 'end'; the passes are: " + known);
  CHECK(body_of(module.programs[0]) == kPipelineBody);
}

}  // namespace
}  // namespace stepc::test
