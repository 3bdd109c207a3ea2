// Copies by the bulk engine: boxes of tensor maps, and contiguous bytes. All are started by one thread.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/emit/nvptx/hopper.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::KOp;
using kernel::Op;
using kernel::Ref;

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  const size_t at = text.find(what);
  STEPC_CHECK(at != std::string::npos, "no {} in '{}'", what, text);
  return text.replace(at, what.size(), by);
}

// The coordinates of a place as PTX wants them: the innermost first. `next` is the first operand's number.
std::string add_coordinates(GpuContext& context, const Ref& place, size_t next, Words& operands,
                            std::string& constraints) {
  std::string text;
  for (size_t i = place.at.size(); i-- > 0;) {
    operands.push_back(emit_expr32(context, place.at[i]));
    constraints += ",r";
    text += fmt::format("{}${}", text.empty() ? "" : ", ", next++);
  }
  return text;
}

llvm::Value* map_address(GpuContext& context, const Ref& place) {
  return context.builder.CreatePtrToInt(context.buffer_base[kernel::index_of(place.buffer)],
                                        context.builder.getInt64Ty());
}

llvm::Value* barrier_address(GpuContext& context, const Ref& ref) {
  auto& builder = context.builder;
  return builder.CreateAdd(context.buffer_base[kernel::index_of(ref.buffer)],
                           builder.CreateMul(emit_expr32(context, ref.at[0]), context.i32(8)));
}

void emit_tma_load(GpuContext& context, const KOp& op) {
  const Ref& place = op.refs[0];
  const bool multicast = flag_attr(op, "multicast");
  const Leaf leaf = multicast ? Leaf::tma_load_multicast : Leaf::tma_load;
  Words operands{emit_shared_address(context, op.refs[1]), map_address(context, place),
                 barrier_address(context, op.refs[2])};
  std::string constraints = "r,l,r";
  const std::string at = add_coordinates(context, place, operands.size(), operands, constraints);
  std::string text = replaced(std::string(leaf_info(leaf).text), "{rank}", std::to_string(place.at.size()));
  text = replaced(std::move(text), "{at}", "{" + at + "}");
  if (multicast) {
    text = replaced(std::move(text), "{tasks}", fmt::format("${}", operands.size()));
    operands.push_back(context.builder.getInt16(static_cast<uint16_t>((1u << context.kernel.cluster) - 1)));
    constraints += ",h";
  }
  emit_leaf_text(context, leaf, text, constraints + ",~{memory}", operands);
}

void emit_tma_store(GpuContext& context, const KOp& op) {
  const Ref& place = op.refs[1];
  Words operands{map_address(context, place), emit_shared_address(context, op.refs[0])};
  std::string constraints = "l,r";
  const std::string at = add_coordinates(context, place, operands.size(), operands, constraints);
  std::string text = replaced(std::string(leaf_info(Leaf::tma_store).text), "{rank}", std::to_string(place.at.size()));
  text = replaced(std::move(text), "{at}", "{" + at + "}");
  emit_leaf_text(context, Leaf::tma_store, text, constraints + ",~{memory}", operands);
}

llvm::Value* global_address(GpuContext& context, const Ref& ref) {
  return context.builder.CreatePtrToInt(emit_global_address(context, ref), context.builder.getInt64Ty());
}

}  // namespace

void emit_bulk_op(GpuContext& context, const KOp& op) {
  if (op.op == Op::tma_load) return emit_tma_load(context, op);
  if (op.op == Op::tma_store) return emit_tma_store(context, op);
  if (op.op == Op::bulk_load) {
    llvm::Value* bytes = emit_expr32(context, op.indices[0]);
    emit_leaf(context, Leaf::bulk_load,
              {emit_shared_address(context, op.refs[1]), global_address(context, op.refs[0]), bytes,
               barrier_address(context, op.refs[2])});
  } else if (op.op == Op::bulk_reduce) {
    llvm::Value* bytes = emit_expr32(context, op.indices[0]);
    emit_leaf(context, Leaf::bulk_reduce,
              {global_address(context, op.refs[1]), emit_shared_address(context, op.refs[0]), bytes});
  } else if (op.op == Op::bulk_commit) {
    emit_leaf(context, Leaf::bulk_commit, {});
  } else if (op.op == Op::bulk_wait) {
    const Leaf leaf = flag_attr(op, "written") ? Leaf::bulk_wait_written : Leaf::bulk_wait;
    emit_leaf(context, leaf, {context.i32(integer_attr(op, "pending", 0))});
  } else {
    STEPC_CHECK(op.op == Op::fence_async, "{} is no bulk copy", kernel::op_info(op.op).name);
    emit_leaf(context, Leaf::fence_async, {});
    // One lane may speak for its warp next.
    if (!context.in_once) context.builder.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {}, {context.i32(-1)});
  }
}

}  // namespace stepc::emit
