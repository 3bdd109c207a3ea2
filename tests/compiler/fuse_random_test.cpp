// What fusion, concat_pads and order promise of any graph.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "compiler/graph/concat_pads.h"
#include "compiler/graph/dce.h"
#include "compiler/graph/fuse.h"
#include "compiler/graph/fuse_check.h"
#include "compiler/graph/order.h"
#include "ir/graph/fused.h"
#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"
#include "tests/support/random_graph.h"

namespace stepc {
namespace {

bool same(double a, double b, bool exact) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return exact ? std::memcmp(&a, &b, sizeof a) == 0 : a == b;
}

// Of tensors by name; without `exact` the signs of zeros may differ.
void check_same(const TensorMap& a, const TensorMap& b, bool exact) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    REQUIRE(other != b.end());
    REQUIRE(tensor.type == other->second.type);
    for (size_t i = 0; i < tensor.data.size(); ++i)
      REQUIRE_MESSAGE(same(tensor.data[i], other->second.data[i], exact), name << "[" << i << "]");
  }
}

void check_evaluation(const Module& before, const Module& after, uint64_t seed, bool exact) {
  TensorMap persistents_before = test::random_persistents(before, seed);
  TensorMap persistents_after = persistents_before;
  const TensorMap inputs = test::random_inputs(before.programs[0], seed);
  const auto outputs_before = evaluate(before.programs[0], persistents_before, inputs);
  const auto outputs_after = evaluate(after.programs[0], persistents_after, inputs);
  REQUIRE(outputs_before.has_value());
  REQUIRE_MESSAGE(outputs_after.has_value(), outputs_after.error().text());
  check_same(*outputs_before, *outputs_after, exact);
  check_same(persistents_before, persistents_after, exact);
}

// Every node that needs code is in a group; what stays outside needs none.
void check_complete(const Program& program) {
  const std::vector<int> group_of = group_of_nodes(program);
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const Op op = program.nodes[n].op;
    const bool outside = op == Op::input || op == Op::param || op == Op::state || op == Op::reshape ||
                         op_info(op).family == OpFamily::effect;
    CHECK_MESSAGE((group_of[n] >= 0 || outside), print_node(program, program.nodes[n]));
  }
}

void check_fused(const Module& before, const Module& after, uint64_t seed) {
  const Status verified = verify(after);
  REQUIRE_MESSAGE(verified.has_value(), verified.error().text() << "\n" << print_module(before));
  const Status checked = check_groups(after.programs[0]);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text() << "\n" << print_module(after));
  check_complete(after.programs[0]);
  check_evaluation(before, after, seed, true);
  const auto again = parse_module(print_module(after), "again.gir");
  REQUIRE_MESSAGE(again.has_value(), again.error().text());
  CHECK(print_module(*again) == print_module(after));
}

TEST_CASE("fusion keeps what random graphs compute, bit for bit, and its own promises") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    const int nodes = 5 + static_cast<int>(seed % 60);
    const auto kind = seed % 2 ? test::GraphKind::all : test::GraphKind::plain;
    const Module before = test::random_graph(seed, nodes, kind);
    Module after = before;
    fuse(after.programs[0]);
    check_fused(before, after, seed);
    order(after.programs[0]);
    check_fused(before, after, seed);
  }
}

TEST_CASE("fusion is a function of the program") {
  const Module module = test::random_graph(7, 60);
  Module a = module;
  Module b = module;
  fuse(a.programs[0]);
  fuse(b.programs[0]);
  CHECK(print_module(a) == print_module(b));
}

TEST_CASE("concat_pads keeps what random graphs compute but for signs of zeros") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Module before = test::random_graph(seed, 40);
    Module after = before;
    concat_pads(after.programs[0]);
    REQUIRE(verify(after).has_value());
    check_evaluation(before, after, seed, false);
  }
}

}  // namespace
}  // namespace stepc
