// What each op asks of its operands and results.
#include <algorithm>

#include "ir/kernel/index_facts.h"
#include "ir/kernel/types.h"
#include "ir/kernel/verify_rules.h"
#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

int64_t rank_of(const Shape& shape) { return static_cast<int64_t>(shape.size()); }

Status check_count(const KOp& op, std::string_view what, size_t found, size_t low, size_t high) {
  if (found >= low && found <= high) return {};
  return op_error(op, "{} {}, expected {}", found, what, low);
}

Status check_operand_counts(const KOp& op) {
  size_t frags = 0, indices = 0, optional = 0, refs = 0;
  bool has_list = false;
  for (OperandKind kind : op_info(op.op).operands) {
    switch (kind) {
      case OperandKind::frag: ++frags; break;
      case OperandKind::list_frag: has_list = true; break;
      case OperandKind::index: ++indices; break;
      case OperandKind::opt_index: ++optional; break;
      case OperandKind::ref:
      case OperandKind::map:
      case OperandKind::bar: ++refs; break;
    }
  }
  STEPC_TRY(check_count(op, "fragment operands", op.frags.size(), frags, has_list ? SIZE_MAX : frags));
  STEPC_TRY(check_count(op, "index operands", op.indices.size(), indices, indices + optional));
  return check_count(op, "places", op.refs.size(), refs, refs);
}

Status check_results(const KOp& op) {
  switch (op_info(op.op).result) {
    case ResultKind::nothing: return check_count(op, "results", op.results.size(), 0, 0);
    case ResultKind::frag: return check_count(op, "results", op.results.size(), 1, 1);
    case ResultKind::frags:
    case ResultKind::carried: return {};
    case ResultKind::index:
      if (op.variable == VarId::none) return op_error(op, "no index as its result");
      return check_count(op, "results", op.results.size(), 0, 0);
  }
  STEPC_UNREACHABLE("result kind of {}", op_info(op.op).name);
}

Status check_attrs(const KOp& op) {
  const auto& known = op_info(op.op).attrs;
  for (const Attr& attr : op.attrs) {
    if (std::find(known.begin(), known.end(), attr.name) == known.end())
      return op_error(op, "no attribute '{}'", attr.name);
    const bool right[] = {std::holds_alternative<bool>(attr.value), std::holds_alternative<int64_t>(attr.value),
                          std::holds_alternative<double>(attr.value),
                          std::holds_alternative<std::vector<int64_t>>(attr.value),
                          std::holds_alternative<std::string>(attr.value)};
    if (!right[static_cast<size_t>(attr_kind(attr.name))])
      return op_error(op, "attribute '{}' is of the wrong kind", attr.name);
  }
  return {};
}

Status check_places(const Kernel& kernel, const KOp& op) {
  size_t next = 0;
  for (OperandKind kind : op_info(op.op).operands) {
    if (kind != OperandKind::ref && kind != OperandKind::map && kind != OperandKind::bar) continue;
    const Ref& ref = op.refs[next++];
    const Buffer& buffer = kernel.buffer(ref.buffer);
    const bool is_memory = buffer.space == Space::global || buffer.space == Space::shared;
    if (kind == OperandKind::ref && !is_memory)
      return op_error(op, "%{} is a {}, expected global or shared memory", buffer.name, space_name(buffer.space));
    if (kind == OperandKind::map && buffer.space != Space::map)
      return op_error(op, "%{} is {} memory, expected a map", buffer.name, space_name(buffer.space));
    if (kind == OperandKind::bar && buffer.space != Space::barrier)
      return op_error(op, "%{} is {} memory, expected a barrier", buffer.name, space_name(buffer.space));
    if (ref.at.size() != buffer.shape.size())
      return op_error(op, "%{} has {} dimensions, found {} indices", buffer.name, buffer.shape.size(), ref.at.size());
  }
  return {};
}

Status check_frag(const KOp& op, const Frag& frag) {
  constexpr int64_t kMaxLanes = int64_t{1} << 16;
  if (frag.shape.size() > 2)
    return op_error(op, "%{} is {}, expected at most 2 dimensions", frag.name, frag_type_text(frag));
  const auto lanes = checked_numel(frag.shape);
  if (lanes && *lanes > 0 && *lanes <= kMaxLanes) return {};
  return op_error(op, "%{} is {}, expected 1 to {} lanes", frag.name, frag_type_text(frag), kMaxLanes);
}

Status check_bodies(const Kernel& kernel, const KOp& op) {
  const size_t least = op.op == Op::loop || op.op == Op::branch || op.op == Op::once ? 1 : 0;
  const bool needs_else = op.op == Op::branch && !op.results.empty();
  STEPC_TRY(check_count(op, "bodies", op.bodies.size(), needs_else ? 2 : least, op.op == Op::branch ? 2 : least));
  if (op.op == Op::once && !op.results.empty()) return op_error(op, "{} results, expected none", op.results.size());
  if (op.op != Op::loop) return {};
  if (op.variable == VarId::none) return op_error(op, "no index");
  const std::vector<FragId>& carried = op.bodies[0].carried;
  if (carried.size() != op.frags.size() || carried.size() != op.results.size())
    return op_error(op, "{} carried fragments, {} initial ones and {} results, expected as many of each",
                    carried.size(), op.frags.size(), op.results.size());
  for (size_t i = 0; i < carried.size(); ++i) {
    const Frag& inside = kernel.frag(carried[i]);
    for (FragId other : {op.frags[i], op.results[i]}) {
      const Frag& frag = kernel.frag(other);
      if (frag.dtype != inside.dtype || frag.shape != inside.shape)
        return op_error(op, "%{} is {}, expected the {} of %{}", frag.name, frag_type_text(frag),
                        frag_type_text(inside), inside.name);
    }
  }
  return {};
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------

Status check_access(const Kernel& kernel, const KOp& op, const Frag& frag) {
  const Buffer& buffer = kernel.buffer(op.refs[0].buffer);
  if (frag.dtype != buffer.dtype)
    return op_error(op, "%{} is {}, expected the {} of %{}", frag.name, dtype_name(frag.dtype),
                    dtype_name(buffer.dtype), buffer.name);
  if (frag.shape.size() > buffer.shape.size() && op.op != Op::scatter)
    return op_error(op, "%{} is {}, of more dimensions than %{}{}", frag.name, frag_type_text(frag), buffer.name,
                    shape_text(buffer.shape));
  if (!op.indices.empty() && frag.shape.empty()) return op_error(op, "a count of a scalar");
  if (op.indices.size() > 1 && frag.shape.size() != 2)
    return op_error(op, "a height of %{}, which is {}", frag.name, frag_type_text(frag));
  const Attr* rows = find_attr(op, "rows");
  if (!rows) return {};
  const int64_t dimension = std::get<int64_t>(rows->value);
  if (frag.shape.size() != 2) return op_error(op, "rows of %{}, which is {}", frag.name, frag_type_text(frag));
  if (dimension < 0 || dimension + 1 >= rank_of(buffer.shape))
    return op_error(op, "rows along dimension {}, expected 0 to {}", dimension, rank_of(buffer.shape) - 2);
  return {};
}

Status check_store(const Kernel& kernel, const KOp& op) {
  STEPC_TRY(check_access(kernel, op, kernel.frag(op.frags[0])));
  const Buffer& buffer = kernel.buffer(op.refs[0].buffer);
  for (size_t i = 0; i < buffer.strides.size(); ++i)
    if (buffer.strides[i] == 0 && buffer.shape[i] > 1)
      return op_error(op, "%{} repeats along dimension {} (stride 0) and can only be read", buffer.name, i);
  return {};
}

// ---- fragments
// ---------------------------------------------------------------------------------------------------------

Status check_result(const Kernel& kernel, const KOp& op, Dtype dtype, const Shape& shape) {
  const Frag& result = kernel.frag(op.results[0]);
  if (result.dtype == dtype && result.shape == shape) return {};
  return op_error(op, "%{} is {}, expected {}{}", result.name, frag_type_text(result), dtype_name(dtype),
                  shape_text(shape));
}

Status check_pointwise(const Kernel& kernel, const KOp& op) {
  std::vector<Dtype> dtypes;
  const Frag& first = kernel.frag(op.frags[0]);
  for (FragId id : op.frags) {
    const Frag& frag = kernel.frag(id);
    dtypes.push_back(frag.dtype);
    if (frag.shape != first.shape)
      return op_error(op, "%{} is {}, expected the shape of %{}, {}", frag.name, frag_type_text(frag), first.name,
                      shape_text(first.shape));
  }
  const auto dtype = pointwise_dtype(op.op, dtypes, kernel.frag(op.results[0]).dtype);
  if (!dtype) return user_error_at(op.where, "{}", dtype.error().message);
  return check_result(kernel, op, *dtype, first.shape);
}

Status check_constant(const Kernel& kernel, const KOp& op) {
  const Attr* value = find_attr(op, "value");
  if (!value) return op_error(op, "no value");
  const double number = std::get<double>(value->value);
  const Frag& result = kernel.frag(op.results[0]);
  const bool fits_i32 = number >= INT32_MIN && number <= INT32_MAX && number == std::floor(number);
  if (result.dtype == Dtype::i32 && !fits_i32) return op_error(op, "value {}, expected an i32", number);
  if (result.dtype == Dtype::pred && number != 0 && number != 1)
    return op_error(op, "value {}, expected 0 or 1", number);
  return {};
}

Status check_lane(const Kernel& kernel, const KOp& op) {
  const Frag& result = kernel.frag(op.results[0]);
  if (result.shape.empty()) return op_error(op, "lanes of a scalar");
  const int64_t axis = integer_attr(op, "axis", rank_of(result.shape) - 1);
  if (axis < 0 || axis >= rank_of(result.shape))
    return op_error(op, "axis {}, expected 0 to {}", axis, rank_of(result.shape) - 1);
  return check_result(kernel, op, Dtype::i32, result.shape);
}

Status check_splat(const Kernel& kernel, const KOp& op) {
  const Frag& source = kernel.frag(op.frags[0]);
  const Frag& result = kernel.frag(op.results[0]);
  const int64_t axis = integer_attr(op, "axis", 1);
  if (axis != 0 && axis != 1) return op_error(op, "axis {}, expected 0 or 1", axis);
  const bool repeats = source.shape.size() == 1 && result.shape.size() == 2 &&
                       result.shape[static_cast<size_t>(axis)] == source.shape[0];
  if (!source.shape.empty() && !repeats)
    return op_error(op, "%{} is {}, expected a scalar or a {} of {}", source.name, frag_type_text(source),
                    axis == 1 ? "row" : "column", shape_text(result.shape));
  return check_result(kernel, op, source.dtype, result.shape);
}

Status check_permute(const Kernel& kernel, const KOp& op) {
  const Frag& source = kernel.frag(op.frags[0]);
  const Attr* lanes = find_attr(op, "lanes");
  if (!lanes) return op_error(op, "no lanes");
  if (source.shape.empty()) return op_error(op, "lanes of a scalar");
  const auto& list = std::get<std::vector<int64_t>>(lanes->value);
  for (int64_t lane : list)
    if (lane < 0 || lane >= source.shape.back())
      return op_error(op, "lane {}, expected 0 to {}", lane, source.shape.back() - 1);
  Shape shape = source.shape;
  shape.back() = static_cast<int64_t>(list.size());
  return check_result(kernel, op, source.dtype, shape);
}

Status check_random_bits(const Kernel& kernel, const KOp& op) {
  for (FragId id : op.frags) {
    const Frag& frag = kernel.frag(id);
    if (frag.dtype != Dtype::i32 || !frag.shape.empty())
      return op_error(op, "%{} is {}, expected i32[]", frag.name, frag_type_text(frag));
  }
  const Frag& result = kernel.frag(op.results[0]);
  if (result.shape.size() != 1)
    return op_error(op, "%{} is {}, expected one dimension", result.name, frag_type_text(result));
  return check_result(kernel, op, Dtype::i32, result.shape);
}

Status check_reduce(const Kernel& kernel, const KOp& op) {
  const Frag& source = kernel.frag(op.frags[0]);
  if (source.shape.empty()) return op_error(op, "%{} is a scalar", source.name);
  if (source.dtype != Dtype::f32 && source.dtype != Dtype::i32)
    return op_error(op, "%{} is {}, expected f32 or i32", source.name, dtype_name(source.dtype));
  return check_result(kernel, op, source.dtype, Shape(source.shape.begin(), source.shape.end() - 1));
}

Status check_gather(const Kernel& kernel, const KOp& op) {
  const Frag& offsets = kernel.frag(op.frags[0]);
  if (offsets.dtype != Dtype::i32)
    return op_error(op, "%{} is {}, expected i32", offsets.name, dtype_name(offsets.dtype));
  return check_result(kernel, op, kernel.buffer(op.refs[0].buffer).dtype, offsets.shape);
}

Status check_scatter(const Kernel& kernel, const KOp& op) {
  const Frag& frag = kernel.frag(op.frags[0]);
  const Frag& offsets = kernel.frag(op.frags[1]);
  STEPC_TRY(check_store(kernel, op));
  if (offsets.dtype == Dtype::i32 && offsets.shape == frag.shape) return {};
  return op_error(op, "%{} is {}, expected i32{}", offsets.name, frag_type_text(offsets), shape_text(frag.shape));
}

Status check_made_index(const Kernel& kernel, const KOp& op) {
  if (op.op == Op::load_index) {
    const Buffer& buffer = kernel.buffer(op.refs[0].buffer);
    if (buffer.dtype != Dtype::i32)
      return op_error(op, "%{} is {}, expected i32", buffer.name, dtype_name(buffer.dtype));
  } else {
    const Frag& frag = kernel.frag(op.frags[0]);
    if (frag.dtype != Dtype::i32 || !frag.shape.empty())
      return op_error(op, "%{} is {}, expected i32[]", frag.name, frag_type_text(frag));
  }
  const int64_t low = integer_attr(op, "low", INT32_MIN);
  const int64_t high = integer_attr(op, "high", INT32_MAX);
  if (low > high || low < INT32_MIN || high > INT32_MAX) return op_error(op, "no i32 from {} to {}", low, high);
  return {};
}

Status check_loop_step(const Kernel& kernel, const KOp& op) {
  const int64_t lowest = range_of(kernel, op.indices[2]).low;
  if (lowest > 0) return {};
  return op_error(op, "a step that may be {}, expected a positive number", lowest);
}

Status check_core_op(const Kernel& kernel, const KOp& op) {
  if (is_pointwise(op.op)) return check_pointwise(kernel, op);
  if (op.op == Op::load_index || op.op == Op::to_index) return check_made_index(kernel, op);
  if (op.op == Op::loop) return check_loop_step(kernel, op);
  if (op.op == Op::load) return check_access(kernel, op, kernel.frag(op.results[0]));
  if (op.op == Op::store) return check_store(kernel, op);
  if (op.op == Op::gather) return check_gather(kernel, op);
  if (op.op == Op::scatter) return check_scatter(kernel, op);
  if (op.op == Op::constant) return check_constant(kernel, op);
  if (op.op == Op::lane) return check_lane(kernel, op);
  if (op.op == Op::from_index) return check_result(kernel, op, Dtype::i32, {});
  if (op.op == Op::splat) return check_splat(kernel, op);
  if (op.op == Op::permute) return check_permute(kernel, op);
  if (op.op == Op::random_bits) return check_random_bits(kernel, op);
  if (op.op == Op::reduce_sum || op.op == Op::reduce_max || op.op == Op::reduce_min) return check_reduce(kernel, op);
  return {};  // index, branch, yield
}

}  // namespace

Status check_form(const Kernel& kernel, const KOp& op) {
  const OpInfo& info = op_info(op.op);
  const bool fits = info.level == Level::core || (info.level == Level::host && kernel.target == Target::host) ||
                    (info.level == Level::gpu && kernel.target != Target::host) ||
                    (info.level == Level::sm90 && kernel.target == Target::sm90);
  if (!fits) return op_error(op, "not an op of kernels for {}", target_name(kernel.target));
  STEPC_TRY(check_operand_counts(op));
  STEPC_TRY(check_results(op));
  STEPC_TRY(check_attrs(op));
  STEPC_TRY(check_places(kernel, op));
  for (FragId id : op.results) STEPC_TRY(check_frag(op, kernel.frag(id)));
  return check_bodies(kernel, op);
}

Status check_types(const Kernel& kernel, const KOp& op) {
  switch (op_info(op.op).level) {
    case Level::core: return check_core_op(kernel, op);
    case Level::host: return check_host_op(kernel, op);
    case Level::gpu: return is_pointwise(op.op) ? check_pointwise(kernel, op) : check_gpu_op(kernel, op);
    case Level::sm90: return check_sm90_op(kernel, op);
  }
  STEPC_UNREACHABLE("level of {}", op_info(op.op).name);
}

}  // namespace stepc::kernel
