// Conformance of fused kernels: every group of preset tiny and of a narrow moe-4b of two blocks, in all programs, each
// on the evaluator's own values.
#include <doctest/doctest.h>

#include "compiler/pipeline.h"
#include "model/parameters.h"
#include "tests/conform/groups.h"
#include "tests/conform/tokens.h"
#include "tests/model/model_run.h"
#include "tests/support/gpu.h"
#include "tests/support/skip.h"

namespace stepc {
namespace {

using test::GroupJob;
using test::Traced;

// What a router of zeros does: all probabilities are equal, so that experts 0 and 1 get every token and the others
// none.
enum class Router : uint8_t { own, zeros };

struct ModelCase {
  std::string label;
  Config config;
  Router router = Router::own;
};

// The emulator gets by with less of everything but the kinds of kernels.
Config tiny_config(int64_t tokens) {
  Config config = *preset_config("tiny");
  config.model.seq = tokens;
  config.train.batch = tokens == 33 ? 3 : 1;
  if (!test::conform_all()) config.model.layers = 2;
  return config;
}

// moe-4b's shape: heads of 128, eight experts of which two, 175 columns of padding, no warmup.
Config narrow_config(int64_t tokens) {
  Config config = *preset_config("moe-4b");
  ModelConfig& model = config.model;
  model.vocab = 593, model.vocab_padded = 768;
  model.dim = 256, model.heads = 2, model.layers = 2, model.ffn = 384, model.seq = tokens;
  if (!test::conform_all())
    model.dim = 128, model.heads = 1, model.ffn = 64, model.vocab = 81, model.vocab_padded = 256;
  config.train.batch = 1;
  return config;
}

std::vector<ModelCase> model_cases() {
  std::vector<ModelCase> cases;
  const bool all = test::conform_all();
  for (int64_t tokens : all ? test::token_counts() : std::vector<int64_t>{33})
    cases.push_back({fmt::format("tiny, {} tokens", tokens), tiny_config(tokens)});
  for (int64_t tokens : all ? test::token_counts() : std::vector<int64_t>{1, 31, 128})
    cases.push_back({fmt::format("narrow moe-4b, {} tokens", tokens), narrow_config(tokens)});
  const int64_t tokens = all ? 129 : 33;
  cases.push_back({"two experts overflow, six are empty", narrow_config(tokens), Router::zeros});
  cases.push_back({"two experts have all tokens", narrow_config(tokens), Router::zeros});
  cases.back().config.model.capacity_factor = 4;
  cases.push_back({"clipped and accumulated", narrow_config(2)});
  cases.back().config.train.clip = 0.5;
  cases.back().config.train.accumulation = 2;
  return cases;
}

// Moments as they are after some steps, and gradients of an earlier micro step.
void fill_states(const Module& module, TensorMap& persistents) {
  std::mt19937 random(11);
  for (const Persistent& persistent : module.persistents) {
    if (persistent.is_param) continue;
    for (double& x : persistents[persistent.name].data)
      x = static_cast<double>(static_cast<float>(1e-3 * (1 + static_cast<double>(random() % 1000)) / 1000));
  }
}

TensorMap inputs_of(const Config& config, const Program& program, const test::ModelRun& run) {
  std::mt19937 random(3);
  TensorMap ids;
  for (const Node& node : program.nodes) {
    if (node.op != Op::input || program.type(node.results[0]).dtype != Dtype::i32) continue;
    const TensorType& type = program.type(node.results[0]);
    const std::string& name = node.attrs.text(AttrKey::name);
    const int64_t limit = name == "position" ? config.model.seq : config.model.vocab;
    Tensor tensor{type, std::vector<double>(static_cast<size_t>(numel(type.shape)))};
    for (double& x : tensor.data) x = static_cast<double>(random() % static_cast<uint64_t>(limit));
    ids[name] = std::move(tensor);
  }
  return run.with_scalars(program.name, std::move(ids), 3);
}

std::shared_ptr<const Traced> trace(const ModelCase& each, const GpuTarget& target) {
  auto traced = std::make_shared<Traced>();
  traced->label = each.label;
  traced->module = build_module(each.config, differentiate);
  REQUIRE(run_passes(traced->module, {.for_gpu = true, .has_sm90 = target.has_sm90()}).has_value());
  test::ModelRun run(each.config, traced->module);
  fill_states(traced->module, run.tensors());
  if (each.router == Router::zeros)
    for (auto& [name, tensor] : run.tensors())
      if (name.find("router") != std::string::npos) std::fill(tensor.data.begin(), tensor.data.end(), 0.0);
  const TensorMap start = run.tensors();
  for (const Program& program : traced->module.programs) {
    TensorMap values;
    run.tensors() = start;
    run.run(program.name, inputs_of(each.config, program, run), &values);
    traced->traces.push_back(test::between_groups(program, std::move(values)));
  }
  return traced;
}

void check_models(const std::vector<ModelCase>& cases, const std::string& arch) {
  if (!test::gpu_runs(arch)) return test::skip("conform-models-" + arch, "the card runs no code for it");
  std::vector<std::vector<GroupJob>> jobs(cases.size());
  const GpuTarget target{arch};
  test::in_parallel(cases.size(), [&](size_t i) { jobs[i] = test::jobs_of(trace(cases[i], target), target); });
  std::vector<GroupJob> all;
  for (const std::vector<GroupJob>& some : jobs) all.insert(all.end(), some.begin(), some.end());
  test::check_jobs(all, target, test::Repeats::first);
}

TEST_CASE("conform: every group of tiny and of a narrow moe-4b") { check_models(model_cases(), "sm_90a"); }

TEST_CASE("conform: every group of both without wgmma") {
  check_models({{"tiny, 33 tokens", tiny_config(33)}, {"narrow moe-4b, 31 tokens", narrow_config(31)}}, "sm_80");
}

// Logits of 3.3e9 elements: no index of a lane that 32 bits would not hold.
TEST_CASE("conform: every group of moe-4b has a kernel at a batch of 32") {
  Config config = *preset_config("moe-4b");
  config.train.batch = 32, config.model.layers = 2;
  Module module = build_module(config, differentiate);
  REQUIRE(run_passes(module, {.for_gpu = true, .has_sm90 = true}).has_value());
  const Program& step = *module.find_program("step");
  std::vector<std::string> errors(step.groups.size());
  test::in_parallel(step.groups.size(), [&](size_t g) {
    const auto made = schedule_gpu(step, step.groups[g], {"sm_90a"});
    if (!made) errors[g] = step.groups[g].name + ": " + made.error().text();
  });
  for (const std::string& error : errors) CHECK_MESSAGE(error.empty(), error);
}

}  // namespace
}  // namespace stepc
