// Tensors with pseudo-random contents for tests: the same numbers for the same seed, everywhere.
#pragma once

#include <random>

#include "ir/graph/evaluate.h"

namespace stepc::test {

// Uniform in [low, high), on a grid of 2^-grid_bits so that sums and small steps stay exact.
inline Tensor random_tensor(std::mt19937& random, TensorType type, double low, double high, int grid_bits = 12) {
  Tensor tensor{std::move(type), {}};
  tensor.data.resize(static_cast<size_t>(numel(tensor.type.shape)));
  const double grid = std::ldexp(1.0, grid_bits);
  for (double& x : tensor.data) {
    const double unit = static_cast<double>(random()) / 4294967296.0;
    x = std::floor((low + (high - low) * unit) * grid) / grid;
  }
  return tensor;
}

}  // namespace stepc::test
