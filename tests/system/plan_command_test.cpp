// stepc plan: the reference model's numbers, in seconds, as text and as JSON.
#include <doctest/doctest.h>

#include "ir/text/json.h"
#include "tests/system/command.h"

namespace stepc {
namespace {

using test::count_of;
using test::run_stepc;
using test::run_stepc_well;

const std::vector<std::string> kReference = {"plan", "--preset", "moe-4b", "--batch", "16", "--arch", "sm_90a"};

std::vector<std::string> reference(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = kReference;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("plan: the reference model, as text and as JSON, in under 5 seconds") {
  const auto text = run_stepc_well(reference());
  CHECK(text.cpu_seconds < 5.0);
  for (const char* line :
       {"       154389504  embedding\n", "       154927104  head\n", "      4077232128  blocks\n",
        "            3072  final norm\n", "      4386551808  in all\n",
        "FLOPs per token: 9991028736 (attention counted non-causally), 9538043904 (causally)\n",
        "  weights        8.17 GiB        8773847040 bytes\n", "  optimizer      32.7 GiB       35092414464 bytes\n",
        "  gradients           0 B                 0 bytes\n", "largest buffers\n",
        "largest batch in 140 GiB: ", "roofline of program @step on NVIDIA H200"})
    CHECK_MESSAGE(text.out.find(line) != std::string::npos, line << "is not in\n" << text.out);
  const size_t largest = text.out.find("largest buffers\n");
  const std::string buffers = text.out.substr(largest, text.out.find("\n\n", largest) - largest);
  CHECK(count_of(buffers, "\n") == 10);
  CHECK(buffers.find("bf16[32768, 50432]") != std::string::npos);

  const JsonValue json = parse_json(run_stepc_well(reference({"--json"})).out, "plan").value();
  const JsonCursor cursor(json, "plan");
  CHECK(cursor.integer("parameters").value() == 4386551808);
  CHECK(cursor.integer("parameters_blocks").value() == 4077232128);
  CHECK(cursor.integer("flops_per_token").value() == 9991028736);
  CHECK(cursor.integer("causal_flops_per_token").value() == 9538043904);
  int64_t total = 0;
  for (const char* arena : {"weights", "optimizer", "gradients", "activations", "io"}) {
    const int64_t bytes = cursor.integer(std::string(arena) + "_bytes").value();
    total += bytes;
    CHECK_MESSAGE(text.out.find(fmt::format("{:>16} bytes\n", bytes)) != std::string::npos, arena);
  }
  CHECK(cursor.integer("total_bytes").value() == total);
  CHECK(total <= 150754820096);
  CHECK(cursor.integer("available_bytes").value() == 150754820096);  // what the driver gives of 141 GB
  const int64_t batch = cursor.integer("largest_batch").value();
  CHECK(text.out.find(fmt::format("largest batch in 140 GiB: {}\n", batch)) != std::string::npos);
  CHECK(batch > 16);
  CHECK(cursor.member("kernels").value().items().value().size() > 20);
}

// The batch that is said to be the largest fits, and the next one does not.
TEST_CASE("plan: the largest batch is the last that fits") {
  const std::vector<std::string> tiny = {"plan", "--preset", "tiny", "--memory-gib", "1"};
  const std::string text = run_stepc_well(tiny).out;
  const size_t at = text.find("largest batch in 1.00 GiB: ");
  REQUIRE(at != std::string::npos);
  const int batch = std::stoi(text.substr(at + 27));
  CHECK(batch > 8);
  const auto at_batch = [&](int size) {
    std::vector<std::string> arguments = tiny;
    arguments.insert(arguments.end(), {"--batch", std::to_string(size)});
    return run_stepc(arguments);
  };
  CHECK(at_batch(batch).exit_code == 0);
  const auto too_large = at_batch(batch + 1);
  CHECK(too_large.exit_code == 2);
  CHECK(too_large.err.starts_with("stepc: program @step needs 1.0"));
  CHECK(too_large.err.find(", has 1.00 GiB (1073741824 bytes); the largest buffers are\n") != std::string::npos);
  CHECK(count_of(too_large.err, "\n") == 12);
}

TEST_CASE("plan: more tokens than ids can count are too many, however large the memory") {
  const auto result = run_stepc_well({"plan", "--program", "eval", "--set", "seq=65536", "--memory-gib", "1000000000"});
  CHECK(result.out.find("largest batch in 954 PiB: 16383\n") != std::string::npos);
}

TEST_CASE("plan: a chart of what lives when") {
  const test::TempDir folder;
  run_stepc_well({"plan", "--preset", "tiny", "--svg", folder.file("live.svg")});
  const std::string svg = test::text_of(folder.file("live.svg"));
  CHECK(svg.starts_with("<svg "));
  CHECK(count_of(svg, "<title>") > 50);
}

}  // namespace
}  // namespace stepc
