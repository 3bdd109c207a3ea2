// The epilogues of the model's own contractions on tiles of a GPU template: every group of every program.
#include <set>

#include "compiler/pipeline.h"
#include "ir/graph/print.h"
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

// Micro steps, clipping by the norm of the gradients, every pass.
TEST_CASE("tiles make the results of a model that accumulates gradients") {
  Config config = small_config();
  config.model.dim = 16;
  config.model.head_dim = 8;
  config.train.accumulation = 2;
  config.train.clip = 1.0;
  check_model(config, 16, 16);
}

// What a group's kernel depends on: its text without names.
std::string structure(const Program& program, const Group& group) {
  std::string text;
  for (NodeId id : group.nodes) {
    const Node& node = program.node(id);
    text += std::string(op_info(node.op).name);
    for (ValueId value : node.operands) text += type_text(program.type(value));
    for (ValueId value : node.results) text += type_text(program.type(value));
  }
  return text;
}

bool gathers(const Program& program, const Group& group) {
  return std::any_of(group.nodes.begin(), group.nodes.end(),
                     [&](NodeId id) { return program.node(id).op == Op::gather_rows; });
}

// On the tiles that a warp group of the GPU templates holds: no element goes alone but through a gather of rows.
TEST_CASE("tiles fit every contraction of the presets") {
  for (const char* name : {"tiny", "small", "moe-4b"}) {
    CAPTURE(name);
    Module module = build_module(*preset_config(name), differentiate);
    REQUIRE(run_passes(module).has_value());
    std::set<std::string> seen;
    for (const Program& program : module.programs)
      for (const Group& group : program.groups) {
        if (group.schedule != Template::matmul || !seen.insert(structure(program, group)).second) continue;
        CAPTURE(group.name);
        const MatmulGroup matmul = analyse_matmul(program, group, group_results(program, group));
        for (const int64_t columns : {64, 128}) {
          const auto plan = plan_tiles(program, group, matmul, 64, columns);
          REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
          if (!gathers(program, group)) CHECK(plan->scattered == 0);
          CHECK(plan->scattered <= 4);
          CHECK(plan->step >= 16);
        }
      }
  }
}

}  // namespace
}  // namespace stepc::test
