// What is measured: products, as [batch, m, k] x [batch, k, n], either side possibly stored transposed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/dtype.h"

namespace stepc::bench {

struct Case {
  std::string name;
  int64_t batch = 1;
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  Dtype operands = Dtype::f32;
  Dtype result = Dtype::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  double wanted_ratio = 0;  // of PyTorch's speed; 0: none is promised

  double flops() const {
    return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  }
};

// Two cubes, and the products of a small transformer's training step on 4096 tokens.
std::vector<Case> all_cases();

}  // namespace stepc::bench
