// Loads and stores. Every access is tagged with its buffer's alias scope: two buffers of a kernel never
// overlap, except that a result may replace an operand that is declared so (docs/kernel_abi.md).
#include "compiler/emit/host_context.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::index_of;

llvm::Type* with_lanes(llvm::Type* type, int64_t lanes) {
  return llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes));
}

// The address of row `row` of a rank-2 fragment.
llvm::Value* row_address(HostContext& context, const kernel::KOp& op, llvm::Value* base, int64_t row) {
  if (row == 0) return base;
  const kernel::Buffer& buffer = context.kernel.buffer(op.refs[0].buffer);
  const auto* attr = kernel::find_attr(op, "rows");
  const size_t dimension = attr ? static_cast<size_t>(std::get<int64_t>(attr->value)) : buffer.shape.size() - 2;
  const int64_t elements = row * buffer_strides(buffer)[dimension];
  return context.builder.CreateGEP(memory_type(context, buffer.dtype), base, context.i64(elements));
}

llvm::Value* load_row(HostContext& context, const kernel::KOp& op, const kernel::Frag& frag, llvm::Value* address,
                      llvm::Value* mask) {
  auto& builder = context.builder;
  llvm::Type* element = memory_type(context, frag.dtype);
  llvm::Type* type = frag.shape.empty() ? element : with_lanes(element, frag.shape.back());
  const llvm::Align align(static_cast<uint64_t>(dtype_bytes(frag.dtype)));
  llvm::Instruction* load = mask ? static_cast<llvm::Instruction*>(builder.CreateMaskedLoad(
                                       type, address, align, mask, llvm::Constant::getNullValue(type)))
                                 : builder.CreateAlignedLoad(type, address, align);
  tag_access(context, load, op.refs[0].buffer);
  if (frag.dtype != Dtype::pred) return load;
  return builder.CreateICmpNE(load, llvm::Constant::getNullValue(type));
}

// The lanes that row `row` reads or writes; null: all.
llvm::Value* access_mask(HostContext& context, const kernel::KOp& op, const kernel::Frag& frag, int64_t row) {
  if (op.indices.empty()) return nullptr;
  llvm::Value* mask = count_mask(context, emit_expr(context, op.indices[0]), frag.shape.back());
  if (op.indices.size() < 2) return mask;
  auto& builder = context.builder;
  llvm::Value* inside = builder.CreateICmpSLT(context.i64(row), emit_expr(context, op.indices[1]));
  return builder.CreateSelect(inside, mask, llvm::Constant::getNullValue(mask->getType()));
}

// Of a row of lanes at distances `by` from `base`.
llvm::Value* lane_addresses(HostContext& context, const kernel::Frag& frag, llvm::Value* base, llvm::Value* by) {
  auto& builder = context.builder;
  llvm::Value* wide = builder.CreateSExt(by, with_lanes(builder.getInt64Ty(), frag.shape.back()));
  return builder.CreateGEP(memory_type(context, frag.dtype), base, wide);
}

}  // namespace

llvm::Value* count_mask(HostContext& context, llvm::Value* count, int64_t lanes) {
  auto& builder = context.builder;
  llvm::SmallVector<llvm::Constant*, 64> numbers;
  for (int64_t i = 0; i < lanes; ++i) numbers.push_back(builder.getInt32(static_cast<uint32_t>(i)));
  llvm::Value* limit = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, count, context.i64(lanes));
  llvm::Value* narrow = builder.CreateTrunc(limit, builder.getInt32Ty());
  llvm::Value* wide = builder.CreateVectorSplat(static_cast<unsigned>(lanes), narrow);
  return builder.CreateICmpSLT(llvm::ConstantVector::get(numbers), wide);
}

llvm::Type* lane_type(HostContext& context, Dtype dtype) {
  auto& builder = context.builder;
  switch (dtype) {
    case Dtype::f32: return builder.getFloatTy();
    case Dtype::bf16: return builder.getInt16Ty();
    case Dtype::i32: return builder.getInt32Ty();
    case Dtype::pred: return builder.getInt1Ty();
  }
  STEPC_UNREACHABLE("dtype {}", static_cast<int>(dtype));
}

llvm::Type* memory_type(HostContext& context, Dtype dtype) {
  return dtype == Dtype::pred ? context.builder.getInt8Ty() : lane_type(context, dtype);
}

std::vector<int64_t> buffer_strides(const kernel::Buffer& buffer) {
  return buffer.strides.empty() ? row_major_strides(buffer.shape) : buffer.strides;
}

void tag_access(HostContext& context, llvm::Instruction* access, kernel::BufferId buffer) {
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, context.alias_scope[index_of(buffer)]);
  access->setMetadata(llvm::LLVMContext::MD_noalias, context.noalias_scopes[index_of(buffer)]);
}

llvm::Value* emit_address(HostContext& context, const kernel::Ref& ref) {
  const kernel::Buffer& buffer = context.kernel.buffer(ref.buffer);
  const auto strides = buffer_strides(buffer);
  auto& builder = context.builder;
  llvm::Value* offset = context.i64(0);
  for (size_t i = 0; i < ref.at.size(); ++i) {
    llvm::Value* index = emit_expr(context, ref.at[i]);
    llvm::Value* step = strides[i] == 1 ? index : builder.CreateNSWMul(index, context.i64(strides[i]));
    offset = i == 0 ? step : builder.CreateNSWAdd(offset, step);
  }
  return builder.CreateGEP(memory_type(context, buffer.dtype), context.buffer_base[index_of(ref.buffer)], offset);
}

void emit_load(HostContext& context, const kernel::KOp& op) {
  const kernel::Frag& frag = context.kernel.frag(op.results[0]);
  llvm::Value* base = emit_address(context, op.refs[0]);
  Rows& rows = context.frags[index_of(op.results[0])];
  rows.clear();
  const int64_t count = frag.shape.size() == 2 ? frag.shape[0] : 1;
  for (int64_t row = 0; row < count; ++row)
    rows.push_back(
        load_row(context, op, frag, row_address(context, op, base, row), access_mask(context, op, frag, row)));
}

void emit_store(HostContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  const kernel::Frag& frag = context.kernel.frag(op.frags[0]);
  llvm::Value* base = emit_address(context, op.refs[0]);
  const llvm::Align align(static_cast<uint64_t>(dtype_bytes(frag.dtype)));
  const Rows& rows = context.rows(op.frags[0]);
  for (size_t row = 0; row < rows.size(); ++row) {
    llvm::Value* value = rows[row];
    if (frag.dtype == Dtype::pred) {
      llvm::Type* bytes = builder.getInt8Ty();
      value = builder.CreateZExt(value, frag.shape.empty() ? bytes : with_lanes(bytes, frag.shape.back()));
    }
    llvm::Value* address = row_address(context, op, base, static_cast<int64_t>(row));
    llvm::Value* mask = access_mask(context, op, frag, static_cast<int64_t>(row));
    llvm::Instruction* store =
        mask ? static_cast<llvm::Instruction*>(builder.CreateMaskedStore(value, address, align, mask))
             : builder.CreateAlignedStore(value, address, align);
    tag_access(context, store, op.refs[0].buffer);
  }
}

void emit_gather(HostContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  const kernel::Frag& frag = context.kernel.frag(op.results[0]);
  STEPC_CHECK(!frag.shape.empty(), "gather makes no scalar");
  llvm::Type* type = with_lanes(memory_type(context, frag.dtype), frag.shape.back());
  llvm::Value* base = emit_address(context, op.refs[0]);
  Rows& rows = context.frags[index_of(op.results[0])];
  rows.clear();
  for (llvm::Value* by : context.rows(op.frags[0])) {
    llvm::CallInst* load = builder.CreateMaskedGather(type, lane_addresses(context, frag, base, by),
                                                      llvm::Align(static_cast<uint64_t>(dtype_bytes(frag.dtype))));
    tag_access(context, load, op.refs[0].buffer);
    llvm::Value* value = load;
    if (frag.dtype == Dtype::pred) value = builder.CreateICmpNE(load, llvm::Constant::getNullValue(type));
    rows.push_back(value);
  }
}

void emit_scatter(HostContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  const kernel::Frag& frag = context.kernel.frag(op.frags[0]);
  STEPC_CHECK(!frag.shape.empty(), "scatter of a scalar");
  llvm::Value* base = emit_address(context, op.refs[0]);
  const Rows& rows = context.rows(op.frags[0]);
  for (size_t row = 0; row < rows.size(); ++row) {
    llvm::Value* value = rows[row];
    if (frag.dtype == Dtype::pred)
      value = builder.CreateZExt(value, with_lanes(builder.getInt8Ty(), frag.shape.back()));
    llvm::Value* addresses = lane_addresses(context, frag, base, context.rows(op.frags[1])[row]);
    llvm::Value* mask = access_mask(context, op, frag, static_cast<int64_t>(row));
    llvm::CallInst* store = builder.CreateMaskedScatter(
        value, addresses, llvm::Align(static_cast<uint64_t>(dtype_bytes(frag.dtype))), mask);
    tag_access(context, store, op.refs[0].buffer);
  }
}

void emit_load_index(HostContext& context, const kernel::KOp& op) {
  auto& builder = context.builder;
  auto* load = builder.CreateAlignedLoad(builder.getInt32Ty(), emit_address(context, op.refs[0]), llvm::Align(4));
  tag_access(context, load, op.refs[0].buffer);
  context.variables[index_of(op.variable)] = builder.CreateSExt(load, builder.getInt64Ty());
}

}  // namespace stepc::emit
