// Panels and products. A unit is one k of f32 or two neighbouring k of bf16.
#include <algorithm>
#include <cmath>

#include "ir/kernel/interpret_state.h"

namespace stepc::kernel {
namespace {

int64_t unit_of(Dtype dtype) { return dtype == Dtype::bf16 ? 2 : 1; }

}  // namespace

// Columns past the width become undefined up to the end of their panel: code may or may not write them.
Status Machine::pack(const KOp& op) {
  STEPC_ASSIGN(const int64_t depth, index(op, op.indices[0]));
  STEPC_ASSIGN(const int64_t width, index(op, op.indices[1]));
  STEPC_ASSIGN(const Place source, place(op, 0));
  STEPC_ASSIGN(const Place target, place(op, 1));
  const int64_t panel_cols = target.buffer->shape[2];
  const int64_t unit = unit_of(target.buffer->dtype);
  const bool transposed = flag_attr(op, "transposed");
  const auto rows = static_cast<size_t>(integer_attr(op, "rows", static_cast<int64_t>(source.at.size()) - 2));
  const int64_t all_depth = (depth + unit - 1) / unit * unit;
  const int64_t all_width = (width + panel_cols - 1) / panel_cols * panel_cols;
  Place to = target;
  for (int64_t k = 0; k < all_depth; ++k)
    for (int64_t x = 0; x < all_width; ++x) {
      Lane lane{0, x >= width};
      if (k < depth && x < width) {
        STEPC_ASSIGN(const int64_t from, offset(op, source, rows, transposed ? x : k, transposed ? k : x));
        STEPC_ASSIGN(lane, read(op, source, from));
        lane.value = rounded(lane.value, target.buffer->dtype);
      }
      to.at[0] = target.at[0] + x / panel_cols;
      to.at[1] = target.at[1] + k / unit;
      to.at[2] = target.at[2] + x % panel_cols;
      STEPC_ASSIGN(const int64_t at, offset(op, to, 0, 0, unit == 2 ? k % 2 : 0));
      STEPC_TRY(write(op, to, at, lane));
    }
  return {};
}

// Rows of [extent][units * unit], k innermost.
Result<Machine::Operand> Machine::mma_operand(const KOp& op, size_t ref, int64_t extent, int64_t units, bool is_panel) {
  STEPC_ASSIGN(const Place start, place(op, ref));
  const int64_t unit = unit_of(start.buffer->dtype);
  const auto rows = static_cast<size_t>(integer_attr(op, "rows", static_cast<int64_t>(start.at.size()) - 2));
  Operand operand;
  operand.undefined.assign(static_cast<size_t>(extent), false);
  for (int64_t m = 0; m < extent && units > 0; ++m) {
    Place from = start;
    from.at[is_panel ? 2 : rows] += m;
    // Within bounds at both ends of k is within bounds between them.
    STEPC_ASSIGN(const int64_t first, offset(op, from, 0, 0, 0));
    const int64_t more = is_panel ? unit - 1 : units * unit - 1;
    STEPC_TRY(offset(op, from, 1, is_panel ? units - 1 : 0, more));
    const int64_t unit_elems = is_panel ? from.memory->strides[1] : unit;
    for (int64_t k = 0; k < units * unit; ++k) {
      STEPC_ASSIGN(const Lane lane, read(op, from, first + k / unit * unit_elems + k % unit));
      operand.values.push_back(static_cast<float>(lane.value));
      if (lane.undefined) operand.undefined[static_cast<size_t>(m)] = true;
    }
  }
  return operand;
}

Status Machine::mma(const KOp& op) {
  STEPC_ASSIGN(const int64_t depth, index(op, op.indices[0]));
  const Shape& shape = kernel_.frag(op.results[0]).shape;
  const int64_t unit = unit_of(kernel_.buffer(op.refs[1].buffer).dtype);
  const int64_t units = (std::max<int64_t>(depth, 0) + unit - 1) / unit;
  const bool a_is_panel = std::get<std::string>(find_attr(op, "a")->value) == "panel";
  STEPC_ASSIGN(const Operand a, mma_operand(op, 0, shape[0], units, a_is_panel));
  STEPC_ASSIGN(const Operand b, mma_operand(op, 1, shape[1], units, true));
  Lanes acc = frag(op.frags[0]);
  const auto all_depth = static_cast<size_t>(units * unit);
  for (size_t i = 0; i < acc.size(); ++i) {
    const size_t m = i / static_cast<size_t>(shape[1]);
    const size_t n = i % static_cast<size_t>(shape[1]);
    const float* x = a.values.data() + m * all_depth;
    const float* y = b.values.data() + n * all_depth;
    if (units * unit != depth && units > 0 && x[depth] != 0)
      return error(op, "the element after an odd depth is {}", x[depth]);
    float sum = static_cast<float>(acc[i].value);
    for (size_t k = 0; k < all_depth; ++k) sum = std::fma(x[k], y[k], sum);
    acc[i].value = double{sum};
    acc[i].undefined |= a.undefined[m] || b.undefined[n];
  }
  frag(op.results[0]) = std::move(acc);
  return {};
}

}  // namespace stepc::kernel
