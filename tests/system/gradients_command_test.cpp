// stepc gradients: what it writes is what training used, at the start and at a checkpoint.
#include <doctest/doctest.h>

#include <algorithm>

#include "ir/text/json.h"
#include "runtime/safetensors.h"
#include "tests/support/oracle.h"
#include "tests/support/tensor_file.h"
#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::run_stepc_well;
using test::TempDir;

// The training command's model and data, for `gradients`.
std::vector<std::string> gradient_arguments(const TempDir& folder, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = test::train_arguments(folder, "unused", more);
  arguments[0] = "gradients";
  arguments.erase(arguments.begin() + 1, arguments.begin() + 3);  // --run
  arguments.insert(arguments.end(), {"--out", folder.file("gradients")});
  return arguments;
}

double loss_of_step(const TempDir& folder, const std::string& run, int64_t step) {
  std::istringstream lines(test::text_of(folder.file(run + "/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const JsonValue value = parse_json(line, "metrics").value();
    const JsonCursor cursor(value, "metrics");
    const auto loss = cursor.member("loss");
    if (loss && cursor.integer("step").value() == step) return *loss->value().as<double>();
  }
  FAIL("no step " << step);
  return 0;
}

TEST_CASE("gradients: the same bits with everything made again that can be") {
  const TempDir folder;
  test::make_shards(folder);
  const auto made = [&](const std::string& recompute) {
    const auto said = run_stepc_well(gradient_arguments(folder, {"--set", "layers=2", "--recompute", recompute}));
    CHECK((said.out.find("recompute gradients: all: ") != std::string::npos) == (recompute == "all"));
    return test::text_of(folder.file("gradients"));
  };
  CHECK(made("all") == made("none"));
}

TEST_CASE("run: a training step is the same to the bit with everything made again that can be") {
  const TempDir folder;
  std::vector<TensorBytes> inputs;
  const std::string ids(4 * 16 * 4, '\0'), scalar(4, '\0');
  for (const char* name : {"tokens", "targets"}) inputs.push_back({name, {Dtype::i32, {4, 16}}, ids});
  for (const char* name : {"lr", "inv_bias1", "inv_bias2", "aux_coefficient"})
    inputs.push_back({name, {Dtype::f32, {}}, scalar});
  REQUIRE(write_safetensors(folder.file("in"), inputs).has_value());
  const auto made = [&](const std::string& recompute) {
    std::vector<std::string> arguments = test::train_arguments(folder, "unused", {"--recompute", recompute});
    arguments[0] = "run";
    arguments.erase(arguments.begin() + 1, arguments.begin() + 5);  // --run, --data
    arguments.insert(arguments.end(), {"--program", "step", "--inputs", folder.file("in"), "--outputs",
                                       folder.file("out"), "--state-out", folder.file("state")});
    const auto said = run_stepc_well(arguments);
    CHECK((said.out.find("recompute step: all: ") != std::string::npos) == (recompute == "all"));
    return test::text_of(folder.file("out")) + test::text_of(folder.file("state"));
  };
  CHECK(made("all") == made("none"));
}

TEST_CASE("gradients: the first moments after one step are a tenth of them, the weights are the initial ones") {
  const TempDir folder;
  test::make_shards(folder);
  run_stepc_well(test::train_arguments(folder, "run", {"--set", "steps=1"}));
  const TensorMap state = test::read_tensor_file(test::checkpoint_of(folder, "run", 1) + "/tensors.safetensors");
  const auto said = run_stepc_well(gradient_arguments(folder, {"--weights", folder.file("weights")}));
  CHECK(said.out.starts_with("loss "));
  TensorMap found = test::read_tensor_file(folder.file("gradients"));
  const TensorMap weights = test::read_tensor_file(folder.file("weights"));
  CHECK(found.at("loss").data[0] == loss_of_step(folder, "run", 1));
  int parameters = 0;
  for (const auto& [name, weight] : weights) {
    CAPTURE(name);
    ++parameters;
    std::vector<double> wanted = state.at(name + ".m").data;
    for (double& value : wanted) value *= 10;
    CHECK(test::relative_error(found.at(name).data, wanted) < 1e-6);
    CHECK(test::relative_error(weight.data, state.at(name).data) < 0.2);  // one step of Adam away
  }
  CHECK(parameters == 10);
  CHECK(state.size() == 3 * weights.size());
}

TEST_CASE("gradients: at a checkpoint, the batch is the one that training would take next") {
  const TempDir folder;
  test::make_shards(folder);
  run_stepc_well(test::train_arguments(folder, "run", {"--stop-after", "7"}));
  run_stepc_well(gradient_arguments(folder, {"--checkpoint", folder.file("run")}));
  const double next = test::read_tensor_file(folder.file("gradients")).at("loss").data[0];
  run_stepc_well(gradient_arguments(folder, {"--checkpoint", folder.file("run"), "--position", "0"}));
  CHECK(test::read_tensor_file(folder.file("gradients")).at("loss").data[0] != next);
  run_stepc_well(test::train_arguments(folder, "run", {"--stop-after", "1"}));
  CHECK(next == loss_of_step(folder, "run", 8));
}

}  // namespace
}  // namespace stepc
