// Random programs through fusion, the host's templates and the emitter: every kernel is compared with the
// evaluator on the evaluator's own values, so that errors do not add up.
#include <doctest/doctest.h>

#include <cstdlib>

#include "compiler/graph/fuse.h"
#include "compiler/graph/order.h"
#include "ir/graph/print.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_group.h"

namespace stepc {
namespace {

// Nothing is compared exactly: arithmetic after a transcendental function amplifies its error, and attention rounds
// what it has computed to bf16.
test::Tolerance tolerance(Template schedule) {
  if (schedule == Template::attention || schedule == Template::attention_grad) return {2e-2, 2e-2};
  return {1e-4, 1e-4};
}

void run_program(uint64_t seed, int nodes, test::GraphKind kind, const HostTarget& target) {
  CAPTURE(seed);
  CAPTURE(nodes);
  Module module = test::random_graph(seed, nodes, kind);
  fuse(module.programs[0]);
  order(module.programs[0]);
  const Program& program = module.programs[0];
  TensorMap persistents = test::random_persistents(module, seed);
  TensorMap trace;
  const auto outputs = evaluate(program, persistents, test::random_inputs(program, seed), Precision::f32, &trace);
  REQUIRE_MESSAGE(outputs.has_value(), outputs.error().text());
  for (const Group& group : program.groups) {
    CAPTURE(group.name);
    test::check_group(program, group, trace, test::for_host(target), test::compiled(target), tolerance(group.schedule));
  }
}

TEST_CASE("kernels of random fused programs compute what the evaluator does") {
  const char* wanted = std::getenv("STEPC_SEEDS");  // for a longer search
  const uint64_t count = wanted ? std::strtoull(wanted, nullptr, 10) : 12;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const auto kind = seed % 2 ? test::GraphKind::all : test::GraphKind::plain;
    const HostTarget target = seed % 3 ? detect_host_target() : baseline_host_target();
    run_program(seed, seed % 4 ? 10 + static_cast<int>(seed % 30) : 100, kind, target);
  }
}

}  // namespace
}  // namespace stepc
