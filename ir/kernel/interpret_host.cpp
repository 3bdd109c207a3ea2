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
  for (int64_t k = 0; k < all_depth; ++k)
    for (int64_t x = 0; x < all_width; ++x) {
      Lane lane{0, x >= width};
      if (k < depth && x < width) {
        STEPC_ASSIGN(const int64_t from, offset(op, source, rows, transposed ? x : k, transposed ? k : x));
        STEPC_ASSIGN(lane, read(op, source, from));
        lane.value = rounded(lane.value, target.buffer->dtype);
      }
      Place to = target;
      to.at[0] += x / panel_cols;
      to.at[1] += k / unit;
      to.at[2] += x % panel_cols;
      STEPC_ASSIGN(const int64_t at, offset(op, to, 0, 0, unit == 2 ? k % 2 : 0));
      STEPC_TRY(write(op, to, at, lane));
    }
  return {};
}

// [extent][units * unit], k innermost.
Result<Lanes> Machine::mma_operand(const KOp& op, size_t ref, int64_t extent, int64_t units, bool is_panel) {
  STEPC_ASSIGN(const Place start, place(op, ref));
  const int64_t unit = unit_of(start.buffer->dtype);
  const auto rows = static_cast<size_t>(integer_attr(op, "rows", static_cast<int64_t>(start.at.size()) - 2));
  Lanes lanes;
  for (int64_t m = 0; m < extent; ++m)
    for (int64_t k = 0; k < units * unit; ++k) {
      Place from = start;
      if (is_panel) {
        from.at[1] += k / unit;
        from.at[2] += m;
        if (unit == 2) from.at[3] += k % 2;
      }
      STEPC_ASSIGN(const int64_t at, is_panel ? offset(op, from, 0, 0, 0) : offset(op, from, rows, m, k));
      STEPC_ASSIGN(const Lane lane, read(op, from, at));
      lanes.push_back(lane);
    }
  return lanes;
}

Status Machine::mma(const KOp& op) {
  STEPC_ASSIGN(const int64_t depth, index(op, op.indices[0]));
  const Shape& shape = kernel_.frag(op.results[0]).shape;
  const int64_t unit = unit_of(kernel_.buffer(op.refs[1].buffer).dtype);
  const int64_t units = (std::max<int64_t>(depth, 0) + unit - 1) / unit;
  const bool a_is_panel = std::get<std::string>(find_attr(op, "a")->value) == "panel";
  STEPC_ASSIGN(const Lanes a, mma_operand(op, 0, shape[0], units, a_is_panel));
  STEPC_ASSIGN(const Lanes b, mma_operand(op, 1, shape[1], units, true));
  Lanes acc = frag(op.frags[0]);
  const auto all_depth = static_cast<size_t>(units * unit);
  for (size_t i = 0; i < acc.size(); ++i) {
    const size_t m = i / static_cast<size_t>(shape[1]);
    const size_t n = i % static_cast<size_t>(shape[1]);
    for (size_t k = 0; k < all_depth; ++k) {
      const Lane& x = a[m * all_depth + k];
      const Lane& y = b[n * all_depth + k];
      if (static_cast<int64_t>(k) >= depth && x.value != 0)
        return error(op, "the element after an odd depth is {}", x.value);
      acc[i].value =
          double{std::fma(static_cast<float>(x.value), static_cast<float>(y.value), static_cast<float>(acc[i].value))};
      acc[i].undefined |= x.undefined || y.undefined;
    }
  }
  frag(op.results[0]) = std::move(acc);
  return {};
}

}  // namespace stepc::kernel
