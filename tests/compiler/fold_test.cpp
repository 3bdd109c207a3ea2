// fold, rule by rule: what it rewrites, and what it must leave alone.
#include "compiler/graph/fold.h"

#include "compiler/graph/dce.h"
#include "tests/compiler/pass_test.h"

namespace stepc::test {
namespace {

// fold leaves dead nodes behind; dropping them keeps the expected texts short.
void fold_and_drop(Program& program) {
  fold(program);
  dce(program);
}

std::string folded(const std::string& lines) { return after(fold_and_drop, lines); }

// The graph of one op on %x (f32[3], input) and a constant of value c, both ways round.
std::string with_constant(const std::string& op, const std::string& c, bool constant_first) {
  return "%x: f32[3] = input {name=\"x\"}\n%c: f32[3] = constant {value=" + c + "}\n%y: f32[3] = " + op +
         (constant_first ? "(%c, %x)" : "(%x, %c)") + "\noutput(%y) {name=\"y\"}\n";
}
const std::string kIsX = "%x: f32[3] = input {name=\"x\"}\noutput(%x) {name=\"y\"}\n";

TEST_CASE("fold computes pointwise ops on constants in f32") {
  CHECK(folded(R"(%a: f32[2] = constant {value=0.1}
%b: f32[2] = constant {value=3}
%c: f32[2] = mul(%a, %b)
%d: f32[2] = exp(%c)
%e: pred[2] = less(%c, %d)
output(%c) {name="c"}
output(%d) {name="d"}
output(%e) {name="e"}
)") == R"(%c: f32[2] = constant {value=0.30000001192092896}
%d: f32[2] = constant {value=1.3498588800430298}
%e: pred[2] = constant {value=1}
output(%c) {name="c"}
output(%d) {name="d"}
output(%e) {name="e"}
)");
}

TEST_CASE("fold leaves an i32 division by zero to fail when it runs") {
  const std::string lines = R"(%a: i32[2] = constant {value=7}
%b: i32[2] = constant {value=0}
%c: i32[2] = div(%a, %b)
output(%c) {name="c"}
)";
  CHECK(folded(lines) == lines);
}

TEST_CASE("fold turns views of constants into constants") {
  CHECK(folded(R"(%a: f32[] = constant {value=0.1}
%b: f32[2, 3] = broadcast(%a) {axes=[]}
%c: f32[3, 2] = transpose(%b) {permutation=[1, 0]}
%d: f32[6] = reshape(%c)
%e: f32[2] = slice(%d) {start=[1], limit=[3]}
%f: f32[8] = concat(%d, %e) {axis=0}
%g: f32[8] = reverse(%f) {axes=[0]}
output(%g) {name="g"}
)") == R"(%g: f32[8] = constant {value=0.1}
output(%g) {name="g"}
)");
}

TEST_CASE("fold keeps concat of unlike constants and padding of all but zero") {
  const std::string lines = R"(%a: f32[2] = constant {value=0}
%b: f32[2] = constant {value=-0}
%c: f32[4] = concat(%a, %b) {axis=0}
%d: f32[3] = pad(%b) {low=[0], high=[1]}
output(%c) {name="c"}
output(%d) {name="d"}
)";
  CHECK(folded(lines) == lines);
  CHECK(folded(R"(%a: f32[2] = constant {value=0}
%b: f32[3] = pad(%a) {low=[1], high=[0]}
output(%b) {name="b"}
)") == "%b: f32[3] = constant {value=0}\noutput(%b) {name=\"b\"}\n");
}

TEST_CASE("fold drops neutral operands, minding signed zeros") {
  CHECK(folded(with_constant("mul", "1", false)) == kIsX);
  CHECK(folded(with_constant("mul", "1", true)) == kIsX);
  CHECK(folded(with_constant("div", "1", false)) == kIsX);
  CHECK(folded(with_constant("sub", "0", false)) == kIsX);
  CHECK(folded(with_constant("add", "-0", false)) == kIsX);
  CHECK(folded(with_constant("add", "-0", true)) == kIsX);
  for (const auto& [op, c, first] : std::vector<std::tuple<std::string, std::string, bool>>{{"add", "0", false},
                                                                                            {"add", "0", true},
                                                                                            {"sub", "-0", false},
                                                                                            {"sub", "0", true},
                                                                                            {"div", "1", true},
                                                                                            {"mul", "0", false},
                                                                                            {"mul", "-1", false},
                                                                                            {"pow", "1", false},
                                                                                            {"max", "0", false}}) {
    const std::string lines = with_constant(op, c, first);
    CHECK(folded(lines) == lines);
  }
  CHECK(folded(R"(%x: i32[3] = input {name="x"}
%c: i32[3] = constant {value=0}
%y: i32[3] = add(%c, %x)
output(%y) {name="y"}
)") == "%x: i32[3] = input {name=\"x\"}\noutput(%x) {name=\"y\"}\n");
  CHECK(folded(R"(%x: pred[3] = input {name="x"}
%t: pred[3] = constant {value=1}
%f: pred[3] = constant {value=0}
%y: pred[3] = logical_and(%x, %t)
%z: pred[3] = logical_or(%f, %y)
output(%z) {name="z"}
)") == "%x: pred[3] = input {name=\"x\"}\noutput(%x) {name=\"z\"}\n");
}

TEST_CASE("fold drops views that change nothing") {
  CHECK(folded(R"(%x: f32[3, 1] = input {name="x"}
%a: f32[3, 1] = reshape(%x)
%b: f32[3, 1] = transpose(%a) {permutation=[0, 1]}
%c: f32[3, 1] = broadcast(%b) {axes=[0, 1]}
%d: f32[3, 1] = slice(%c) {start=[0, 0], limit=[3, 1]}
%e: f32[3, 1] = pad(%d) {low=[0, 0], high=[0, 0]}
%f: f32[3, 1] = reverse(%e) {axes=[1]}
%g: f32[3, 1] = concat(%f) {axis=1}
output(%g) {name="g"}
)") == "%x: f32[3, 1] = input {name=\"x\"}\noutput(%x) {name=\"g\"}\n");
  const std::string lines = R"(%x: f32[3, 3] = input {name="x"}
%a: f32[3, 3] = transpose(%x) {permutation=[1, 0]}
%b: f32[3, 3] = reverse(%a) {axes=[1]}
output(%b) {name="b"}
)";
  CHECK(folded(lines) == lines);
}

TEST_CASE("fold makes two views of a kind one") {
  CHECK(folded(R"(%x: f32[2, 3, 4] = input {name="x"}
%a: f32[6, 4] = reshape(%x)
%b: f32[24] = reshape(%a)
%c: f32[4, 2, 3] = transpose(%x) {permutation=[2, 0, 1]}
%d: f32[2, 4, 3] = transpose(%c) {permutation=[1, 0, 2]}
%e: f32[2, 3, 5, 4] = broadcast(%x) {axes=[0, 1, 3]}
%f: f32[2, 7, 3, 5, 4] = broadcast(%e) {axes=[0, 2, 3, 4]}
%g: f32[1, 3, 4] = slice(%x) {start=[1, 0, 0], limit=[2, 3, 4]}
%h: f32[1, 1, 2] = slice(%g) {start=[0, 2, 1], limit=[1, 3, 3]}
%i: f32[3, 3, 4] = pad(%x) {low=[1, 0, 0], high=[0, 0, 0]}
%j: f32[4, 3, 6] = pad(%i) {low=[1, 0, 2], high=[0, 0, 0]}
%k: f32[2, 3, 4] = reverse(%x) {axes=[0, 1]}
%l: f32[2, 3, 4] = reverse(%k) {axes=[1, 2]}
output(%b) {name="b"}
output(%d) {name="d"}
output(%f) {name="f"}
output(%h) {name="h"}
output(%j) {name="j"}
output(%l) {name="l"}
)") == R"(%x: f32[2, 3, 4] = input {name="x"}
%b: f32[24] = reshape(%x)
%d: f32[2, 4, 3] = transpose(%x) {permutation=[0, 2, 1]}
%f: f32[2, 7, 3, 5, 4] = broadcast(%x) {axes=[0, 2, 4]}
%h: f32[1, 1, 2] = slice(%x) {start=[1, 2, 1], limit=[2, 3, 3]}
%j: f32[4, 3, 6] = pad(%x) {low=[2, 0, 2], high=[0, 0, 0]}
%l: f32[2, 3, 4] = reverse(%x) {axes=[0, 2]}
output(%b) {name="b"}
output(%d) {name="d"}
output(%f) {name="f"}
output(%h) {name="h"}
output(%j) {name="j"}
output(%l) {name="l"}
)");
}

TEST_CASE("fold undoes pairs down to the value itself") {
  CHECK(folded(R"(%x: f32[2, 3] = input {name="x"}
%a: f32[6] = reshape(%x)
%b: f32[2, 3] = reshape(%a)
%c: f32[3, 2] = transpose(%b) {permutation=[1, 0]}
%d: f32[2, 3] = transpose(%c) {permutation=[1, 0]}
%e: f32[2, 3] = reverse(%d) {axes=[0]}
%f: f32[2, 3] = reverse(%e) {axes=[0]}
%g: f32[2, 3] = stop_gradient(%f)
output(%g) {name="g"}
)") == "%x: f32[2, 3] = input {name=\"x\"}\noutput(%x) {name=\"g\"}\n");
}

TEST_CASE("fold drops casts that round nothing and keeps those that do") {
  CHECK(folded(R"(%x: bf16[3] = input {name="x"}
%a: f32[3] = cast(%x)
%b: bf16[3] = cast(%a)
%c: f32[3] = cast(%b)
output(%b) {name="b"}
output(%c) {name="c"}
)") == R"(%x: bf16[3] = input {name="x"}
%c: f32[3] = cast(%x)
output(%x) {name="b"}
output(%c) {name="c"}
)");
  const std::string lines = R"(%x: f32[3] = input {name="x"}
%a: bf16[3] = cast(%x)
%b: f32[3] = cast(%a)
output(%b) {name="b"}
)";
  CHECK(folded(lines) == lines);
  CHECK(folded(R"(%x: f32[3] = constant {value=0.1}
%a: bf16[3] = cast(%x)
%b: f32[3] = cast(%a)
output(%b) {name="b"}
)") == "%b: f32[3] = constant {value=0.10009765625}\noutput(%b) {name=\"b\"}\n");
}

TEST_CASE("fold decides selects") {
  CHECK(folded(R"(%x: f32[3] = input {name="x"}
%y: f32[3] = input {name="y"}
%p: pred[3] = less(%x, %y)
%t: pred[3] = constant {value=1}
%f: pred[3] = logical_not(%t)
%a: f32[3] = select(%t, %x, %y)
%b: f32[3] = select(%f, %x, %y)
%c: f32[3] = select(%p, %x, %x)
output(%a) {name="a"}
output(%b) {name="b"}
output(%c) {name="c"}
)") == R"(%x: f32[3] = input {name="x"}
%y: f32[3] = input {name="y"}
output(%x) {name="a"}
output(%y) {name="b"}
output(%x) {name="c"}
)");
}

}  // namespace
}  // namespace stepc::test
