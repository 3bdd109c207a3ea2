// Random graphs through printer, parser, verifier and evaluator, and damaged texts through the parser.
#include "tests/support/random_graph.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"

namespace stepc::test {
namespace {

bool same_bits(const TensorMap& a, const TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.type != tensor.type) return false;
    const size_t bytes = tensor.data.size() * sizeof(double);
    if (bytes > 0 && std::memcmp(tensor.data.data(), other->second.data.data(), bytes) != 0) return false;
  }
  return true;
}

bool all_finite(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors)
    for (double x : tensor.data)
      if (!std::isfinite(x)) return false;
  return true;
}

TEST_CASE("random graphs verify, print and parse back, and evaluate to the same bits") {
  std::vector<int> seen(kOpCount, 0);
  int finite = 0;
  constexpr int kGraphs = 150;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Module module = random_graph(seed, 5 + static_cast<int>(seed) % 60);
    const Status valid = verify(module);
    REQUIRE_MESSAGE(valid.has_value(), valid.error().text());
    const std::string text = print_module(module);
    const Result<Module> parsed = parse_module(text, "random.gir");
    REQUIRE_MESSAGE(parsed.has_value(), parsed.error().text(), "\n", text);
    CHECK(print_module(*parsed) == text);
    for (const Node& node : module.programs[0].nodes) ++seen[static_cast<size_t>(node.op)];

    const TensorMap inputs = random_inputs(module.programs[0], seed);
    TensorMap before = random_persistents(module, seed);
    TensorMap before_too = before;
    const Result<TensorMap> result = evaluate(module.programs[0], before, inputs);
    REQUIRE_MESSAGE(result.has_value(), result.error().text(), "\n", text);
    const Result<TensorMap> again = evaluate(parsed->programs[0], before_too, inputs);
    REQUIRE(again.has_value());
    CHECK(same_bits(*result, *again));
    CHECK(same_bits(before, before_too));
    finite += all_finite(*result) && all_finite(before);
  }
  for (int op = 0; op < kOpCount; ++op)
    CHECK_MESSAGE(seen[static_cast<size_t>(op)] > 0, op_info(static_cast<Op>(op)).name);
  CHECK(finite > kGraphs * 9 / 10);
}

TEST_CASE("the same seed gives the same graph, another seed another") {
  CHECK(print_module(random_graph(7, 40)) == print_module(random_graph(7, 40)));
  CHECK(print_module(random_graph(7, 40)) != print_module(random_graph(8, 40)));
}

std::string damaged(std::string text, Random& random) {
  constexpr char kBytes[] = "%@{}[](),:=-!\"\\/.0129aefinx \n\0\xff";
  for (int64_t edits = 1 + random.below(4); edits > 0 && !text.empty(); --edits) {
    const auto at = static_cast<size_t>(random.below(static_cast<int64_t>(text.size())));
    const auto length = static_cast<size_t>(random.below(8));
    const char byte = kBytes[static_cast<size_t>(random.below(sizeof(kBytes)))];
    switch (random.below(5)) {
      case 0: text[at] = static_cast<char>(random.below(256)); break;
      case 1: text.insert(at, 1, byte); break;
      case 2: text.erase(at, length); break;
      case 3:
        text.insert(at, text.substr(static_cast<size_t>(random.below(static_cast<int64_t>(text.size()))), length));
        break;
      case 4: text[at] = byte; break;
    }
  }
  return text;
}

TEST_CASE("the parser returns from whatever it reads, and what it accepts it can print and read again") {
  Random random(2024);
  int accepted = 0;
  int refused = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::string text = print_module(random_graph(seed, 12));
    for (int i = 0; i < 100; ++i) {
      const Result<Module> module = parse_module(damaged(text, random), "fuzz.gir");
      if (!module) {
        ++refused;
        CHECK(module.error().where.file == "fuzz.gir");
        CHECK_FALSE(module.error().message.empty());
        continue;
      }
      ++accepted;
      const std::string printed = print_module(*module);
      const Result<Module> again = parse_module(printed, "fuzz.gir");
      REQUIRE_MESSAGE(again.has_value(), again.error().text(), "\n", printed);
      CHECK(print_module(*again) == printed);
    }
  }
  CHECK(accepted > 50);
  CHECK(refused > 1000);
}

TEST_CASE("deep, long and truncated texts are read or refused, never a crash") {
  const std::string text = print_module(random_graph(3, 60));
  for (size_t length = text.find("program") + 1; length + 2 < text.size(); length += 3)
    CHECK_FALSE(parse_module(text.substr(0, length), "t.gir").has_value());
  for (char c : {'(', '[', '{', '%', '"', '-', '\\', '\0'})
    CHECK_FALSE(parse_module("module \"m\"\nprogram @p {\n%x: f32" + std::string(100000, c), "t.gir").has_value());
  std::string ranks = "module \"m\"\nparam @w: f32[1";
  for (int i = 0; i < 5000; ++i) ranks += ", 1";
  CHECK(parse_module(ranks + "]", "t.gir").has_value());
}

}  // namespace
}  // namespace stepc::test
