// stepc run, dump and compile on graph files, as someone without a model uses them.
#include <doctest/doctest.h>

#include <cmath>

#include "compiler/emit/host.h"
#include "compiler/lower.h"
#include "compiler/pipeline.h"
#include "ir/graph/evaluate.h"
#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/plan/bundle_io.h"
#include "runtime/safetensors.h"
#include "tests/support/random_graph.h"
#include "tests/system/command.h"
#include "tests/system/machine.h"

namespace stepc {
namespace {

using test::run_stepc;
using test::run_stepc_well;
using test::TempDir;

// A softmax layer with a running mean of what it saw.
constexpr std::string_view kLayer = R"(module "layer"

param @w: bf16[13, 7]
state @mean: f32[13] optimizer

program @main {
  %x: f32[5, 13] = input {name="x"}
  %w: bf16[13, 7] = param {name=@w}
  %mean: f32[13] = state {name=@mean}
  %xb: bf16[5, 13] = cast(%x)
  %logits: f32[5, 7] = matmul(%xb, %w) {transpose_a=false, transpose_b=false}
  %most: f32[5] = reduce_max(%logits) {axes=[1]}
  %most.b: f32[5, 7] = broadcast(%most) {axes=[0]}
  %shifted: f32[5, 7] = sub(%logits, %most.b)
  %e: f32[5, 7] = exp(%shifted)
  %sum: f32[5] = reduce_sum(%e) {axes=[1]}
  %sum.b: f32[5, 7] = broadcast(%sum) {axes=[0]}
  %p: f32[5, 7] = div(%e, %sum.b)
  output(%p) {name="p"}
  %columns: f32[13] = reduce_sum(%x) {axes=[0]}
  %share: f32[13] = constant {value=0.2}
  %next: f32[13] = fma(%columns, %share, %mean)
  assign(%next) {name=@mean}
}

program @twice {
  %mean: f32[13] = state {name=@mean}
  %two: f32[13] = add(%mean, %mean)
  output(%two) {name="two"}
}
)";

void write_tensors(const std::string& path, const TensorMap& tensors) {
  std::vector<HostTensor> hosts;
  std::vector<TensorBytes> entries;
  hosts.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    hosts.push_back(test::to_host(tensor));
    entries.push_back({name, tensor.type, hosts.back().bytes});
  }
  REQUIRE(write_safetensors(path, entries).has_value());
}

Tensor read_tensor(const std::string& path, const std::string& name, const TensorType& type) {
  const auto file = SafetensorsFile::open(path);
  REQUIRE_MESSAGE(file.has_value(), file.error().text());
  const auto bytes = file->tensor(name, type);
  REQUIRE_MESSAGE(bytes.has_value(), bytes.error().text());
  return test::from_host({type, {bytes->begin(), bytes->end()}});
}

void check_near(const Tensor& found, const Tensor& wanted) {
  REQUIRE(found.type == wanted.type);
  for (size_t i = 0; i < wanted.data.size(); ++i) CHECK(found.data[i] == doctest::Approx(wanted.data[i]).epsilon(1e-5));
}

TEST_CASE("run: a graph file with tensors in and out as the evaluator has them") {
  const TempDir folder;
  test::write_text(folder.file("layer.gir"), std::string(kLayer));
  const Module module = parse_module(kLayer, "layer.gir").value();
  const Program& program = module.programs[0];
  const TensorMap inputs = test::random_inputs(program, 3);
  TensorMap persistents = test::random_persistents(module, 3);
  write_tensors(folder.file("in.safetensors"), inputs);
  write_tensors(folder.file("state.safetensors"), persistents);
  const std::vector<std::string> arguments = {
      "run",       folder.file("layer.gir"),       "--program",   "main",
      "--inputs",  folder.file("in.safetensors"),  "--state",     folder.file("state.safetensors"),
      "--outputs", folder.file("out.safetensors"), "--state-out", folder.file("state-out.safetensors"),
      "--check"};
  CHECK(run_stepc_well(arguments).out == "p: f32[5, 7]\n");
  const TensorMap outputs = evaluate(program, persistents, inputs).value();
  check_near(read_tensor(folder.file("out.safetensors"), "p", outputs.at("p").type), outputs.at("p"));
  for (const auto& [name, tensor] : persistents)
    check_near(read_tensor(folder.file("state-out.safetensors"), name, tensor.type), tensor);
  std::vector<std::string> narrow = arguments;
  narrow.insert(narrow.end(), {"--baseline-cpu", "--threads", "1"});
  run_stepc_well(narrow);
  check_near(read_tensor(folder.file("out.safetensors"), "p", outputs.at("p").type), outputs.at("p"));
}

TEST_CASE("run: what is missing or of another type is named, and nothing is written") {
  const TempDir folder;
  const std::string graph = folder.file("layer.gir"), given = folder.file("in.safetensors");
  test::write_text(graph, std::string(kLayer));
  const auto refused = [&](const std::vector<std::string>& more, const std::string& message) {
    std::vector<std::string> arguments = {"run", graph, "--outputs", folder.file("out.safetensors")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run_stepc(arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.err == "stepc: " + message + "\n");
    CHECK_FALSE(std::filesystem::exists(folder.file("out.safetensors")));
  };
  refused({}, "--program is needed: the module has main, twice");
  refused({"--program", "mian"}, "no program 'mian'; did you mean 'main'?; the module has main, twice");
  refused({"--program", "main"}, "program main takes input x: give --inputs");
  write_tensors(given, {{"y", {{Dtype::f32, {2}}, {1, 2}}}});
  refused({"--program", "main", "--inputs", given}, given + ": no tensor named x");
  write_tensors(given, {{"x", {{Dtype::f32, {2}}, {1, 2}}}});
  refused({"--program", "main", "--inputs", given}, given + ": tensor x is F32[2], expected F32[5, 13]");
  CHECK(run_stepc_well({"run", graph, "--program", "twice"}).out == "two: f32[13]\n");
}

TEST_CASE("dump: every stage prints; graphs parse back to the same text") {
  const TempDir folder;
  const std::string graph = folder.file("layer.gir");
  test::write_text(graph, std::string(kLayer));
  CHECK(run_stepc_well({"dump", graph, "--stage=graph"}).out == kLayer);
  std::vector<std::string> stages = {"graph", "fused"};
  for (const Pass& pass : passes()) stages.emplace_back(pass.name);
  for (const std::string& stage : stages) {
    CAPTURE(stage);
    const std::string text = run_stepc_well({"dump", graph, "--stage", stage}).out;
    const auto module = parse_module(text, "dump");
    REQUIRE_MESSAGE(module.has_value(), module.error().text());
    CHECK(print_module(*module) == text);
  }
  const std::string fused = run_stepc_well({"dump", graph}).out;
  CHECK(fused.find(" matmul(m=5, n=7, k=13, batch=1) (") != std::string::npos);
  CHECK(run_stepc_well({"dump", graph, "--disable", "fuse"}).out.find("kernel @") == std::string::npos);
  for (const auto& [stage, part] :
       {std::pair{"kernel", "kernel @"}, {"llvm", "define "}, {"asm", ".text"}, {"plan", "\"program\": \"main\""}}) {
    const std::string text = run_stepc_well({"dump", graph, "--stage", stage, "--program", "main"}).out;
    CHECK_MESSAGE(text.find(part) != std::string::npos, stage << ":\n" << text);
    CHECK(text.find("twice") == std::string::npos);
  }
  for (const auto& [arch, alignment] : {std::pair{"host", 64}, {"sm_90a", 256}})
    CHECK(run_stepc_well({"dump", graph, "--stage=plan", "--arch", arch})
              .out.find(fmt::format("\"alignment_bytes\": {}", alignment)) != std::string::npos);
}

TEST_CASE("dump: the fused training step parses back to the same text") {
  const std::string text = run_stepc_well({"dump", "--preset", "tiny", "--program", "step"}).out;
  const auto module = parse_module(text, "dump");
  REQUIRE_MESSAGE(module.has_value(), module.error().text());
  CHECK(print_module(*module) == text);
  CHECK(test::count_of(text, "  kernel @") > 50);
  const std::string apart = run_stepc_well({"dump", "--preset", "tiny", "--program", "step", "--updates-apart"}).out;
  CHECK(test::count_of(apart, "  kernel @") > test::count_of(text, "  kernel @"));
}

TEST_CASE("dump: one kernel at every level, and everything as numbered files") {
  const TempDir folder;
  const std::string graph = folder.file("layer.gir");
  test::write_text(graph, std::string(kLayer));
  const std::string fused = run_stepc_well({"dump", graph, "--program", "main"}).out;
  const size_t at = fused.find("kernel @") + 8;
  const std::string name = fused.substr(at, fused.find(' ', at) - at);
  const std::string levels = run_stepc_well({"dump", graph, "--kernel", name}).out;
  size_t last = 0;
  for (const char* part :
       {" of @main: ", "// ---- fused\n", "// ---- kernel\n", "// ---- llvm\n", "define ", "// ---- asm\n"}) {
    const size_t place = levels.find(part);
    CHECK_MESSAGE(place != std::string::npos, part);
    CHECK(place >= last);
    last = place;
  }
  run_stepc_well({"dump", graph, "--dump-dir", folder.file("d")});
  const std::vector<std::string> files = test::files_below(folder.file("d"));
  const auto has = [&](const std::string& file) { return std::find(files.begin(), files.end(), file) != files.end(); };
  CHECK(has("00.graph.gir"));
  for (const char* extension : {"gir", "kir", "ll", "s"}) CHECK(has("kernels/main." + name + "." + extension));
  int numbered = 0;
  std::string before;
  for (const std::string& file : files) {
    if (file.find('/') != std::string::npos) continue;
    CHECK(file.starts_with(fmt::format("{:02d}.", numbered++)));
    const std::string text = test::text_of(folder.file("d/" + file));
    CHECK(parse_module(text, file).has_value());
    CHECK(text != before);
    before = text;
  }
  CHECK(numbered >= 2);
  CHECK(before == run_stepc_well({"dump", graph}).out);
}

TEST_CASE("compile: the bundle on disk is the one that lowering makes, from the cache and without") {
  const TempDir folder;
  const std::string graph = folder.file("layer.gir");
  test::write_text(graph, std::string(kLayer));
  for (const char* out : {"cold", "warm"}) {
    const auto result = run_stepc_well({"compile", graph, "--out", folder.file(out), "--cache", folder.file("cache")});
    CHECK(result.out.find(": 2 programs, ") != std::string::npos);
  }
  const auto cold = load_bundle(folder.file("cold"));
  REQUIRE_MESSAGE(cold.has_value(), cold.error().text());
  CHECK(*cold == load_bundle(folder.file("warm")).value());
  CHECK(*cold == lower_host(parse_module(kLayer, "layer.gir").value(), detect_host_target()).value());
}

}  // namespace
}  // namespace stepc
