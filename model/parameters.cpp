#include "model/parameters.h"

#include <array>
#include <limits>

#include "ir/support/check.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

void add_block(std::vector<ParameterInfo>& table, const ModelConfig& model, int64_t layer) {
  const int64_t dim = model.dim;
  const std::string block = fmt::format("blocks.{}.", layer);
  const auto matrix = [&](std::string_view name, Shape shape, int64_t fan_in) {
    table.push_back({block + std::string(name), {storage_dtype(model), std::move(shape)}, fan_in, true});
  };
  const auto norm = [&](std::string_view name) {
    table.push_back({block + std::string(name), {Dtype::f32, {dim}}, 0, false});
  };
  norm("attn_norm");
  matrix("qkv", {dim, 3 * dim}, dim);
  matrix("attn_out", {dim, dim}, dim);
  norm("ffn_norm");
  if (!is_dense(model)) table.push_back({block + "router", {Dtype::f32, {dim, model.experts}}, dim, true});
  matrix("gate_up", {model.experts, dim, 2 * model.ffn}, dim);
  matrix("down", {model.experts, model.ffn, dim}, model.ffn);
}

// Saturates instead of wrapping; the caller reports.
int64_t saturating_numel(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count = saturating_mul(count, extent);
  return count;
}

// Multiply-adds of a token's forward products outside attention's scores, twice that in FLOPs.
int64_t weight_products(const ModelConfig& model) {
  const int64_t attention = 4 * model.dim * model.dim;
  const int64_t router = is_dense(model) ? 0 : model.dim * model.experts;
  const int64_t experts = model.top * 3 * model.dim * model.ffn;
  return model.layers * (attention + router + experts) + model.dim * model.vocab_padded;
}

}  // namespace

Dtype storage_dtype(const ModelConfig& model) {
  switch (model.precision) {
    case PrecisionPolicy::bf16: return Dtype::bf16;
    case PrecisionPolicy::fp32: return Dtype::f32;
  }
  STEPC_UNREACHABLE("precision {}", static_cast<int>(model.precision));
}

std::vector<ParameterInfo> parameter_table(const ModelConfig& model) {
  std::vector<ParameterInfo> table;
  table.push_back(
      {"embed", {storage_dtype(model), {model.vocab, model.dim}}, model.dim, true, ParameterTerm::embedding});
  for (int64_t layer = 0; layer < model.layers; ++layer) add_block(table, model, layer);
  table.push_back({"final_norm", {Dtype::f32, {model.dim}}, 0, false, ParameterTerm::final_norm});
  table.push_back(
      {"head", {storage_dtype(model), {model.dim, model.vocab_padded}}, model.dim, true, ParameterTerm::head});
  return table;
}

int32_t parameter_stream(std::string_view name) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<int32_t>(hash & 0x7fffffffu);
}

std::string first_moment_name(std::string_view parameter) { return std::string(parameter) + ".m"; }
std::string second_moment_name(std::string_view parameter) { return std::string(parameter) + ".v"; }
std::string gradient_name(std::string_view parameter) { return std::string(parameter) + ".grad"; }

std::string_view term_name(ParameterTerm term) {
  switch (term) {
    case ParameterTerm::embedding: return "embedding";
    case ParameterTerm::blocks: return "blocks";
    case ParameterTerm::final_norm: return "final norm";
    case ParameterTerm::head: return "head";
  }
  STEPC_UNREACHABLE("term {}", static_cast<int>(term));
}

std::vector<TermCount> parameter_terms(const ModelConfig& model) {
  std::vector<TermCount> terms;
  const std::vector<ParameterInfo> table = parameter_table(model);
  for (ParameterTerm term :
       {ParameterTerm::embedding, ParameterTerm::head, ParameterTerm::blocks, ParameterTerm::final_norm}) {
    TermCount& counted = terms.emplace_back(TermCount{term, 0});
    for (const ParameterInfo& parameter : table)
      if (parameter.term == term)
        counted.elements = saturating_add(counted.elements, saturating_numel(parameter.type.shape));
  }
  return terms;
}

int64_t parameter_count(const ModelConfig& model) {
  int64_t count = 0;
  for (const TermCount& term : parameter_terms(model)) count = saturating_add(count, term.elements);
  return count;
}

Status checked_parameter_count(const ModelConfig& model) {
  constexpr int64_t kLargest = int64_t{1} << 31;  // products of two extents below fit 64 bits
  for (auto [name, value] : {std::pair("vocab_padded", model.vocab_padded),
                             {"dim", model.dim},
                             {"ffn", model.ffn},
                             {"experts", model.experts},
                             {"seq", model.seq}})
    if (value >= kLargest / 8) return user_error("{}: expected less than {}, found {}", name, kLargest / 8, value);
  constexpr int64_t kLayers = 100000;  // so that a table of them can be made
  if (model.layers > kLayers) return user_error("layers: expected at most {}, found {}", kLayers, model.layers);
  constexpr int64_t kBytesPerElement = 16;  // the weight, its gradient and two moments
  if (parameter_count(model) > std::numeric_limits<int64_t>::max() / kBytesPerElement)
    return user_error("the bytes of the parameters do not fit 64 bits");
  return {};
}

int64_t flops_per_token(const ModelConfig& model) {
  return 6 * weight_products(model) + 12 * model.layers * model.dim * model.seq;
}

int64_t causal_flops_per_token(const ModelConfig& model) {
  return 6 * weight_products(model) + 6 * model.layers * model.dim * model.seq;
}

}  // namespace stepc
