// The model by hand in PyTorch (tools/oracle/tiny_torch.py), asked for losses, gradients and updates.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/evaluate.h"

namespace stepc::test {

// An interpreter that has PyTorch; empty where there is none.
std::string python_with_torch();

// `config_json` is a configuration's text, `given` holds the parameters, and `tokens` and `targets` i32[S, B, T].
// Comes back with the answers of S steps, as the script names them.
TensorMap ask_oracle(const std::string& python, const std::string& config_json, const TensorMap& given);

// |found - wanted| / |wanted|, as vectors.
double relative_error(const std::vector<double>& found, const std::vector<double>& wanted);
void check_close(const std::string& what, const Tensor& found, const Tensor& wanted, double tolerance);

}  // namespace stepc::test
