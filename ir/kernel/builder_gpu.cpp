// Each function makes one op of its name.
#include "ir/kernel/builder_gpu.h"

namespace stepc::kernel::gpu {
namespace {

std::string major_name(Major major) { return major == Major::k ? "k" : "mn"; }

}  // namespace

void sync_task(KernelBuilder& builder) { builder.emit({.op = Op::sync_task}); }

void copy_async(KernelBuilder& builder, Ref global, Ref shared, CopyShape tile, Index height, Index width) {
  KOp op{.op = Op::copy_async,
         .refs = {std::move(global), std::move(shared)},
         .indices = builder.ids({height, width}),
         .attrs = {{"tile", std::vector<int64_t>{tile.rows, tile.cols}}}};
  if (tile.rows_dimension >= 0) op.attrs.push_back({"rows", tile.rows_dimension});
  builder.emit(std::move(op));
}

void copy_commit(KernelBuilder& builder) { builder.emit({.op = Op::copy_commit}); }

void copy_wait(KernelBuilder& builder, int64_t pending) {
  builder.emit({.op = Op::copy_wait, .attrs = {{"pending", pending}}});
}

Value mma_sync(KernelBuilder& builder, Value acc, Ref a, Major a_major, Ref b, Major b_major, int64_t k) {
  KOp op{.op = Op::mma_sync, .frags = {acc.id}, .refs = {std::move(a), std::move(b)}};
  op.attrs = {{"k", k}, {"a", major_name(a_major)}, {"b", major_name(b_major)}};
  return builder.emit(std::move(op), Dtype::f32, builder.shape(acc), "acc");
}

Value mma_sync_rs(KernelBuilder& builder, Value acc, Value a, Ref b, Major b_major, int64_t k) {
  KOp op{.op = Op::mma_sync_rs, .frags = {acc.id, a.id}, .refs = {std::move(b)}};
  op.attrs = {{"k", k}, {"b", major_name(b_major)}};
  return builder.emit(std::move(op), Dtype::f32, builder.shape(acc), "acc");
}

}  // namespace stepc::kernel::gpu
