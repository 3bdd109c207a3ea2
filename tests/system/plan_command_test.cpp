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
  const JsonCursor dtypes = cursor.member("dtypes").value();
  CHECK(dtypes.member("parameters").value().integer("bf16").value() == 50);
  CHECK(dtypes.member("parameters").value().integer("f32").value() == 37);
  CHECK(dtypes.member("gradients").value().integer("f32").value() == 87);
  CHECK(dtypes.member("moments").value().integer("f32").value() == 174);
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
  const int64_t recomputed = cursor.integer("largest_batch_recomputed").value();
  CHECK(text.out.find(fmt::format("recompute auto: nothing, needs 89.4 GiB\nlargest batch in 140 GiB: {}, {} with "
                                  "--recompute all\n",
                                  batch, recomputed)) != std::string::npos);
  CHECK(batch >= 32);
  CHECK(recomputed >= 48);
  CHECK(cursor.member("kernels").value().items().value().size() > 20);
}

TEST_CASE("plan: every parameter of the reference model, and the dtypes of what is kept of it") {
  const std::string text = run_stepc_well(reference({"--parameters"})).out;
  const size_t at = text.find("\nparameter ");
  REQUIRE(at != std::string::npos);
  const std::string table = text.substr(at, text.find("\ndtypes: ", at) - at);
  CHECK(count_of(table, "\n") == 2 + 87 - 1);
  CHECK(
      table.find("blocks.11.gate_up        [8, 3072, 8192]             201326592   bf16  f32 in a kernel   f32, f32") !=
      std::string::npos);
  CHECK(
      table.find("final_norm               [3072]                           3072    f32  f32 in a kernel   f32, f32") !=
      std::string::npos);
  CHECK(text.find("dtypes: parameters 50 bf16 + 37 f32; gradients 87 f32, 13 of them stored; moments 174 f32\n") !=
        std::string::npos);
  CHECK(run_stepc_well(reference({"--parameters", "--updates-apart"}))
            .out.find("gradients 87 f32, 62 of them stored; moments 174 f32\n") != std::string::npos);
  // Accumulated gradients are states.
  CHECK(run_stepc_well({"plan", "--preset", "tiny", "--set", "accumulation=2", "--parameters"})
            .out.find("dtypes: parameters 18 bf16 + 13 f32; gradients 31 f32; moments 62 f32\n") != std::string::npos);
}

// The batches that are said to be the largest fit, and the next ones do not.
TEST_CASE("plan: the largest batch is the last that fits") {
  const std::vector<std::string> tiny = {"plan", "--preset", "tiny", "--memory-gib", "1"};
  const std::string text = run_stepc_well(tiny).out;
  const size_t at = text.find("largest batch in 1.00 GiB: "), then = text.find(", ", at);
  REQUIRE(at != std::string::npos);
  const int kept = std::stoi(text.substr(at + 27)), recomputed = std::stoi(text.substr(then + 2));
  CHECK(kept > 8);
  CHECK(recomputed > kept);
  const auto at_batch = [&](int size, const char* recompute) {
    std::vector<std::string> arguments = tiny;
    arguments.insert(arguments.end(), {"--batch", std::to_string(size), "--recompute", recompute});
    return run_stepc(arguments);
  };
  CHECK(at_batch(kept, "none").exit_code == 0);
  CHECK(at_batch(kept + 1, "none").exit_code == 2);
  const auto some = at_batch(kept + 1, "auto");
  CHECK(some.exit_code == 0);
  CHECK(some.out.find(" values made again in backward, ") != std::string::npos);
  CHECK(at_batch(recomputed, "auto").exit_code == 0);
  const auto too_large = at_batch(recomputed + 1, "auto");
  CHECK(too_large.exit_code == 2);
  CHECK(too_large.err.starts_with("stepc: program @step needs 1.0"));
  CHECK(too_large.err.find(", has 1.00 GiB (1073741824 bytes); the largest buffers are\n") != std::string::npos);
  CHECK(count_of(too_large.err, "\n") == 12);
}

// 149 GB is what a driver leaves of an H200's memory.
TEST_CASE("plan: the reference model at batch 32 fits an H200 as it is, and a smaller card with little made again") {
  const auto at_32 = [](const char* gib) {
    return run_stepc_well(
               {"plan", "--preset", "moe-4b", "--batch", "32", "--arch", "sm_90a", "--memory-gib", gib, "--json"})
        .out;
  };
  const JsonValue whole = parse_json(at_32("139"), "plan").value(), smaller = parse_json(at_32("137"), "plan").value();
  CHECK(JsonCursor(whole, "plan").integer("total_bytes").value() < 149'000'000'000);
  CHECK(JsonCursor(whole, "plan").member("recompute").value().member("values").value().items().value().empty());
  const JsonCursor cursor(smaller, "plan");
  const int64_t total = cursor.integer("total_bytes").value();
  CHECK(total <= int64_t{137} << 30);
  const JsonCursor recompute = cursor.member("recompute").value();
  CHECK(recompute.integer("bytes_after").value() == total);
  CHECK(recompute.integer("bytes_before").value() == JsonCursor(whole, "plan").integer("total_bytes").value());
  const auto values = recompute.member("values").value().items().value();
  REQUIRE(values.size() == 2);  // rows that are gathered once more
  CHECK(values[0].string("name").value() == "b0.moe.2");
  CHECK(values[0].integer("saved_bytes").value() == int64_t{131072} * 3072 * 2);
  CHECK(values[1].integer("moved_bytes").value() <= 3 * int64_t{65536} * 3072 * 2 + int64_t{131072} * 4);
}

TEST_CASE("plan: what is made again, a value a line") {
  const std::string text = run_stepc_well({"plan", "--preset", "tiny", "--arch", "sm_90a", "--recompute", "all"}).out;
  CHECK(text.find("recompute all: ") != std::string::npos);
  CHECK(text.find(" moved  b0.moe.2: bf16[4096, 128] from b0.ffn.12, b0.router.") != std::string::npos);
  CHECK(text.find(" moved  b0.moe.11: bf16[4, 1024, 192] from b0.moe.4\n") != std::string::npos);
  const std::string none = run_stepc_well({"plan", "--preset", "tiny", "--arch", "sm_90a", "--recompute", "none"}).out;
  CHECK(none.find("\nrecompute none\nlargest batch in 140 GiB: ") != std::string::npos);
}

TEST_CASE("plan: more tokens than ids can count are too many, however large the memory") {
  const auto result = run_stepc_well({"plan", "--program", "eval", "--set", "seq=65536", "--memory-gib", "1000000000"});
  CHECK(result.out.find("largest batch in 954 PiB: 16383, 16383 with --recompute all\n") != std::string::npos);
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
