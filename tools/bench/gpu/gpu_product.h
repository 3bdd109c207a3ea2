// A product of a case: its sizes, and elements of it in double precision.
#pragma once

#include <algorithm>
#include <cmath>

#include "ir/graph/evaluate.h"
#include "tools/bench/gpu/gpu_cases.h"

namespace stepc::bench {

inline constexpr int kSamples = 48;

struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  Dtype result = Dtype::bf16;
  std::vector<int32_t> filled =
      {};                // rows of a as it is stored, of each batch, that are not zeros; all if none are given
  bool counted = false;  // whether the product is told

  Shape a_shape() const { return transpose_a ? Shape{batch, k, m} : Shape{batch, m, k}; }
  Shape b_shape() const { return transpose_b ? Shape{batch, n, k} : Shape{batch, k, n}; }
  double flops() const {
    return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  std::string request(std::string_view kind) const {
    return fmt::format("{} {} {} {} {} {:d} {:d} {}", kind, batch, m, n, k, transpose_a, transpose_b,
                       dtype_name(result));
  }
};

// The sum of products of one element, and the root of the sum of their squares.
struct Sum {
  double value = 0;
  double size = 0;
};
inline Sum dot(const GpuData& data, const Product& p, int64_t b, int64_t i, int64_t j) {
  Sum sum;
  for (int64_t x = 0; x < p.k; ++x) {
    const double left = data.input("a", b * p.m * p.k + (p.transpose_a ? x * p.m + i : i * p.k + x));
    const double right = data.input("b", b * p.k * p.n + (p.transpose_b ? j * p.k + x : x * p.n + j));
    sum.value += left * right;
    sum.size += left * right * left * right;
  }
  return {sum.value, std::sqrt(sum.size)};
}

struct Place {
  int64_t batch = 0, row = 0, column = 0;
};
inline Place sample(int number, int64_t batch, int64_t rows, int64_t columns) {
  const auto word = [&](uint64_t which) {
    return static_cast<int64_t>(philox_word(7, 11, 0, 4 * static_cast<uint64_t>(number) + which));
  };
  return {word(0) % batch, word(1) % rows, word(2) % columns};
}

inline Result<double> element(GpuData& data, std::string_view name, int64_t index) {
  STEPC_ASSIGN(const std::vector<double> found, data.output(name, index, 1));
  return found[0];
}

// The largest of what `error(place, its index, its sum)` gives for samples of the product.
template <class Error>
Result<double> worst_error(const GpuData& data, const Product& p, const Error& error) {
  double worst = 0;
  for (int s = 0; s < kSamples; ++s) {
    const Place at = sample(s, p.batch, p.m, p.n);
    const int64_t index = (at.batch * p.m + at.row) * p.n + at.column;
    STEPC_ASSIGN(const double found, error(at, index, dot(data, p, at.batch, at.row, at.column)));
    worst = std::max(worst, found);
  }
  return worst;
}

// The cases that memory bounds.
void add_memory_bound(std::vector<GpuCase>& cases);

}  // namespace stepc::bench
