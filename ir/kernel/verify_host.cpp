// What the host's contractions ask: panels of the right form, sources and operands of matching types.
#include <algorithm>

#include "ir/kernel/verify_rules.h"

namespace stepc::kernel {
namespace {

// A buffer that mma reads in panels: [panels][units][W] of f32 or [panels][units][W][2] of bf16.
Status check_panels(const Kernel& kernel, const KOp& op, const Ref& ref) {
  const Buffer& panels = kernel.buffer(ref.buffer);
  const bool is_f32 = panels.dtype == Dtype::f32 && panels.shape.size() == 3;
  const bool is_bf16 = panels.dtype == Dtype::bf16 && panels.shape.size() == 4 && panels.shape[3] == 2;
  if ((is_f32 || is_bf16) && panels.strides.empty()) return {};
  return op_error(op, "%{} is {}{}, expected panels: f32[panels, units, columns] or bf16[panels, units, columns, 2]",
                  panels.name, dtype_name(panels.dtype), shape_text(panels.shape));
}

Status check_rows(const Kernel& kernel, const KOp& op) {
  const auto rank = static_cast<int64_t>(kernel.buffer(op.refs[0].buffer).shape.size());
  if (rank < 2)
    return op_error(op, "%{} has {} dimensions, expected 2 or more", kernel.buffer(op.refs[0].buffer).name, rank);
  const int64_t rows = integer_attr(op, "rows", rank - 2);
  if (rows >= 0 && rows + 1 < rank) return {};
  return op_error(op, "rows along dimension {}, expected 0 to {}", rows, rank - 2);
}

Status check_pack(const Kernel& kernel, const KOp& op) {
  const Buffer& source = kernel.buffer(op.refs[0].buffer);
  const Buffer& target = kernel.buffer(op.refs[1].buffer);
  STEPC_TRY(check_rows(kernel, op));
  STEPC_TRY(check_panels(kernel, op, op.refs[1]));
  if (target.space != Space::shared) return op_error(op, "%{} is global memory, expected shared", target.name);
  if (source.dtype == Dtype::f32 || source.dtype == Dtype::bf16) return {};
  return op_error(op, "%{} is {}, expected f32 or bf16", source.name, dtype_name(source.dtype));
}

Status check_mma(const Kernel& kernel, const KOp& op) {
  const Frag& acc = kernel.frag(op.frags[0]);
  const Frag& result = kernel.frag(op.results[0]);
  if (acc.dtype != Dtype::f32 || acc.shape.size() != 2)
    return op_error(op, "%{} is {}, expected f32 of 2 dimensions", acc.name, frag_type_text(acc));
  if (result.dtype != acc.dtype || result.shape != acc.shape)
    return op_error(op, "%{} is {}, expected {}", result.name, frag_type_text(result), frag_type_text(acc));
  const Attr* layout = find_attr(op, "a");
  if (!layout) return op_error(op, "no a");
  const std::string& a_layout = std::get<std::string>(layout->value);
  if (a_layout != "rows" && a_layout != "panel")
    return op_error(op, "a \"{}\", expected \"rows\" or \"panel\"", a_layout);
  STEPC_TRY(check_panels(kernel, op, op.refs[1]));
  STEPC_TRY(a_layout == "panel" ? check_panels(kernel, op, op.refs[0]) : check_rows(kernel, op));
  const Buffer& a = kernel.buffer(op.refs[0].buffer);
  const Buffer& b = kernel.buffer(op.refs[1].buffer);
  if (a.dtype == b.dtype) return {};
  return op_error(op, "%{} is {}, expected the {} of %{}", a.name, dtype_name(a.dtype), dtype_name(b.dtype), b.name);
}

Status check_prefetch(const Kernel& kernel, const KOp& op) {
  STEPC_TRY(check_rows(kernel, op));
  const Attr* tile = find_attr(op, "tile");
  if (!tile) return op_error(op, "no tile");
  const auto& extents = std::get<std::vector<int64_t>>(tile->value);
  if (extents.size() == 2 && extents[0] >= 0 && extents[1] >= 0) return {};
  return op_error(op, "tile {}, expected rows and columns", shape_text(extents));
}

}  // namespace

Status check_host_op(const Kernel& kernel, const KOp& op) {
  if (op.op == Op::pack) return check_pack(kernel, op);
  if (op.op == Op::mma) return check_mma(kernel, op);
  return check_prefetch(kernel, op);
}

}  // namespace stepc::kernel
