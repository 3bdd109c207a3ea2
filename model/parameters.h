// The model's parameters in the order of every file and report, and what they cost: counts by term and
// FLOPs per token.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "model/config.h"

namespace stepc {

enum class ParameterTerm : uint8_t { embedding, blocks, final_norm, head };

struct ParameterInfo {
  std::string name;
  TensorType type;
  int64_t fan_in = 0;  // initialised uniformly in [-1, 1) / sqrt(fan_in); 0: ones
  bool decay = false;  // decoupled weight decay: matrices and routers
  ParameterTerm term = ParameterTerm::blocks;
};

// Of matrices and of the values between kernels that are stored: the residual stream, what products read and give.
Dtype storage_dtype(const ModelConfig& model);
std::vector<ParameterInfo> parameter_table(const ModelConfig& model);
// The Philox stream of a parameter's initial values: a hash of the name, so it does not move when others come.
int32_t parameter_stream(std::string_view name);

// AdamW's moments and the accumulated gradient of a parameter, as states of the module.
std::string first_moment_name(std::string_view parameter);
std::string second_moment_name(std::string_view parameter);
std::string gradient_name(std::string_view parameter);

struct TermCount {
  ParameterTerm term;
  int64_t elements;
};
std::string_view term_name(ParameterTerm term);
// Embedding, head, blocks, final norm.
std::vector<TermCount> parameter_terms(const ModelConfig& model);
int64_t parameter_count(const ModelConfig& model);
// An error where the count or the bytes of weights, gradients and moments do not fit 64 bits.
Status checked_parameter_count(const ModelConfig& model);

// Of a training step: three times the forward's products, attention counted as if every token saw all others.
int64_t flops_per_token(const ModelConfig& model);
// The same with attention counted for the tokens that causality lets it see.
int64_t causal_flops_per_token(const ModelConfig& model);

}  // namespace stepc
