// The command line's side of GPUs: compile, dump, run and train for them, without one.
#include <doctest/doctest.h>

#include <map>

#include "compiler/plan/roofline.h"
#include "ir/text/json.h"
#include "runtime/cuda/driver.h"
#include "tests/support/skip.h"
#include "tests/system/small_run.h"

namespace stepc {
namespace {

using test::run_stepc;
using test::run_stepc_well;
using test::TempDir;

constexpr const char* kGraph = R"(module "softplus"

program @main {
  %x: f32[37, 50] = input {name="x"}
  %e: f32[37, 50] = exp(%x)
  %one: f32[37, 50] = constant {value=1}
  %sum: f32[37, 50] = add(%e, %one)
  %y: f32[37, 50] = log(%sum)
  %row: f32[37] = reduce_sum(%y) {axes=[1]}
  output(%y) {name="y"}
  output(%row) {name="row"}
}
)";

constexpr const char* kKernel = R"(kernel @double cuda
global %x: f32[1024]
global %y: f32[1024]
grid 2
role @main warps 4 {
  %v: f32[512] = load %x[task * 512]
  %w: f32[512] = add %v, %v
  store %w, %y[task * 512]
}
)";

void refused(const std::vector<std::string>& arguments, const std::string& message) {
  const auto result = run_stepc(arguments);
  CHECK(result.exit_code == 2);
  CHECK(result.err == "stepc: " + message + "\n");
  CHECK(result.out == "");
}

TEST_CASE("compile: a file of kernel IR becomes its code") {
  const TempDir folder;
  const std::string file = folder.file("double.kir");
  test::write_text(file, kKernel);
  const std::string ptx = run_stepc_well({"compile", file}).out;
  CHECK(ptx.find(".target sm_80") != std::string::npos);
  CHECK(ptx.find(".visible .entry double") != std::string::npos);
  CHECK(run_stepc_well({"compile", file, "--arch", "sm_90a", "--emit", "llvm"}).out.find("define ") !=
        std::string::npos);
  CHECK(run_stepc_well({"compile", file, "-o", folder.file("double.ptx")}).out == "");
  CHECK(test::text_of(folder.file("double.ptx")) == ptx);
  refused({"compile", file, "--emit", "ptxx"}, "--emit ptxx: unknown; did you mean 'ptx'?; expected llvm, ptx, cubin");
  refused({"compile", file, "--arch", "host"}, "--arch host: kernel @double is for cuda; expected sm_80");
  refused({"compile", file, "--preset", "tiny"}, "give either a file of kernel IR or a configuration, not both");
  test::write_text(file, "kernel @double cuda\nglobal %x: f33[4]\n");
  const auto wrong = run_stepc({"compile", file});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.starts_with("stepc: " + file + ":2:"));
}

TEST_CASE("train --profile: every kernel beside its floor, as text and JSON") {
  const TempDir folder;
  test::make_shards(folder);
  const auto run = run_stepc_well(
      test::train_arguments(folder, "r",
                            {"--device", "emulator", "--arch", "sm_80", "--set", "steps=2", "--set", "heads=1", "--set",
                             "head_dim=16", "--set", "batch=2", "--no-checkpoint", "--profile"}));
  const DevicePeaks peaks = *device_peaks("sm_80");
  CHECK(run.out.find("floors by " + peaks.name) != std::string::npos);
  CHECK(run.out.find("lost ms") != std::string::npos);
  const std::string file = folder.file("r/profile.json");
  const JsonValue json = parse_json(test::text_of(file), file).value();
  const auto kernels = JsonCursor(json, file).member("kernels").value().items().value();
  int products = 0;
  std::map<std::string, std::vector<double>> lost;
  for (const JsonCursor& kernel : kernels) {
    const auto number = [&](const char* key) { return kernel.member(key).value().number().value(); };
    lost[kernel.string("program").value()].push_back(number("ms") - number("floor_ms"));
    CHECK(number("floor_ms") * peaks.bytes_per_s >= 0.999e3 * number("bytes"));
    if (kernel.string("first_step").value() != "fwd.head.1") continue;
    ++products;
    // 32 tokens x 16 by 128 columns in bf16.
    CHECK(number("flops") == 2.0 * 32 * 16 * 128);
    CHECK(number("bytes") == 2.0 * (32 * 16 + 16 * 128 + 32 * 128));
  }
  CHECK(products == 1);
  CHECK(lost.contains("step"));
  for (const auto& [program, rows] : lost) CHECK(std::is_sorted(rows.rbegin(), rows.rend()));
}

TEST_CASE("devices: what there is not is named") {
  const TempDir folder;
  const std::string graph = folder.file("g.gir");
  test::write_text(graph, kGraph);
  refused({"run", graph, "--device", "emulater"},
          "--device emulater: unknown; did you mean 'emulator'?; known are host, emulator, cuda and cuda:N");
  refused({"run", graph, "--device", "cuda:x"},
          "--device cuda:x: unknown; did you mean 'cuda'?; known are host, emulator, cuda and cuda:N");
  refused({"run", graph, "--arch", "sm_90a"},
          "--arch sm_90a: device host runs host code only; --device emulator and --device cuda run others");
  refused({"run", graph, "--device", "emulator", "--arch", "host"},
          "--arch host: device emulator runs code for GPUs only");
  if (open_driver()) return test::skip("no-driver-error", "there is a driver");
  const auto none = run_stepc({"run", graph, "--device", "cuda"});
  CHECK(none.exit_code == 1);
  CHECK(none.err.starts_with("stepc: there is no NVIDIA driver to open: libcuda.so.1: "));
}

}  // namespace
}  // namespace stepc
