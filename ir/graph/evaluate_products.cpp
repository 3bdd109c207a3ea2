// Evaluator entries of the contraction and of row gather and scatter.
#include "ir/graph/evaluate_products.h"

#include <algorithm>

#include "ir/graph/evaluate_rules.h"

namespace stepc {
namespace {

Status check_rows(const double* index, int64_t count, int64_t rows) {
  for (int64_t i = 0; i < count; ++i)
    if (index[i] < -1 || index[i] >= static_cast<double>(rows))
      return user_error("index {} at position {} is outside [-1, {})", index[i], i, rows);
  return {};
}

// A matmul's promise: rows of the first operand, as it is stored, that no count covers are zeros.
Status check_promise(Evaluation& e) {
  const Shape& shape = e.shape(0);
  const int64_t rows = shape[shape.size() - 2];
  const int64_t columns = shape.back();
  const int64_t batches = numel(e.shape(2));
  for (int64_t batch = 0; batch < batches; ++batch) {
    const auto count = static_cast<int64_t>(e.data(2)[batch]);
    if (count < 0) return user_error("expected a count of at least 0 in batch {}, found {}", batch, count);
    for (int64_t i = std::min(count, rows) * columns; i < rows * columns; ++i)
      if (const double found = e.data(0)[batch * rows * columns + i]; found != 0)
        return user_error("expected zeros from row {} on in batch {}, as the count promises, found {} in row {}", count,
                          batch, found, i / columns);
  }
  return {};
}

}  // namespace

void multiply(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, double* to) {
  // Rows of b are read again for every row of a: make them contiguous once.
  std::vector<double> rows;
  if (b.column_stride != 1) {
    rows.resize(static_cast<size_t>(k * n));
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j)
        rows[static_cast<size_t>(p * n + j)] = b.data[p * b.row_stride + j * b.column_stride];
    b = dense(rows, n);
  }
  for (int64_t i = 0; i < m; ++i) {
    double* const out = to + i * n;
    std::fill(out, out + n, 0.0);
    for (int64_t p = 0; p < k; ++p) {
      const double factor = a.data[i * a.row_stride + p * a.column_stride];
      const double* const row = b.data + p * b.row_stride;
      for (int64_t j = 0; j < n; ++j) out[j] += factor * row[j];
    }
  }
}

Status eval_matmul(Evaluation& e) {
  const bool counted = e.node.operands.size() == 3;
  if (counted) STEPC_TRY(check_promise(e));
  const Shape& shape_a = e.shape(0);
  const Shape& shape_b = e.shape(1);
  const size_t rank = shape_a.size();
  const int64_t m = e.result_shape()[rank - 2];
  const int64_t n = e.result_shape()[rank - 1];
  const bool transpose_a = e.node.attrs.flag(AttrKey::transpose_a);
  const int64_t k = shape_a[transpose_a ? rank - 2 : rank - 1];
  const size_t batches = m * n == 0 ? 0 : e.result_count() / static_cast<size_t>(m * n);
  for (size_t batch = 0; batch < batches; ++batch) {
    const int64_t at = static_cast<int64_t>(batch);
    MatrixView a{e.data(0) + at * m * k, shape_a[rank - 1], 1};
    MatrixView b{e.data(1) + at * k * n, shape_b[rank - 1], 1};
    if (transpose_a) a = transposed(a);
    if (e.node.attrs.flag(AttrKey::transpose_b)) b = transposed(b);
    const int64_t rows = counted ? static_cast<int64_t>(e.data(2)[batch]) : m + k;
    multiply(transpose_a ? m : std::min(m, rows), n, transpose_a ? std::min(k, rows) : k, a, b,
             e.result() + at * m * n);
  }
  return {};
}

Status eval_gather_rows(Evaluation& e) {
  const int64_t rows = e.shape(0)[0];
  const int64_t columns = e.shape(0)[1];
  const int64_t count = e.shape(1)[0];
  STEPC_TRY(check_rows(e.data(1), count, rows));
  for (int64_t n = 0; n < count; ++n) {
    const auto row = static_cast<int64_t>(e.data(1)[n]);
    if (row >= 0) std::copy_n(e.data(0) + row * columns, columns, e.result() + n * columns);
  }
  return {};
}

Status eval_scatter_add_rows(Evaluation& e) {
  const int64_t count = e.shape(0)[0];
  const int64_t columns = e.shape(0)[1];
  STEPC_TRY(check_rows(e.data(1), count, e.result_shape()[0]));
  for (int64_t n = 0; n < count; ++n) {
    const auto row = static_cast<int64_t>(e.data(1)[n]);
    if (row < 0) continue;
    for (int64_t j = 0; j < columns; ++j) e.result()[row * columns + j] += e.data(0)[n * columns + j];
  }
  return {};
}

}  // namespace stepc
