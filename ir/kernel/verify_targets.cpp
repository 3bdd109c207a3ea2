// What the ops of one target ask: host contractions, and Hopper's asynchronous copies and products.
#include <algorithm>

#include "ir/kernel/verify_rules.h"
#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

constexpr int64_t kPanelBytes = 128;  // of a row of a shared tile that wgmma or stmatrix touches

Status expect_type(const Kernel& kernel, const KOp& op, FragId id, Dtype dtype, size_t rank) {
  const Frag& frag = kernel.frag(id);
  if (frag.dtype == dtype && frag.shape.size() == rank) return {};
  return op_error(op, "%{} is {}, expected {} of {} dimensions", frag.name, frag_type_text(frag), dtype_name(dtype),
                  rank);
}

Status expect_space(const Kernel& kernel, const KOp& op, const Ref& ref, Space space) {
  const Buffer& buffer = kernel.buffer(ref.buffer);
  if (buffer.space == space) return {};
  return op_error(op, "%{} is {} memory, expected {}", buffer.name, space_name(buffer.space), space_name(space));
}

Status expect_range(const KOp& op, std::string_view name, int64_t low, int64_t high) {
  const Attr* attr = find_attr(op, name);
  if (!attr) return op_error(op, "no {}", name);
  const int64_t value = std::get<int64_t>(attr->value);
  if (value >= low && value <= high) return {};
  return op_error(op, "{} {}, expected {} to {}", name, value, low, high);
}

// ---- bulk copies -------------------------------------------------------------------------------------------------

Status check_box_copy(const Kernel& kernel, const KOp& op, const Ref& shared, const Ref& place) {
  STEPC_TRY(expect_space(kernel, op, shared, Space::shared));
  const Buffer& tile = kernel.buffer(shared.buffer);
  const Buffer& map = kernel.buffer(place.buffer);
  if (tile.dtype != map.dtype)
    return op_error(op, "%{} is {}, expected the {} of %{}", tile.name, dtype_name(tile.dtype), dtype_name(map.dtype),
                    map.name);
  if (tile.swizzle_bytes != map.swizzle_bytes)
    return op_error(op, "%{} has swizzle {}, expected the {} of %{}", tile.name, tile.swizzle_bytes, map.swizzle_bytes,
                    map.name);
  if (tile.shape.empty() || tile.shape.back() != map.box.back())
    return op_error(op, "rows of %{} are not those of the box {} of %{}", tile.name, shape_text(map.box), map.name);
  return {};
}

Status check_bulk_copy(const Kernel& kernel, const KOp& op, const Ref& global, const Ref& shared) {
  STEPC_TRY(expect_space(kernel, op, global, Space::global));
  STEPC_TRY(expect_space(kernel, op, shared, Space::shared));
  const Expr& bytes = kernel.expr(op.indices[0]);
  if (bytes.kind == ExprKind::constant && (bytes.value <= 0 || bytes.value % 16 != 0))
    return op_error(op, "{} bytes, expected a positive multiple of 16", bytes.value);
  const Buffer& from = kernel.buffer(global.buffer);
  const Buffer& to = kernel.buffer(shared.buffer);
  if (from.dtype == to.dtype) return {};
  return op_error(op, "%{} is {}, expected the {} of %{}", to.name, dtype_name(to.dtype), dtype_name(from.dtype),
                  from.name);
}

// ---- products ------------------------------------------------------------------------------------------------------

// A shared operand is [.., panel, row, 64 bf16]; extents are checked by the bounds checker.
Status check_product_tile(const Kernel& kernel, const KOp& op, const Ref& ref) {
  STEPC_TRY(expect_space(kernel, op, ref, Space::shared));
  const Buffer& tile = kernel.buffer(ref.buffer);
  const bool is_tile = tile.dtype == Dtype::bf16 && tile.swizzle_bytes == kPanelBytes && tile.shape.size() >= 2 &&
                       tile.shape.back() * dtype_bytes(tile.dtype) == kPanelBytes;
  if (is_tile) return {};
  return op_error(op, "%{} is {}{} with swizzle {}, expected bf16 rows of 64 with swizzle 128", tile.name,
                  dtype_name(tile.dtype), shape_text(tile.shape), tile.swizzle_bytes);
}

// What a portable product reads without tensor cores: f32, as it comes.
Status check_f32_tile(const Kernel& kernel, const KOp& op, const Ref& ref) {
  STEPC_TRY(expect_space(kernel, op, ref, Space::shared));
  const Buffer& tile = kernel.buffer(ref.buffer);
  if (tile.dtype == Dtype::f32 && tile.swizzle_bytes == 0 && tile.shape.size() >= 2) return {};
  return op_error(op, "%{} is {}{} with swizzle {}, expected f32 of 2 dimensions at least without one", tile.name,
                  dtype_name(tile.dtype), shape_text(tile.shape), tile.swizzle_bytes);
}

Status check_major(const KOp& op, std::string_view name) {
  const Attr* attr = find_attr(op, name);
  if (!attr) return op_error(op, "no {}", name);
  const std::string& major = std::get<std::string>(attr->value);
  if (major == "k" || major == "mn") return {};
  return op_error(op, "{} \"{}\", expected \"k\" or \"mn\"", name, major);
}

// The portable product takes any number of rows: how many its warps hold is a matter of layout.
Status check_product(const Kernel& kernel, const KOp& op) {
  const bool is_wgmma = op.op == Op::wgmma || op.op == Op::wgmma_rs;
  const Frag& acc = kernel.frag(op.frags[0]);
  STEPC_TRY(expect_type(kernel, op, op.frags[0], Dtype::f32, 2));
  const bool fits_rows = is_wgmma ? acc.shape[0] == 64 : acc.shape[0] % 16 == 0;
  if (!fits_rows || acc.shape[1] % 8 != 0 || acc.shape[1] < 8 || acc.shape[1] > 256)
    return op_error(op, "%{} is {}, expected {} rows and a multiple of 8 to 256 columns", acc.name, frag_type_text(acc),
                    is_wgmma ? "64" : "a multiple of 16");
  const Frag& result = kernel.frag(op.results[0]);
  if (result.dtype != acc.dtype || result.shape != acc.shape)
    return op_error(op, "%{} is {}, expected {}", result.name, frag_type_text(result), frag_type_text(acc));
  const bool is_f32 = op.op == Op::mma_sync && kernel.buffer(op.refs[0].buffer).dtype == Dtype::f32;
  const int64_t unit = is_f32 ? 4 : 16;
  STEPC_TRY(expect_range(op, "k", unit, 1024));
  const int64_t depth = integer_attr(op, "k", 0);
  if (depth % unit != 0) return op_error(op, "k {}, expected a multiple of {}", depth, unit);
  STEPC_TRY(check_major(op, "b"));
  for (const Ref& ref : op.refs)
    STEPC_TRY(is_f32 ? check_f32_tile(kernel, op, ref) : check_product_tile(kernel, op, ref));
  if (op.refs.size() == 2) return check_major(op, "a");
  STEPC_TRY(expect_type(kernel, op, op.frags[1], Dtype::bf16, 2));
  const Frag& a = kernel.frag(op.frags[1]);
  if (a.shape == Shape{acc.shape[0], depth}) return {};
  return op_error(op, "%{} is {}, expected bf16[{}, {}]", a.name, frag_type_text(a), acc.shape[0], depth);
}

Status check_wgmma_wait(const Kernel& kernel, const KOp& op) {
  STEPC_TRY(expect_range(op, "pending", 0, 7));
  if (op.results.size() != op.frags.size())
    return op_error(op, "{} results of {} accumulators", op.results.size(), op.frags.size());
  for (size_t i = 0; i < op.frags.size(); ++i) {
    const Frag& from = kernel.frag(op.frags[i]);
    const Frag& to = kernel.frag(op.results[i]);
    if (from.dtype != to.dtype || from.shape != to.shape)
      return op_error(op, "%{} is {}, expected {}", to.name, frag_type_text(to), frag_type_text(from));
  }
  return {};
}

Status check_stmatrix(const Kernel& kernel, const KOp& op) {
  STEPC_TRY(expect_type(kernel, op, op.frags[0], Dtype::bf16, 2));
  STEPC_TRY(check_product_tile(kernel, op, op.refs[0]));
  const Frag& frag = kernel.frag(op.frags[0]);
  if (frag.shape[0] % 8 == 0 && frag.shape[1] % 16 == 0) return {};
  return op_error(op, "%{} is {}, expected a multiple of 16 columns", frag.name, frag_type_text(frag));
}

Status check_halves(const Kernel& kernel, const KOp& op) {
  const Frag& whole = kernel.frag(op.frags[0]);
  if (whole.shape.size() != 2 || whole.shape[1] % 2 != 0)
    return op_error(op, "%{} is {}, expected 2 dimensions and an even number of columns", whole.name,
                    frag_type_text(whole));
  if (op.results.size() != 2) return op_error(op, "{} results, expected 2", op.results.size());
  for (FragId id : op.results) {
    const Frag& half = kernel.frag(id);
    if (half.dtype != whole.dtype || half.shape != Shape{whole.shape[0], whole.shape[1] / 2})
      return op_error(op, "%{} is {}, expected {}[{}, {}]", half.name, frag_type_text(half), dtype_name(whole.dtype),
                      whole.shape[0], whole.shape[1] / 2);
  }
  return {};
}

Status check_columns(const Kernel& kernel, const KOp& op) {
  const Frag& from = kernel.frag(op.frags[0]);
  const Frag& to = kernel.frag(op.results[0]);
  const int64_t first = integer_attr(op, "first", -1);
  const bool fits = from.shape.size() == 2 && to.shape.size() == 2 && to.shape[0] == from.shape[0] &&
                    to.dtype == from.dtype && first >= 0 && first % 8 == 0 && first + to.shape[1] <= from.shape[1];
  if (fits) return {};
  return op_error(op, "%{} is {}, expected columns of the {} of %{} from a multiple of 8 on, found {}", to.name,
                  frag_type_text(to), frag_type_text(from), from.name, first);
}

Status check_in_cluster(const Kernel& kernel, const KOp& op, std::string_view flag) {
  if (!flag_attr(op, flag) || kernel.cluster > 1) return {};
  return op_error(op, "{} in a kernel without clusters", flag);
}

Status check_copy_async(const Kernel& kernel, const KOp& op) {
  STEPC_TRY(expect_space(kernel, op, op.refs[0], Space::global));
  STEPC_TRY(expect_space(kernel, op, op.refs[1], Space::shared));
  const Buffer& from = kernel.buffer(op.refs[0].buffer);
  const Buffer& to = kernel.buffer(op.refs[1].buffer);
  const bool widens = from.dtype == Dtype::bf16 && to.dtype == Dtype::f32;
  if (from.dtype != to.dtype && !widens)
    return op_error(op, "%{} is {}, expected the {} of %{}", to.name, dtype_name(to.dtype), dtype_name(from.dtype),
                    from.name);
  const Attr* tile = find_attr(op, "tile");
  if (!tile) return op_error(op, "no tile");
  const auto& extents = std::get<std::vector<int64_t>>(tile->value);
  if (extents.size() != 2 || extents[0] < 1 || extents[1] < 1)
    return op_error(op, "tile {}, expected two positive extents", shape_text(extents));
  if (from.shape.size() < 2 || to.shape.size() < 2)
    return op_error(op, "%{}{}, expected 2 dimensions at least", from.shape.size() < 2 ? from.name : to.name,
                    shape_text(from.shape.size() < 2 ? from.shape : to.shape));
  const int64_t dimension = integer_attr(op, "rows", static_cast<int64_t>(from.shape.size()) - 2);
  if (dimension >= 0 && dimension + 1 < static_cast<int64_t>(from.shape.size())) return {};
  return op_error(op, "rows along dimension {}, expected 0 to {}", dimension, from.shape.size() - 2);
}

}  // namespace

Status check_gpu_op(const Kernel& kernel, const KOp& op) {
  if (op.op == Op::sync || op.op == Op::sync_arrive) return expect_range(op, "warps", 1, 32);
  if (op.op == Op::copy_async) return check_copy_async(kernel, op);
  if (op.op == Op::copy_wait) return expect_range(op, "pending", 0, 7);
  if (op.op == Op::mma_sync || op.op == Op::mma_sync_rs) return check_product(kernel, op);
  if (op.op == Op::stmatrix) return check_stmatrix(kernel, op);
  if (op.op == Op::halves) return check_halves(kernel, op);
  if (op.op == Op::columns) return check_columns(kernel, op);
  return {};  // sync_task, once, copy_commit
}

Status check_sm90_op(const Kernel& kernel, const KOp& op) {
  if (op.op == Op::arrive) return check_in_cluster(kernel, op, "cluster");
  if (op.op == Op::tma_load) {
    STEPC_TRY(check_in_cluster(kernel, op, "multicast"));
    return check_box_copy(kernel, op, op.refs[1], op.refs[0]);
  }
  if (op.op == Op::tma_store) return check_box_copy(kernel, op, op.refs[0], op.refs[1]);
  if (op.op == Op::bulk_load) return check_bulk_copy(kernel, op, op.refs[0], op.refs[1]);
  if (op.op == Op::bulk_reduce) return check_bulk_copy(kernel, op, op.refs[1], op.refs[0]);
  if (op.op == Op::bulk_wait) return expect_range(op, "pending", 0, 7);
  if (op.op == Op::wgmma || op.op == Op::wgmma_rs) return check_product(kernel, op);
  if (op.op == Op::wgmma_wait) return check_wgmma_wait(kernel, op);
  return {};  // wait, expect, bulk_commit, fence_async
}

}  // namespace stepc::kernel
