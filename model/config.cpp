// Presets and the checks that a configuration must pass.
#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "ir/support/check.h"
#include "ir/support/checked.h"
#include "ir/text/names.h"
#include "model/config_fields.h"
#include "model/parameters.h"

namespace stepc {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// Chosen on the King James Bible (bible-kjv-text): 1.34 nats per byte held out after these 2000 steps, 4.1 million
// tokens; 1.44 after 1000.
Config tiny() {
  Config config;
  config.train = {.batch = 8, .steps = 2000, .lr = 2e-3, .schedule = Schedule::cosine, .warmup = 100, .beta2 = 0.95};
  return config;
}

// 110 million parameters over GPT-2's vocabulary.
Config small() {
  Config config;
  config.model = {.vocab = 50257,
                  .vocab_padded = 50304,
                  .dim = 512,
                  .heads = 8,
                  .head_dim = 64,
                  .layers = 8,
                  .ffn = 512,
                  .experts = 8,
                  .seq = 1024};
  config.train = {.steps = 20000, .lr = 6e-4, .schedule = Schedule::cosine, .warmup = 200, .beta2 = 0.95, .clip = 1.0};
  return config;
}

Config moe_4b() {
  Config config;
  config.model = {.vocab = 50257,
                  .vocab_padded = 50432,
                  .dim = 3072,
                  .heads = 24,
                  .head_dim = 128,
                  .layers = 12,
                  .ffn = 4096,
                  .experts = 8,
                  .seq = 2048};
  config.train = {.batch = 16, .steps = 10000, .lr = 3e-4};
  return config;
}

// The reference with everything but its vocabulary and its head dimension made small: what it has in kind (padded head,
// eight experts, several heads), quick enough to set beside another implementation on a CPU.
Config narrow() {
  Config config = moe_4b();
  config.model.dim = 512;
  config.model.heads = 4;
  config.model.layers = 2;
  config.model.ffn = 512;
  config.model.seq = 256;
  config.train.batch = 8;
  config.train.steps = 1000;
  return config;
}

constexpr std::array<std::pair<std::string_view, Config (*)()>, 4> kPresets = {
    {{"tiny", tiny}, {"small", small}, {"moe-4b", moe_4b}, {"narrow", narrow}}};

Status at_least(std::string_view name, int64_t value, int64_t low) {
  if (value < low) return user_error("{}: expected at least {}, found {}", name, low, value);
  return {};
}

// `open` ends: the bound itself is not allowed.
Status in_range(std::string_view name, double value, double low, bool low_open, double high, bool high_open) {
  const bool above = low_open ? value > low : value >= low;
  const bool below = high_open ? value < high : value <= high;
  if (above && below && std::isfinite(value)) return {};
  return user_error("{}: expected a number in {}{}, {}{}, found {}", name, low_open ? '(' : '[', low, high,
                    high_open ? ')' : ']', value);
}

constexpr double kInf = std::numeric_limits<double>::infinity();

Status validate_model(const ModelConfig& model) {
  STEPC_TRY(at_least("vocab", model.vocab, 1));
  STEPC_TRY(at_least("vocab_padded", model.vocab_padded, model.vocab));
  for (auto [name, value] : {std::pair("dim", model.dim),
                             {"heads", model.heads},
                             {"head_dim", model.head_dim},
                             {"layers", model.layers},
                             {"ffn", model.ffn},
                             {"experts", model.experts},
                             {"top", model.top},
                             {"seq", model.seq}})
    STEPC_TRY(at_least(name, value, 1));
  if (model.head_dim % 2 != 0)
    return user_error("head_dim: expected an even number (RoPE turns pairs), found {}", model.head_dim);
  const auto width = checked_mul(model.heads, model.head_dim);
  if (width != model.dim)
    return user_error("dim: expected heads x head_dim = {} x {} = {}, found {}", model.heads, model.head_dim,
                      width.value_or(kInt32Max), model.dim);
  if (model.top > model.experts)
    return user_error("top: expected at most experts = {}, found {}", model.experts, model.top);
  STEPC_TRY(in_range("capacity_factor", model.capacity_factor, 0, true, kInf, true));
  STEPC_TRY(in_range("rope_theta", model.rope_theta, 1, true, kInf, true));
  STEPC_TRY(in_range("norm_eps", model.norm_eps, 0, false, kInf, true));
  return checked_parameter_count(model);
}

Status validate_train(const TrainConfig& train) {
  for (auto [name, value, low] : {std::tuple("batch", train.batch, int64_t{1}),
                                  {"accumulation", train.accumulation, 1},
                                  {"steps", train.steps, 1},
                                  {"seed", train.seed, 0},
                                  {"warmup", train.warmup, 0},
                                  {"aux_horizon", train.aux_horizon, 1}})
    STEPC_TRY(at_least(name, value, low));
  if (train.seed > kInt32Max) return user_error("seed: expected at most {}, found {}", kInt32Max, train.seed);
  STEPC_TRY(in_range("lr", train.lr, 0, false, kInf, true));
  STEPC_TRY(in_range("final_lr_fraction", train.final_lr_fraction, 0, false, 1, false));
  STEPC_TRY(in_range("beta1", train.beta1, 0, false, 1, true));
  STEPC_TRY(in_range("beta2", train.beta2, 0, false, 1, true));
  STEPC_TRY(in_range("eps", train.eps, 0, true, kInf, true));
  STEPC_TRY(in_range("decay", train.decay, 0, false, kInf, true));
  STEPC_TRY(in_range("clip", train.clip, 0, false, kInf, true));
  return in_range("aux_coefficient", train.aux_coefficient, 0, false, kInf, true);
}

// Ids, assignments and slots are i32.
Status validate_indices(const Config& config) {
  const auto tokens = checked_mul(config.train.batch, config.model.seq);
  const auto assignments = tokens ? checked_mul(*tokens, config.model.top) : std::nullopt;
  const double slots = static_cast<double>(assignments.value_or(kInt32Max)) * config.model.capacity_factor;
  if (!assignments || *assignments > kInt32Max || slots > static_cast<double>(kInt32Max - config.model.experts))
    return user_error("batch: expected batch x seq x top x max(1, capacity_factor) below {}, found {} x {} x {} x {}",
                      kInt32Max, config.train.batch, config.model.seq, config.model.top,
                      std::max(1.0, config.model.capacity_factor));
  return {};
}

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, make] : kPresets) names.push_back(name);
  return names;
}

Result<Config> preset_config(std::string_view name) {
  for (const auto& [known, make] : kPresets) {
    if (known != name) continue;
    Config config = make();
    config.preset = std::string(name);
    return config;
  }
  return user_error("unknown preset '{}'{}; expected tiny, small, moe-4b or narrow", name,
                    did_you_mean(name, preset_names()));
}

Status validate(const Config& config) {
  STEPC_TRY(validate_model(config.model));
  STEPC_TRY(validate_train(config.train));
  return validate_indices(config);
}

int64_t expert_capacity(const ModelConfig& model, int64_t tokens) {
  const double slots = model.capacity_factor * static_cast<double>(tokens) * static_cast<double>(model.top) /
                       static_cast<double>(model.experts);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(slots)));
}

std::string_view schedule_name(Schedule schedule) {
  switch (schedule) {
    case Schedule::constant: return "constant";
    case Schedule::cosine: return "cosine";
  }
  STEPC_UNREACHABLE("schedule {}", static_cast<int>(schedule));
}

std::string_view routing_mode_name(RoutingMode mode) {
  switch (mode) {
    case RoutingMode::own: return "own";
    case RoutingMode::equal: return "equal";
  }
  STEPC_UNREACHABLE("routing mode {}", static_cast<int>(mode));
}

std::string_view precision_policy_name(PrecisionPolicy precision) {
  switch (precision) {
    case PrecisionPolicy::bf16: return "bf16";
    case PrecisionPolicy::fp32: return "fp32";
  }
  STEPC_UNREACHABLE("precision {}", static_cast<int>(precision));
}

std::string_view expert_rows_name(ExpertRows rows) {
  switch (rows) {
    case ExpertRows::counted: return "counted";
    case ExpertRows::all: return "all";
  }
  STEPC_UNREACHABLE("expert rows {}", static_cast<int>(rows));
}

std::string_view attention_gradient_name(AttentionGradient form) {
  switch (form) {
    case AttentionGradient::deterministic: return "deterministic";
    case AttentionGradient::atomic: return "atomic";
  }
  STEPC_UNREACHABLE("attention gradient {}", static_cast<int>(form));
}

}  // namespace stepc
