// The evaluator's one product loop, shared by matmul and attention.
#pragma once

#include <cstdint>
#include <vector>

namespace stepc {

struct MatrixView {
  const double* data;
  int64_t row_stride;
  int64_t column_stride;
};

// to[i * n + j] = sum over p, ascending, of a[i, p] * b[p, j], in double.
void multiply(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, double* to);

inline MatrixView dense(const std::vector<double>& rows, int64_t columns) { return {rows.data(), columns, 1}; }
inline MatrixView transposed(MatrixView x) { return {x.data, x.column_stride, x.row_stride}; }

}  // namespace stepc
