// The passes on the model's own programs: the same bits of every output and state, a smaller graph.
#include <bit>
#include <cmath>

#include "compiler/graph/autodiff.h"
#include "compiler/pipeline.h"
#include "tests/model/model_run.h"
#include "tests/support/random_graph.h"

namespace stepc::test {
namespace {

bool same_bits(const TensorMap& a, const TensorMap& b) {
  const auto same_number = [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y) || (std::isnan(x) && std::isnan(y));
  };
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || tensor.type != other->second.type) return false;
    const std::vector<double>& data = other->second.data;
    if (!std::equal(tensor.data.begin(), tensor.data.end(), data.begin(), data.end(), same_number)) return false;
  }
  return a.size() == b.size();
}

// Token ids and positions must be in range, which random integers are not.
TensorMap valid_inputs(const Program& program, uint64_t seed) {
  TensorMap inputs = random_inputs(program, seed);
  for (auto& [name, tensor] : inputs)
    if (tensor.type.dtype == Dtype::i32)
      for (double& x : tensor.data) x = std::abs(x) < 7 ? std::abs(x) : 0;
  return inputs;
}

void check_same_results(const Program& before, const Program& after, TensorMap persistents) {
  CAPTURE(before.name);
  TensorMap expected_persistents = persistents;
  const TensorMap inputs = valid_inputs(before, 3);
  const auto expected = evaluate(before, expected_persistents, inputs);
  const auto found = evaluate(after, persistents, inputs);
  REQUIRE(expected.has_value());
  REQUIRE(found.has_value());
  CHECK(same_bits(*expected, *found));
  CHECK(same_bits(expected_persistents, persistents));
  CHECK(after.nodes.size() < before.nodes.size());
}

TEST_CASE("fold, cse and dce keep every result of the model's programs to the bit") {
  for (int64_t accumulation : {1, 2}) {
    Config config = small_config();
    config.train.accumulation = accumulation;
    config.train.clip = accumulation == 2 ? 1.0 : 0.0;
    const ModelRun run(config, differentiate);
    Module after = run.module();
    REQUIRE(run_passes(after, {{}, "dce", {}}).has_value());
    for (size_t i = 0; i < after.programs.size(); ++i) {
      ModelRun fresh(config, differentiate);
      check_same_results(run.module().programs[i], after.programs[i], fresh.tensors());
    }
  }
}

}  // namespace
}  // namespace stepc::test
