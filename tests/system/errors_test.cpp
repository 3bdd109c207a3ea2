// What stepc says to a user who asks for what there is not: one line on standard error, exit code 2, and
// nothing left behind.
#include <doctest/doctest.h>

#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::run_stepc;
using test::TempDir;

void check_error(const std::vector<std::string>& arguments, const std::string& message) {
  const auto result = run_stepc(arguments);
  CHECK(result.exit_code == 2);
  CHECK(result.err == "stepc: " + message + "\n");
  CHECK(result.out == "");
}

TEST_CASE("errors: commands and options") {
  check_error({}, "A subcommand is required");
  check_error({"trian"},
              "unknown command 'trian'; did you mean 'train'?; the commands are train, sample, plan, compile, dump, "
              "run, gradients, data");
  check_error({"train", "--run", "r"}, "--data is required");
  check_error({"dump", "--stage=fused", "--sttage=x"}, "The following argument was not expected: --sttage=x");
  check_error({"plan", "--batch", "0"}, "--batch: Value 0 not in range 1 to 1073741824");
  check_error({"plan", "--recompute", "al"}, "--recompute al: unknown; did you mean 'all'?; known are none, auto, all");
}

TEST_CASE("errors: configurations") {
  const TempDir folder;
  const auto run = folder.file("run");
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--data", folder.file("none.tok"), "--run", run});
    return more;
  };
  check_error(train({"--preset", "tinny"}),
              "unknown preset 'tinny'; did you mean 'tiny'?; expected tiny, small, moe-4b or narrow");
  check_error(train({"--set", "layer=3"}), "unknown field 'layer'; did you mean 'layers'?");
  check_error(train({"--set", "layers"}), "expected key=value, found 'layers'");
  check_error(train({"--set", "layers=many"}), "layers: expected an integer, found \"many\"");
  check_error(train({"--set", "layers=0"}), "layers: expected at least 1, found 0");
  const std::string config = folder.file("config.json");
  check_error(train({"--config", config}), "cannot read '" + config + "': No such file or directory");
  test::write_text(config, "{\n  \"layers\": 2,\n  \"lr\": \"fast\"\n}\n");
  check_error(train({"--config", config}), config + ":3:3: lr: expected a number, found \"fast\"");
  check_error(train({}), "cannot open " + folder.file("none.tok") + ": No such file or directory");
  CHECK_FALSE(std::filesystem::exists(run));
}

TEST_CASE("errors: stages, programs, kernels, targets") {
  const TempDir folder;
  check_error({"dump", "--stage=fussed"},
              "--stage fussed: unknown; did you mean 'fused'?; the stages are graph, fold, cse, dce, "
              "split_column_sum, concat_pads, fuse, order, fused, kernel, llvm, asm, plan");
  check_error({"dump", "--program", "stepp"},
              "no program 'stepp'; did you mean 'step'?; the module has init, step, eval, sample");
  check_error({"plan", "--program", "update"}, "no program 'update'; the module has init, step, eval, sample");
  check_error({"dump", "--set", "layers=1", "--kernel", "fwd.ropes"},
              "no kernel @fwd.ropes; did you mean 'fwd.rope'?; `dump --stage=fused` lists them");
  check_error({"dump", "--disable", "fuze"},
              "no pass 'fuze'; the passes are: fold, cse, dce, split_column_sum, concat_pads, fuse, order");
  check_error({"dump", "--arch", "sm_80", "--stage=asm"},
              "--stage asm: unknown; the stages are graph, fold, cse, dce, split_column_sum, concat_pads, fuse, order, "
              "fused, kernel, llvm, ptx, plan");
  const std::string unknown = "--arch sm_99: unknown; did you mean 'sm_89'?; known are host, sm_80, sm_89, sm_90a";
  check_error({"compile", "--arch", "sm_99", "--out", folder.file("out")}, unknown);
  check_error({"plan", "--arch", "sm_99"}, unknown);
  check_error({"dump", "--arch", "sm_99"}, unknown);
  check_error({"plan", "--arch", "sm_90"},
              "--arch sm_90: unknown; did you mean 'sm_90a'?; known are host, sm_80, sm_89, sm_90a");
  check_error({"compile"}, "--out is required");
  check_error({"compile", "--cubin", "--out", folder.file("out")}, "--cubin: only for GPUs, not --arch host");
  check_error({"compile", "--emit", "ptx", "--out", folder.file("out")},
              "--emit ptx: only for a file of kernel IR (.kir)");
  CHECK(test::files_below(folder.path()).empty());
}

TEST_CASE("errors: graph files, by line and column") {
  const TempDir folder;
  const std::string graph = folder.file("g.gir");
  check_error({"dump", graph}, "cannot read '" + graph + "': No such file or directory");
  const auto refused = [&](const std::string& text, const std::string& message) {
    test::write_text(graph, text);
    for (const char* command : {"dump", "run"}) check_error({command, graph}, graph + ":" + message);
    check_error({"compile", graph, "--out", folder.file("out")}, graph + ":" + message);
  };
  refused("", "1:1: expected 'module' at the start of the file, found the end of the file");
  const std::string head = "module \"m\"\n\nprogram @main {\n  %x: f32[2, 3] = input {name=\"x\"}\n";
  refused(head + "  %y: f32[2, 3] = expp(%x)\n}\n", "5:19: unknown operation 'expp'; did you mean 'exp'?");
  refused(head + "  %y: f32[2, 4] = exp(%x)\n}\n", "5:19: exp: expected a result of type f32[2, 3], found f32[2, 4]");
  refused(head + "  output(%z) {name=\"z\"}\n}\n", "5:10: %z is not defined before its use");
  refused(head + "  output(%x) {name=\"x\"}\n", "6:1: expected an operation or '}', found the end of the file");
  check_error({"dump", graph, "--preset", "tiny"}, "give either a graph file or a configuration, not both");
  CHECK(test::files_below(folder.path()) == std::vector<std::string>{"g.gir"});
}

TEST_CASE("errors: text and shards") {
  const TempDir folder;
  check_error({"data", folder.file("none"), "--train", folder.file("t.tok")},
              "cannot read '" + folder.file("none") + "': No such file or directory");
  test::write_text(folder.file("empty"), "");
  check_error({"data", folder.file("empty"), "--train", folder.file("t.tok")},
              folder.file("empty") + ": the file is empty");
  test::write_text(folder.file("short"), "a few bytes");
  check_error({"data", folder.file("short"), "--train", folder.file("t.tok"), "--held-out", folder.file("h.tok")},
              folder.file("short") + ": 11 bytes are too few to hold out every 20th block of 16384");
  CHECK(test::files_below(folder.path()) == std::vector<std::string>{"empty", "short"});
}

}  // namespace
}  // namespace stepc
