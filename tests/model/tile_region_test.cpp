// The epilogues of the model's own contractions on tiles of a GPU template: every group of every program.
#include <set>

#include "compiler/pipeline.h"
#include "tests/model/model_run.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace stepc::test {
namespace {

TensorMap valid_inputs(const Program& program) {
  TensorMap inputs = random_inputs(program, 5);
  for (auto& [name, tensor] : inputs)
    if (tensor.type.dtype == Dtype::i32)
      for (double& x : tensor.data) x = std::abs(x) < 7 ? std::abs(x) : 0;
  return inputs;
}

void check_model(const Config& config, int64_t rows, int64_t columns) {
  ModelRun run(config, differentiate);
  Module module = run.module();
  REQUIRE(run_passes(module, {{"split_column_sum", "concat_pads"}, "", {}}).has_value());
  for (const Program& program : module.programs) {
    CAPTURE(program.name);
    TensorMap tensors = run.tensors();
    TensorMap trace;
    REQUIRE(evaluate(program, tensors, valid_inputs(program), Precision::f32, &trace).has_value());
    for (const Group& group : program.groups)
      if (group.schedule == Template::matmul) check_tiles(program, group, trace, rows, columns, {1e-5, 1e-6});
  }
}

// Head dimension 6 and 7 tokens: no tile of a GPU divides anything.
TEST_CASE("tiles make the results of a model of odd sizes") { check_model(small_config(), 16, 16); }

TEST_CASE("tiles make the results of a model of even sizes") {
  Config config = small_config();
  config.model.dim = 32;
  config.model.head_dim = 16;
  config.model.ffn = 24;
  config.model.seq = 16;
  check_model(config, 16, 32);
  check_model(config, 32, 16);
}

}  // namespace
}  // namespace stepc::test
