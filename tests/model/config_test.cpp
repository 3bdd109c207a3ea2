#include "model/config.h"

#include <doctest/doctest.h>

#include "model/parameters.h"
#include "model/schedule.h"

namespace stepc {
namespace {

Config preset(std::string_view name) {
  Result<Config> config = preset_config(name);
  REQUIRE(config.has_value());
  return *config;
}

// The error of one override of `tiny`, or of the validation after it.
std::string override_error(std::initializer_list<std::string_view> assignments) {
  Config config = preset("tiny");
  for (std::string_view assignment : assignments)
    if (const Status status = override_config(config, assignment); !status) return status.error().text();
  const Status status = validate(config);
  return status ? "" : status.error().text();
}

std::string json_error(std::string_view json) {
  const Result<Config> config = parse_config(json, "c.json", preset("tiny"));
  return config ? "" : config.error().text();
}

TEST_CASE("every preset is valid and its text reads back") {
  for (std::string_view name : preset_names()) {
    CAPTURE(name);
    const Config config = preset(name);
    CHECK(validate(config).has_value());
    const Result<Config> again = parse_config(config_json(config), "c.json", Config{});
    REQUIRE(again.has_value());
    CHECK(*again == config);
  }
  const Status unknown = preset_config("tinny").transform([](const Config&) {});
  CHECK(unknown.error().text() ==
        "unknown preset 'tinny'; did you mean 'tiny'?; expected tiny, small, moe-4b or narrow");
}

TEST_CASE("the reference's parameters, term by term") {
  const ModelConfig model = preset("moe-4b").model;
  CHECK(parameter_count(model) == 4'386'551'808);
  const std::vector<TermCount> terms = parameter_terms(model);
  REQUIRE(terms.size() == 4);
  CHECK(terms[0].elements == 154'389'504);
  CHECK(terms[1].elements == 154'927'104);
  CHECK(terms[2].elements == 4'077'232'128);
  CHECK(terms[3].elements == 3'072);
  CHECK(flops_per_token(model) == 9'991'028'736);
  CHECK(causal_flops_per_token(model) == 9'538'043'904);
  int matrices = 0, narrow = 0, decayed = 0;
  const std::vector<ParameterInfo> table = parameter_table(model);
  for (const ParameterInfo& parameter : table) {
    matrices += parameter.type.dtype == Dtype::bf16;
    narrow += parameter.type.dtype == Dtype::f32;
    decayed += parameter.decay;
  }
  CHECK(matrices == 50);
  CHECK(narrow == 37);
  CHECK(decayed == 62);
}

TEST_CASE("in fp32 every parameter is f32") {
  Config config = preset("narrow");
  REQUIRE(override_config(config, "precision=fp32").has_value());
  for (const ParameterInfo& parameter : parameter_table(config.model)) CHECK(parameter.type.dtype == Dtype::f32);
  CHECK(override_error({"precision=fp16"}) == "precision: expected \"bf16\" or \"fp32\", found \"fp16\"");
}

TEST_CASE("a dense model has no router; streams of names differ") {
  Config config = preset("tiny");
  const size_t routed = parameter_table(config.model).size();
  config.model.experts = 1;
  config.model.top = 1;
  CHECK(validate(config).has_value());
  const std::vector<ParameterInfo> table = parameter_table(config.model);
  CHECK(table.size() == routed - static_cast<size_t>(config.model.layers));
  // Attention 12 D^2 + 12 D T per layer, the feed-forward 18 D F, the head 6 D V: counted by hand.
  CHECK(flops_per_token(config.model) == 4 * (24 * 128 * 128 + 18 * 128 * 192 + 12 * 128 * 256) + 6 * 128 * 256);
  std::vector<int32_t> streams;
  for (const ParameterInfo& parameter : parameter_table(preset("moe-4b").model))
    streams.push_back(parameter_stream(parameter.name));
  std::sort(streams.begin(), streams.end());
  CHECK(std::adjacent_find(streams.begin(), streams.end()) == streams.end());
}

TEST_CASE("capacity") {
  ModelConfig model = preset("moe-4b").model;
  CHECK(expert_capacity(model, 16 * 2048) == 8192);
  model.capacity_factor = 1.25;
  CHECK(expert_capacity(model, 7) == 3);  // 1.25 * 7 * 2 / 8 = 2.19
  CHECK(expert_capacity(model, 1) == 1);
  CHECK(expert_capacity(model, 0) == 1);
}

TEST_CASE("mistakes in overrides") {
  CHECK(override_error({"dim=192", "heads=3"}) == "");
  CHECK(override_error({"lr=1"}) == "");
  CHECK(override_error({"dims=4"}) == "unknown field 'dims'; did you mean 'dim'?");
  CHECK(override_error({"zebra=4"}) == "unknown field 'zebra'");
  CHECK(override_error({"dim"}) == "expected key=value, found 'dim'");
  CHECK(override_error({"=3"}) == "expected key=value, found '=3'");
  CHECK(override_error({"dim=3.5"}) == "dim: expected an integer, found 3.5");
  CHECK(override_error({"dim="}) == "dim: expected an integer, found \"\"");
  CHECK(override_error({"lr=fast"}) == "lr: expected a number, found \"fast\"");
  CHECK(override_error({"schedule=linear"}) == "schedule: expected \"constant\" or \"cosine\", found \"linear\"");
  CHECK(override_error({"routing=even"}) == "routing: expected \"own\" or \"equal\", found \"even\"");
  CHECK(override_error({"expert_rows=all"}) == "");
  CHECK(override_error({"expert_rows=none"}) == "expert_rows: expected \"counted\" or \"all\", found \"none\"");
  CHECK(override_error({"dim=99999999999999999999"}) == "dim: expected an integer, found 1e+20");
}

TEST_CASE("numbers that make no model") {
  CHECK(override_error({"dim=130"}) == "dim: expected heads x head_dim = 2 x 64 = 128, found 130");
  CHECK(override_error({"layers=0"}) == "layers: expected at least 1, found 0");
  CHECK(override_error({"vocab=300"}) == "vocab_padded: expected at least 300, found 256");
  CHECK(override_error({"top=5"}) == "top: expected at most experts = 4, found 5");
  CHECK(override_error({"head_dim=63"}) == "head_dim: expected an even number (RoPE turns pairs), found 63");
  CHECK(override_error({"capacity_factor=0"}) == "capacity_factor: expected a number in (0, inf), found 0");
  CHECK(override_error({"beta2=1"}) == "beta2: expected a number in [0, 1), found 1");
  CHECK(override_error({"lr=nan"}) == "lr: expected a number in [0, inf), found nan");
  CHECK(override_error({"seed=2147483648"}) == "seed: expected at most 2147483647, found 2147483648");
  CHECK(override_error({"ffn=268435456"}) == "ffn: expected less than 268435456, found 268435456");
  CHECK(override_error({"batch=9000000"}) ==
        "batch: expected batch x seq x top x max(1, capacity_factor) below 2147483647, found 9000000 x 256 x 2 x 1");
  CHECK(override_error({"dim=268435454", "heads=1", "head_dim=268435454", "layers=9999"}) ==
        "the bytes of the parameters do not fit 64 bits");
}

TEST_CASE("JSON: presets, positions of mistakes") {
  const Result<Config> config = parse_config(R"({"lr": 0.5, "preset": "small"})", "c.json", preset("tiny"));
  REQUIRE(config.has_value());
  CHECK(config->model.dim == 512);
  CHECK(config->train.lr == 0.5);
  CHECK(json_error("{\n  \"lr\": 1,\n  \"layer\": 3\n}") ==
        "c.json:3:3: unknown field 'layer'; did you mean 'layers'?");
  CHECK(json_error("{\"top\": \"two\"}") == "c.json:1:2: top: expected an integer, found \"two\"");
  CHECK(json_error("{\"top\": 18446744073709551615}") == "c.json: 18446744073709551615 does not fit 64 bits");
  CHECK(json_error("{\n\"top\": 2,,}") == "c.json:2:10: malformed JSON");
  CHECK(json_error("{\"schedule\": \"seq\", \"seq\": 0.5}") ==
        "c.json:1:2: schedule: expected \"constant\" or \"cosine\", found \"seq\"");
  CHECK(json_error("{\"schedule\": \"cosine\", \"seq\": 0.5}") == "c.json:1:24: seq: expected an integer, found 0.5");
  CHECK(json_error("{\"attention_gradient\": \"fast\"}") ==
        "c.json:1:2: attention_gradient: expected \"deterministic\" or \"atomic\", found \"fast\"");
  CHECK(json_error("[]") == "c.json:1:1: expected a JSON object, found []");
  CHECK(json_error("{\"preset\": 3}") == "c.json:1:2: preset: expected a name, found 3");
}

TEST_CASE("scalars of a step") {
  TrainConfig train{.steps = 110, .lr = 1.0, .schedule = Schedule::cosine, .warmup = 10, .final_lr_fraction = 0.1};
  train.aux_horizon = 4;
  train.aux_coefficient = 0.5;
  CHECK(step_scalars(train, 0).lr == doctest::Approx(0.1));
  CHECK(step_scalars(train, 9).lr == doctest::Approx(1.0));
  CHECK(step_scalars(train, 60).lr == doctest::Approx(0.55));
  CHECK(step_scalars(train, 110).lr == doctest::Approx(0.1));
  CHECK(step_scalars(train, 9999).lr == doctest::Approx(0.1));
  CHECK(step_scalars(train, 0).inv_bias1 == doctest::Approx(10));
  CHECK(step_scalars(train, 1).inv_bias2 == doctest::Approx(1 / (1 - 0.999 * 0.999)));
  CHECK(step_scalars(train, 1).aux_coefficient == doctest::Approx(0.375));
  CHECK(step_scalars(train, 7).aux_coefficient == 0);
}

}  // namespace
}  // namespace stepc
