// What a training run writes down beside losses: expert loads, the experts of every token, the parameters' dtypes.
#include <doctest/doctest.h>

#include <algorithm>

#include "ir/text/json.h"
#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::run_stepc_well;
using test::TempDir;

std::vector<JsonValue> lines_of(const std::string& path) {
  std::vector<JsonValue> values;
  std::istringstream lines(test::text_of(path));
  for (std::string line; std::getline(lines, line);) values.push_back(parse_json(line, path).value());
  return values;
}

std::vector<int64_t> integers(const JsonCursor& list) {
  std::vector<int64_t> values;
  const auto items = list.items().value();
  for (const JsonCursor& item : items) values.push_back(*item.value().as<int64_t>());
  return values;
}

TEST_CASE("train: loads are what the recorded choices add up to, recording changes nothing, resuming goes on") {
  const TempDir folder;
  test::make_shards(folder);
  const std::string path = folder.file("routing.jsonl");
  const std::vector<std::string> more = {"--record-routing", path, "--set", "layers=2"};
  const auto part = [&](const char* steps) {
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.end(), {"--stop-after", steps});
    run_stepc_well(test::train_arguments(folder, "run", arguments));
  };
  part("12");
  part("8");
  run_stepc_well(test::train_arguments(folder, "plain", {"--set", "layers=2"}));
  CHECK(test::tensors_of(folder, "run", 20) == test::tensors_of(folder, "plain", 20));

  const auto metrics = lines_of(folder.file("run/metrics.jsonl"));
  const auto routing = lines_of(path);
  REQUIRE(metrics.size() == 20);
  REQUIRE(routing.size() == 20);
  for (size_t step = 0; step < 20; ++step) {
    const JsonCursor line(metrics[step], "metrics"), routed(routing[step], "routing");
    REQUIRE(line.integer("step").value() == static_cast<int64_t>(step) + 1);
    REQUIRE(routed.integer("step").value() == static_cast<int64_t>(step) + 1);
    const auto loads = line.member("expert_counts").value().items().value();
    const auto layers = routed.member("experts").value().items().value();
    REQUIRE(loads.size() == 2);
    REQUIRE(layers.size() == 2);
    for (size_t layer = 0; layer < 2; ++layer) {
      const std::vector<int64_t> choices = integers(layers[layer]);
      REQUIRE(choices.size() == 4 * 16 * 2);  // batch, tokens, experts of a token
      std::vector<int64_t> counted(4);
      for (int64_t expert : choices) ++counted.at(static_cast<size_t>(expert));
      CHECK(integers(loads[layer]) == counted);
    }
  }
}

TEST_CASE("train: loads, shares kept and recorded choices of an accumulated step are those of all its parts") {
  const TempDir folder;
  test::make_shards(folder);
  const auto choices_of = [&](const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--record-routing", folder.file(run + ".jsonl"), "--set", "steps=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    run_stepc_well(test::train_arguments(folder, run, arguments));
    const std::vector<JsonValue> lines = lines_of(folder.file(run + ".jsonl"));
    REQUIRE(lines.size() == 1);
    return integers(JsonCursor(lines[0], "routing").member("experts").value().items().value().at(0));
  };
  constexpr size_t kPart = 4 * 16 * 2;  // batch, tokens, experts of a token
  const std::vector<int64_t> plain = choices_of("plain", {});
  const std::vector<int64_t> all = choices_of("accumulated", {"--set", "accumulation=3"});
  REQUIRE(plain.size() == kPart);
  REQUIRE(all.size() == 3 * kPart);
  CHECK(std::equal(plain.begin(), plain.end(), all.begin()));  // the same windows, the same weights
  CHECK(!std::equal(plain.begin(), plain.end(), all.begin() + kPart));

  std::vector<int64_t> loads(4);
  int64_t kept = 0;
  for (size_t part = 0; part < 3; ++part) {
    std::vector<int64_t> counted(4);
    for (size_t i = 0; i < kPart; ++i) ++counted.at(static_cast<size_t>(all[part * kPart + i]));
    for (size_t e = 0; e < 4; ++e) loads[e] += counted[e], kept += std::min<int64_t>(counted[e], kPart / 4);
  }
  const std::vector<JsonValue> metrics = lines_of(folder.file("accumulated/metrics.jsonl"));
  const JsonCursor line(metrics[0], "metrics");
  CHECK(integers(line.member("expert_counts").value().items().value().at(0)) == loads);
  const double share = line.member("kept_share").value().items().value().at(0).number().value();
  CHECK(share == doctest::Approx(static_cast<double>(kept) / (3 * kPart)).epsilon(1e-12));
}

TEST_CASE("train: routing that cannot be written is an error before anything is lost") {
  const TempDir folder;
  test::make_shards(folder);
  const auto once = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--set", "steps=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::run_stepc(test::train_arguments(folder, "run", arguments));
  };
  REQUIRE(once({}).exit_code == 0);
  const auto nowhere = once({"--fresh", "--record-routing", folder.file("no/such/folder")});
  CHECK(nowhere.exit_code == 1);
  CHECK(nowhere.err.find(folder.file("no/such/folder")) != std::string::npos);
  CHECK(!test::tensors_of(folder, "run", 1).empty());
}

TEST_CASE("train: --json prints JSON alone, with a profile too") {
  const TempDir folder;
  test::make_shards(folder);
  const auto run = test::train_arguments(folder, "run", {"--set", "steps=2", "--no-checkpoint", "--json", "--profile"});
  std::istringstream lines(run_stepc_well(run).out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) CHECK_MESSAGE(parse_json(line, "line").has_value(), line);
  CHECK(count > 0);
  CHECK(test::text_of(folder.file("run/profile.json")).find("\"kernels\"") != std::string::npos);
}

TEST_CASE("train: the parameter table is written, its dtypes are said") {
  const TempDir folder;
  test::make_shards(folder);
  const auto said = run_stepc_well(test::train_arguments(folder, "run", {"--set", "steps=1"}));
  const std::string table = test::text_of(folder.file("run/parameters.txt"));
  CHECK(test::count_of(table, "\n") == 1 + 10 + 1);
  CHECK(table.find("blocks.0.down            [4, 24, 16]                      1536   bf16") != std::string::npos);
  const std::string dtypes = table.substr(table.find("dtypes: "));
  CHECK(dtypes.starts_with("dtypes: parameters 6 bf16 + 4 f32; gradients "));
  CHECK(dtypes.ends_with("; moments 20 f32\n"));
  CHECK(said.out.find(" parameters, " + dtypes) != std::string::npos);
}

}  // namespace
}  // namespace stepc
