// stepc gradients: what it writes is what training used, at the start and at a checkpoint.
#include <doctest/doctest.h>

#include <algorithm>

#include "ir/text/json.h"
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
