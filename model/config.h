// What a user can say about a model and its training: numbers with presets, read from JSON or key=value,
// checked before anything is built. One list of fields (visit_fields in config.cpp) serves reading, printing
// and suggestions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/support/result.h"

namespace stepc {

// Who chooses the experts of a token: the router's probabilities, or, for measurements, a fixed assignment that gives
// every expert as many tokens as any other: the k-th choice of token n is expert (n * top + k) modulo experts.
enum class RoutingMode : uint8_t { own, equal };

// What matrices, activations and attention are stored and multiplied in: the reference's policy, or fp32 throughout, to
// compare with another implementation without roundings between.
enum class PrecisionPolicy : uint8_t { bf16, fp32 };

// Which of an expert's slots its products compute: those that the router filled, or all. The results are the same.
enum class ExpertRows : uint8_t { counted, all };

// Whether the gradient of attention gives the same bits every time, or may add up dq in whatever order its parts come,
// which saves two of seven products on Hopper: losses of two runs then differ in their last digits.
enum class AttentionGradient : uint8_t { deterministic, atomic };

struct ModelConfig {
  int64_t vocab = 256;
  int64_t vocab_padded = 256;  // columns of the head; softmax runs over the first `vocab`
  int64_t dim = 128;
  int64_t heads = 2;
  int64_t head_dim = 64;
  int64_t layers = 4;
  int64_t ffn = 192;    // of each expert
  int64_t experts = 4;  // 1: a dense model without router
  int64_t top = 2;      // experts per token
  int64_t seq = 256;
  double capacity_factor = 1.0;
  RoutingMode routing = RoutingMode::own;
  ExpertRows expert_rows = ExpertRows::counted;
  AttentionGradient attention_gradient = AttentionGradient::deterministic;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  PrecisionPolicy precision = PrecisionPolicy::bf16;
  bool operator==(const ModelConfig&) const = default;
};

enum class Schedule : uint8_t { constant, cosine };

struct TrainConfig {
  int64_t batch = 8;  // sequences per micro step
  int64_t accumulation = 1;
  int64_t steps = 1000;
  int64_t seed = 1;
  double lr = 1e-3;
  Schedule schedule = Schedule::constant;
  int64_t warmup = 0;              // steps of linear rise
  double final_lr_fraction = 0.1;  // where the cosine ends, of lr
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double decay = 0.1;
  double clip = 0.0;  // largest global gradient norm; 0: off
  double aux_coefficient = 1e-2;
  int64_t aux_horizon = 10000;  // step at which the coefficient has fallen to 0
  bool operator==(const TrainConfig&) const = default;
};

struct Config {
  std::string preset = "tiny";  // where the numbers started from
  ModelConfig model;
  TrainConfig train;
  bool operator==(const Config&) const = default;
};

std::vector<std::string_view> preset_names();
Result<Config> preset_config(std::string_view name);

// A JSON object of fields over `base`; a "preset" in it replaces `base` whatever its place.
Result<Config> parse_config(std::string_view json, std::string file_name, Config base);
// One "key=value".
Status override_config(Config& config, std::string_view assignment);
// Everything that parse_config needs to give `config` again, one field a line.
std::string config_json(const Config& config);

// Whether a model of these numbers can be built.
Status validate(const Config& config);

inline bool is_dense(const ModelConfig& model) { return model.experts == 1; }
// Slots of each expert when `tokens` tokens are routed together.
int64_t expert_capacity(const ModelConfig& model, int64_t tokens);

std::string_view schedule_name(Schedule schedule);
std::string_view routing_mode_name(RoutingMode mode);
std::string_view precision_policy_name(PrecisionPolicy precision);
std::string_view expert_rows_name(ExpertRows rows);
std::string_view attention_gradient_name(AttentionGradient form);

}  // namespace stepc
