// stepc sample: the same text for the same seed, and prompts that cannot be continued.
#include <doctest/doctest.h>

#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::run_stepc;
using test::run_stepc_well;
using test::TempDir;

TEST_CASE("sample: text follows from weights, prompt and seed") {
  const TempDir folder;
  test::make_shards(folder);
  run_stepc_well(test::train_arguments(folder, "run", {"--set", "steps=60"}));
  const auto sample = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"sample", "--checkpoint", folder.file("run")});
    return run_stepc(more);
  };
  const auto text = [&](const std::vector<std::string>& more) {
    const auto result = sample(more);
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    return result.out;
  };
  const std::string first = text({"--prompt", "the ", "--bytes", "60", "--seed", "3"});
  CHECK(first.size() == 4 + 60 + 1);  // longer than the model's window
  CHECK(first.starts_with("the "));
  CHECK(text({"--prompt", "the ", "--bytes", "60", "--seed", "3", "--threads", "1"}) == first);
  CHECK(text({"--prompt", "the ", "--bytes", "60", "--seed", "4"}) != first);
  // One checkpoint instead of a run's newest.
  CHECK(run_stepc_well({"sample", "--checkpoint", test::checkpoint_of(folder, "run", 60), "--prompt", "the ", "--bytes",
                        "60", "--seed", "3"})
            .out == first);

  const std::string likeliest = text({"--prompt", "the ", "--bytes", "20", "--temperature", "0"});
  CHECK(text({"--prompt", "the ", "--bytes", "20", "--temperature", "0", "--seed", "9"}) == likeliest);
  CHECK(text({"--prompt", "the ", "--bytes", "20", "--top", "1", "--seed", "9"}) == likeliest);
  CHECK(text({"--prompt", "a", "--bytes", "0"}) == "a\n");

  const auto refused = [&](const std::vector<std::string>& more, const std::string& message) {
    const auto result = sample(more);
    CHECK(result.exit_code == 2);
    CHECK(result.out == "");
    CHECK(result.err == "stepc: " + message + "\n");
  };
  refused({"--prompt", ""}, "--prompt is empty: at least one byte is needed");
  refused({"--prompt", "caf\xc3\xa9"}, "--prompt: byte 3 is 195, but the vocabulary has 128 entries");
  CHECK(sample({"--temperature", "-1"}).err.starts_with("stepc: --temperature: Value -1 not in range "));
  const auto missing = run_stepc({"sample", "--checkpoint", folder.file("none")});
  CHECK(missing.exit_code == 2);
  CHECK(missing.err == "stepc: " + folder.file("none") + " is no complete checkpoint: it has no DONE\n");
}

}  // namespace
}  // namespace stepc
