// Evaluator entries of views and reductions. Each view is one strided copy (concat: one per operand).
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/evaluate_rules.h"

namespace stepc {
namespace {

using Strides = std::vector<int64_t>;

// A walk over an index space, in row-major order, of two tensors at once: element (i, j, ..) of one lies
// at offset + i * stride[0] + j * stride[1] + ...
struct Side {
  int64_t offset = 0;
  Strides strides;
};

// Calls row(offset of side a, offset of side b) for the start of each row along the last dimension.
template <class Row>
void for_each_row(const Shape& shape, const Side& a, const Side& b, Row row) {
  if (numel(shape) == 0) return;
  const size_t outer = shape.empty() ? 0 : shape.size() - 1;
  Shape index(outer, 0);
  int64_t at_a = a.offset;
  int64_t at_b = b.offset;
  for (;;) {
    row(at_a, at_b);
    size_t d = outer;
    for (; d > 0; --d) {
      at_a += a.strides[d - 1];
      at_b += b.strides[d - 1];
      if (++index[d - 1] < shape[d - 1]) break;
      at_a -= a.strides[d - 1] * shape[d - 1];
      at_b -= b.strides[d - 1] * shape[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

int64_t row_length(const Shape& shape) { return shape.empty() ? 1 : shape.back(); }
int64_t row_stride(const Side& side) { return side.strides.empty() ? 0 : side.strides.back(); }

void copy_strided(const Shape& shape, double* to, const Side& to_side, const double* from, const Side& from_side) {
  const int64_t length = row_length(shape);
  const int64_t to_stride = row_stride(to_side);
  const int64_t from_stride = row_stride(from_side);
  for_each_row(shape, to_side, from_side, [&](int64_t at_to, int64_t at_from) {
    for (int64_t i = 0; i < length; ++i) to[at_to + i * to_stride] = from[at_from + i * from_stride];
  });
}

// The result of a view whose elements each come from one place of the operand.
Status gather_view(Evaluation& e, const Side& from) {
  copy_strided(e.result_shape(), e.result(), {0, row_major_strides(e.result_shape())}, e.data(0), from);
  return {};
}

int64_t dot(const Strides& a, const std::vector<int64_t>& b) {
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Folds the operand's elements into the result's, starting from `initial`, in ascending order.
template <class F>
Status reduce(Evaluation& e, double initial, F f) {
  const Shape& shape = e.shape(0);
  const std::vector<int64_t>& axes = e.node.attrs.integers(AttrKey::axes);
  const Strides kept = row_major_strides(e.result_shape());
  Side to;
  for (size_t i = 0, k = 0; i < shape.size(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    to.strides.push_back(reduced ? 0 : kept[k++]);
  }
  const Side from{0, row_major_strides(shape)};
  double* out = e.result();
  const double* x = e.data(0);
  std::fill(out, out + e.result_count(), initial);
  const int64_t length = row_length(shape);
  const int64_t stride = row_stride(to);
  for_each_row(shape, to, from, [&](int64_t at_to, int64_t at_from) {
    if (stride == 0) {
      double sum = out[at_to];
      for (int64_t i = 0; i < length; ++i) sum = f(sum, x[at_from + i]);
      out[at_to] = sum;
    } else {
      for (int64_t i = 0; i < length; ++i) out[at_to + i * stride] = f(out[at_to + i * stride], x[at_from + i]);
    }
  });
  return {};
}

}  // namespace

Status eval_reshape(Evaluation& e) {
  e.results[0].data = e.operands[0]->data;
  return {};
}

Status eval_transpose(Evaluation& e) {
  const Strides strides = row_major_strides(e.shape(0));
  Side from;
  for (int64_t d : e.node.attrs.integers(AttrKey::permutation)) from.strides.push_back(strides[static_cast<size_t>(d)]);
  return gather_view(e, from);
}

Status eval_broadcast(Evaluation& e) {
  const Strides strides = row_major_strides(e.shape(0));
  const std::vector<int64_t>& axes = e.node.attrs.integers(AttrKey::axes);
  Side from{0, Strides(e.result_shape().size(), 0)};
  for (size_t i = 0; i < axes.size(); ++i) from.strides[static_cast<size_t>(axes[i])] = strides[i];
  return gather_view(e, from);
}

Status eval_slice(Evaluation& e) {
  Side from{0, row_major_strides(e.shape(0))};
  from.offset = dot(from.strides, e.node.attrs.integers(AttrKey::start));
  return gather_view(e, from);
}

Status eval_pad(Evaluation& e) {
  Side to{0, row_major_strides(e.result_shape())};
  to.offset = dot(to.strides, e.node.attrs.integers(AttrKey::low));
  copy_strided(e.shape(0), e.result(), to, e.data(0), {0, row_major_strides(e.shape(0))});
  return {};
}

Status eval_reverse(Evaluation& e) {
  Side from{0, row_major_strides(e.shape(0))};
  for (int64_t axis : e.node.attrs.integers(AttrKey::axes)) {
    int64_t& stride = from.strides[static_cast<size_t>(axis)];
    from.offset += stride * (e.shape(0)[static_cast<size_t>(axis)] - 1);
    stride = -stride;
  }
  return gather_view(e, from);
}

Status eval_concat(Evaluation& e) {
  const auto axis = static_cast<size_t>(e.node.attrs.integer(AttrKey::axis));
  Side to{0, row_major_strides(e.result_shape())};
  for (size_t i = 0; i < e.operands.size(); ++i) {
    copy_strided(e.shape(i), e.result(), to, e.data(i), {0, row_major_strides(e.shape(i))});
    to.offset += to.strides[axis] * e.shape(i)[axis];
  }
  return {};
}

Status eval_reduce_sum(Evaluation& e) {
  return reduce(e, 0, [](double sum, double x) { return sum + x; });
}
Status eval_reduce_max(Evaluation& e) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return reduce(e, -kInfinity, [](double best, double x) { return std::isnan(best) || best > x ? best : x; });
}
Status eval_reduce_min(Evaluation& e) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return reduce(e, kInfinity, [](double best, double x) { return std::isnan(best) || best < x ? best : x; });
}

}  // namespace stepc
