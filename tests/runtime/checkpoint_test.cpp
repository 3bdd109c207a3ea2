#include "runtime/checkpoint.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "ir/support/file.h"
#include "runtime/metrics.h"
#include "tests/support/temp_dir.h"

namespace stepc {
namespace {

Result<std::string> save(const std::string& folder, int64_t step, int64_t keep = 0) {
  const CheckpointState state{step, step * 8, "{\"preset\": \"tiny\"}", {{"a.tok", "00ff"}}};
  const TensorStream w{"w", {Dtype::f32, {1}}, [](const ByteSink& sink) -> Status {
                         STEPC_TRY(sink({"ab", 2}));
                         return sink({"cd", 2});
                       }};
  return save_checkpoint(folder, state, {w}, keep);
}

}  // namespace

TEST_CASE("checkpoint: state and tensors come back") {
  test::TempDir folder;
  const auto path = save(folder.file("checkpoints"), 12);
  REQUIRE(path);
  const auto checkpoint = load_checkpoint(*path);
  REQUIRE(checkpoint);
  CHECK(checkpoint->state.step == 12);
  CHECK(checkpoint->state.data_position == 96);
  CHECK(checkpoint->state.config == "{\"preset\": \"tiny\"}");
  CHECK(checkpoint->state.shards == std::vector<ShardRecord>{{"a.tok", "00ff"}});
  CHECK(checkpoint->tensors.tensor("w", {Dtype::f32, {1}}));
}

TEST_CASE("checkpoint: keep-last deletes the oldest complete ones only") {
  test::TempDir folder;
  for (int64_t step : {1, 2, 3}) REQUIRE(save(folder.path(), step, 2));
  const auto found = list_checkpoints(folder.path());
  REQUIRE(found.size() == 2);
  CHECK(found[0].ends_with("step-00000002"));
  CHECK(found[1].ends_with("step-00000003"));
}

TEST_CASE("checkpoint: incomplete and damaged ones are not used") {
  test::TempDir folder;
  const auto path = save(folder.path(), 5);
  REQUIRE(path);
  SUBCASE("without DONE") {
    std::filesystem::remove(*path + "/DONE");
    CHECK(list_checkpoints(folder.path()).empty());
    CHECK(load_checkpoint(*path).error().text() == *path + " is no complete checkpoint: it has no DONE");
  }
  SUBCASE("truncated tensors") {
    std::filesystem::resize_file(*path + "/tensors.safetensors", 70);
    CHECK(!load_checkpoint(*path));
  }
  SUBCASE("unknown version") {
    std::string text = *read_file(*path + "/state.json");
    text.replace(text.find("\"version\": 1"), 12, "\"version\": 7");
    REQUIRE(write_file_atomic(*path + "/state.json", text));
    CHECK(load_checkpoint(*path).error().text().find("checkpoint version 7, expected 1") != std::string::npos);
  }
  SUBCASE("left-over temporary folder") {
    std::filesystem::create_directory(folder.file("step-00000009.tmp-1"));
    CHECK(list_checkpoints(folder.path()).size() == 1);
  }
  CHECK(list_checkpoints(folder.file("missing")).empty());
}

TEST_CASE("metrics: a resumed log drops what it will write again") {
  test::TempDir folder;
  const std::string path = folder.file("metrics.jsonl");
  const auto line = [](int64_t step) {
    JsonValue value;
    value.add("step", step);
    return value;
  };
  {
    auto log = MetricsLog::open(path, -1);
    REQUIRE(log);
    for (int64_t step : {1, 2, 3}) REQUIRE(log->write(line(step)));
  }
  REQUIRE(write_file_atomic(path, *read_file(path) + "{\"step\": 4, \"los"));
  {
    auto log = MetricsLog::open(path, 2);
    REQUIRE(log);
    REQUIRE(log->write(line(3)));
  }
  const std::string text = *read_file(path);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK(text.ends_with("3}\n"));
  CHECK(duration_text(3725) == "1h 02m");
  CHECK(duration_text(59.6) == "1m 00s");
}

}  // namespace stepc
