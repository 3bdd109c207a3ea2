// The builder's ops on memory and fragments; what an op requires beyond its operands' count is checked by
// the verifier when the kernel is finished.
#include <algorithm>

#include "ir/kernel/builder.h"
#include "ir/kernel/types.h"
#include "ir/support/check.h"

namespace stepc::kernel {

// ---- memory ------------------------------------------------------------------------------------------------

Value KernelBuilder::load(BufferId buffer, std::vector<Index> at, Shape shape) {
  KOp op{.op = Op::load, .refs = {ref(buffer, std::move(at))}};
  return emit_frag(std::move(op), kernel_.buffer(buffer).dtype, std::move(shape), kernel_.buffer(buffer).name + "_v");
}

Value KernelBuilder::load_first(BufferId buffer, std::vector<Index> at, Shape shape, Index count) {
  STEPC_CHECK(!shape.empty(), "load_first of a scalar");
  if (count.is_constant() && count.constant() == shape.back()) return load(buffer, std::move(at), std::move(shape));
  KOp op{.op = Op::load, .refs = {ref(buffer, std::move(at))}, .indices = ids({count})};
  return emit_frag(std::move(op), kernel_.buffer(buffer).dtype, std::move(shape), kernel_.buffer(buffer).name + "_v");
}

void KernelBuilder::store(Value value, BufferId buffer, std::vector<Index> at) {
  append({.op = Op::store, .frags = {value.id}, .refs = {ref(buffer, std::move(at))}});
}

void KernelBuilder::store_first(Value value, BufferId buffer, std::vector<Index> at, Index count) {
  STEPC_CHECK(!shape(value).empty(), "store_first of a scalar");
  if (count.is_constant() && count.constant() == shape(value).back()) return store(value, buffer, std::move(at));
  append({.op = Op::store, .frags = {value.id}, .refs = {ref(buffer, std::move(at))}, .indices = ids({count})});
}

Value KernelBuilder::load_tile(BufferId buffer, std::vector<Index> at, Shape shape, int64_t rows, Index count,
                               Index height) {
  KOp op{.op = Op::load, .refs = {ref(buffer, std::move(at))}, .indices = ids({count, height})};
  op.attrs = {{"rows", rows}};
  return emit_frag(std::move(op), kernel_.buffer(buffer).dtype, std::move(shape), kernel_.buffer(buffer).name + "_v");
}

void KernelBuilder::store_tile(Value value, BufferId buffer, std::vector<Index> at, int64_t rows, Index count,
                               Index height) {
  KOp op{.op = Op::store, .frags = {value.id}, .refs = {ref(buffer, std::move(at))}, .indices = ids({count, height})};
  op.attrs = {{"rows", rows}};
  append(std::move(op));
}

Value KernelBuilder::emit(KOp op, Dtype dtype, Shape shape, std::string_view hint) {
  return emit_frag(std::move(op), dtype, std::move(shape), hint);
}

std::vector<Value> KernelBuilder::emit_all(KOp op, const std::vector<Value>& like, std::string_view suffix) {
  return finish_results(std::move(op), like, suffix);
}

std::vector<Value> KernelBuilder::emit_each(KOp op, Dtype dtype, const Shape& shape,
                                            const std::vector<std::string>& names) {
  std::vector<Value> results;
  for (const std::string& name : names) {
    op.results.push_back(add_frag(unique_name(name), dtype, shape));
    results.push_back({op.results.back()});
  }
  append(std::move(op));
  return results;
}

Value KernelBuilder::gather(BufferId buffer, std::vector<Index> at, Value offsets) {
  KOp op{.op = Op::gather, .frags = {offsets.id}, .refs = {ref(buffer, std::move(at))}};
  return emit_frag(std::move(op), kernel_.buffer(buffer).dtype, shape(offsets), kernel_.buffer(buffer).name + "_v");
}

void KernelBuilder::scatter(Value tile, BufferId buffer, std::vector<Index> at, Value offsets, Index count,
                            Index height) {
  append({.op = Op::scatter,
          .frags = {tile.id, offsets.id},
          .refs = {ref(buffer, std::move(at))},
          .indices = ids({count, height})});
}

Index KernelBuilder::load_index(BufferId buffer, std::vector<Index> at, Range range) {
  range.low = std::max<int64_t>(range.low, INT32_MIN);
  range.high = std::min<int64_t>(range.high, INT32_MAX);
  KOp op{.op = Op::load_index, .refs = {ref(buffer, std::move(at))}};
  op.attrs = {{"low", range.low}, {"high", range.high}};
  const std::string unique = unique_name(kernel_.buffer(buffer).name + "_i");
  all_names_.insert(unique);
  open_.back().names.insert(unique);
  op.variable = add_variable({unique, range, 1});
  const VarId variable = op.variable;
  append(std::move(op));
  return index_of_variable(variable);
}

Index KernelBuilder::to_index(Value scalar, Range range, std::string_view hint) {
  KOp op{.op = Op::to_index, .frags = {scalar.id}};
  op.attrs = {{"low", range.low}, {"high", range.high}};
  const std::string unique = unique_name(std::string(hint));
  all_names_.insert(unique);
  open_.back().names.insert(unique);
  op.variable = add_variable({unique, range, 1});
  const VarId variable = op.variable;
  append(std::move(op));
  return index_of_variable(variable);
}

// ---- fragments -----------------------------------------------------------------------------------------------

Value KernelBuilder::constant(double value, Dtype dtype, Shape shape) {
  return emit_frag({.op = Op::constant, .attrs = {{"value", value}}}, dtype, std::move(shape), "c");
}

Value KernelBuilder::lane(Shape shape) { return emit_frag({.op = Op::lane}, Dtype::i32, std::move(shape), "lane"); }

Value KernelBuilder::lane(Shape shape, int64_t axis) {
  if (axis + 1 == static_cast<int64_t>(shape.size())) return lane(std::move(shape));
  return emit_frag({.op = Op::lane, .attrs = {{"axis", axis}}}, Dtype::i32, std::move(shape), "lane");
}

Value KernelBuilder::from_index(Index value) {
  return emit_frag({.op = Op::from_index, .indices = ids({value})}, Dtype::i32, {}, "i");
}

Value KernelBuilder::splat(Value x, Shape wide) {
  if (shape(x) == wide) return x;
  return emit_frag({.op = Op::splat, .frags = {x.id}}, dtype(x), std::move(wide), kernel_.frag(x.id).name + "_wide");
}

Value KernelBuilder::splat_column(Value x, Shape wide) {
  KOp op{.op = Op::splat, .frags = {x.id}, .attrs = {{"axis", int64_t{0}}}};
  return emit_frag(std::move(op), dtype(x), std::move(wide), kernel_.frag(x.id).name + "_wide");
}

Value KernelBuilder::permute(Value x, std::vector<int64_t> lanes) {
  STEPC_CHECK(!shape(x).empty(), "permute of a scalar");
  Shape result = shape(x);
  result.back() = static_cast<int64_t>(lanes.size());
  KOp op{.op = Op::permute, .frags = {x.id}, .attrs = {{"lanes", std::move(lanes)}}};
  return emit_frag(std::move(op), dtype(x), std::move(result), "permuted");
}

Value KernelBuilder::cast(Value x, Dtype wanted) {
  if (dtype(x) == wanted) return x;
  const auto result = pointwise_dtype(Op::cast, {dtype(x)}, wanted);
  STEPC_CHECK(result.has_value(), "{}", result.error().text());
  return emit_frag({.op = Op::cast, .frags = {x.id}}, wanted, shape(x), dtype_name(wanted));
}

Value KernelBuilder::pointwise(Op op, std::vector<Value> operands) {
  STEPC_CHECK(is_pointwise(op) && op != Op::cast, "{} is no pointwise op of one result type", op_info(op).name);
  STEPC_CHECK(operands.size() == op_info(op).operands.size(), "{} of {} operands", op_info(op).name, operands.size());
  Shape wide;
  for (Value value : operands)
    if (shape(value).size() > wide.size()) wide = shape(value);
  KOp node{.op = op};
  std::vector<Dtype> dtypes;
  for (Value& value : operands) {
    if (shape(value).empty()) value = splat(value, wide);
    STEPC_CHECK(shape(value) == wide, "{} of {} and {}", op_info(op).name, shape_text(shape(value)), shape_text(wide));
    node.frags.push_back(value.id);
    dtypes.push_back(dtype(value));
  }
  const auto result = pointwise_dtype(op, dtypes, Dtype::f32);
  STEPC_CHECK(result.has_value(), "{}", result.error().text());
  return emit_frag(std::move(node), *result, std::move(wide), op_info(op).name);
}

Value KernelBuilder::random_bits(Value seed, Value stream, Value step, Index first, Shape shape) {
  KOp op{.op = Op::random_bits, .frags = {seed.id, stream.id, step.id}, .indices = ids({first})};
  return emit_frag(std::move(op), Dtype::i32, std::move(shape), "bits");
}

Value KernelBuilder::reduce(Op op, Value x) {
  STEPC_CHECK(op == Op::reduce_sum || op == Op::reduce_max || op == Op::reduce_min, "{} is no reduction",
              op_info(op).name);
  STEPC_CHECK(!shape(x).empty(), "{} of a scalar", op_info(op).name);
  Shape result = shape(x);
  result.pop_back();
  return emit_frag({.op = op, .frags = {x.id}}, dtype(x), std::move(result), op_info(op).name.substr(7));
}

// ---- contraction -----------------------------------------------------------------------------------------------

void KernelBuilder::pack(Ref source, Ref target, Index depth, Index width, bool transposed, int64_t rows) {
  KOp op{.op = Op::pack, .refs = {std::move(source), std::move(target)}, .indices = ids({depth, width})};
  op.attrs = {{"transposed", transposed}};
  if (rows >= 0) op.attrs.push_back({"rows", rows});
  append(std::move(op));
}

Value KernelBuilder::mma(Value acc, Ref a, Ref b, Index depth, std::string a_layout, int64_t rows) {
  KOp op{.op = Op::mma, .frags = {acc.id}, .refs = {std::move(a), std::move(b)}, .indices = ids({depth})};
  op.attrs = {{"a", std::move(a_layout)}};
  if (rows >= 0) op.attrs.push_back({"rows", rows});
  return emit_frag(std::move(op), Dtype::f32, shape(acc), "acc");
}

void KernelBuilder::prefetch(Ref place, std::vector<int64_t> tile, bool write, int64_t rows) {
  KOp op{.op = Op::prefetch, .refs = {std::move(place)}, .attrs = {{"tile", std::move(tile)}}};
  if (rows >= 0) op.attrs.push_back({"rows", rows});
  if (write) op.attrs.push_back({"write", true});
  append(std::move(op));
}

}  // namespace stepc::kernel
