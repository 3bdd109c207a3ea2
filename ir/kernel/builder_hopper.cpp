// Each function makes one op of its name.
#include "ir/kernel/builder_hopper.h"

namespace stepc::kernel::hopper {
namespace {

std::string major_name(Major major) { return major == Major::k ? "k" : "mn"; }

}  // namespace

void wait(KernelBuilder& builder, Ref barrier, Index parity) {
  builder.emit({.op = Op::wait, .refs = {std::move(barrier)}, .indices = builder.ids({parity})});
}

void arrive(KernelBuilder& builder, Ref barrier) { builder.emit({.op = Op::arrive, .refs = {std::move(barrier)}}); }

void arrive_cluster(KernelBuilder& builder, Ref barrier) {
  builder.emit({.op = Op::arrive, .refs = {std::move(barrier)}, .attrs = {{"cluster", true}}});
}

void expect(KernelBuilder& builder, Ref barrier, Index bytes) {
  builder.emit({.op = Op::expect, .refs = {std::move(barrier)}, .indices = builder.ids({bytes})});
}

void sync(KernelBuilder& builder, Index id, int64_t warps) {
  builder.emit({.op = Op::sync, .indices = builder.ids({id}), .attrs = {{"warps", warps}}});
}

void sync_arrive(KernelBuilder& builder, Index id, int64_t warps) {
  builder.emit({.op = Op::sync_arrive, .indices = builder.ids({id}), .attrs = {{"warps", warps}}});
}

void tma_load(KernelBuilder& builder, Ref map, Ref shared, Ref barrier, bool multicast) {
  KOp op{.op = Op::tma_load, .refs = {std::move(map), std::move(shared), std::move(barrier)}};
  if (multicast) op.attrs = {{"multicast", true}};
  builder.emit(std::move(op));
}

void tma_store(KernelBuilder& builder, Ref shared, Ref map) {
  builder.emit({.op = Op::tma_store, .refs = {std::move(shared), std::move(map)}});
}

void bulk_load(KernelBuilder& builder, Ref global, Ref shared, Ref barrier, Index bytes) {
  builder.emit({.op = Op::bulk_load,
                .refs = {std::move(global), std::move(shared), std::move(barrier)},
                .indices = builder.ids({bytes})});
}

void bulk_reduce(KernelBuilder& builder, Ref shared, Ref global, Index bytes) {
  builder.emit(
      {.op = Op::bulk_reduce, .refs = {std::move(shared), std::move(global)}, .indices = builder.ids({bytes})});
}

void bulk_commit(KernelBuilder& builder) { builder.emit({.op = Op::bulk_commit}); }

void bulk_wait(KernelBuilder& builder, int64_t pending) {
  builder.emit({.op = Op::bulk_wait, .attrs = {{"pending", pending}}});
}

void bulk_wait_written(KernelBuilder& builder, int64_t pending) {
  builder.emit({.op = Op::bulk_wait, .attrs = {{"pending", pending}, {"written", true}}});
}

void fence_async(KernelBuilder& builder) { builder.emit({.op = Op::fence_async}); }

void progress_wait(KernelBuilder& builder, Index count) {
  builder.emit({.op = Op::progress_wait, .indices = builder.ids({count})});
}

void progress_add(KernelBuilder& builder) { builder.emit({.op = Op::progress_add}); }

void progress_end(KernelBuilder& builder) { builder.emit({.op = Op::progress_end}); }

void stmatrix(KernelBuilder& builder, Value tile, Ref shared, bool transposed) {
  builder.emit(
      {.op = Op::stmatrix, .frags = {tile.id}, .refs = {std::move(shared)}, .attrs = {{"transposed", transposed}}});
}

std::vector<Value> halves(KernelBuilder& builder, Value tile) {
  Shape half = builder.shape(tile);
  half.back() /= 2;
  return builder.emit_each({.op = Op::halves, .frags = {tile.id}}, builder.dtype(tile), half, {"left", "right"});
}

Value columns(KernelBuilder& builder, Value tile, int64_t first, int64_t count) {
  Shape shape = builder.shape(tile);
  if (first == 0 && count == shape.back()) return tile;
  shape.back() = count;
  return builder.emit({.op = Op::columns, .frags = {tile.id}, .attrs = {{"first", first}}}, builder.dtype(tile), shape,
                      "columns");
}

Value wgmma(KernelBuilder& builder, Value acc, Ref a, Major a_major, Ref b, Major b_major, int64_t k) {
  KOp op{.op = Op::wgmma, .frags = {acc.id}, .refs = {std::move(a), std::move(b)}};
  op.attrs = {{"k", k}, {"a", major_name(a_major)}, {"b", major_name(b_major)}};
  return builder.emit(std::move(op), Dtype::f32, builder.shape(acc), "flight");
}

Value wgmma_rs(KernelBuilder& builder, Value acc, Value a, Ref b, Major b_major, int64_t k) {
  KOp op{.op = Op::wgmma_rs, .frags = {acc.id, a.id}, .refs = {std::move(b)}};
  op.attrs = {{"k", k}, {"b", major_name(b_major)}};
  return builder.emit(std::move(op), Dtype::f32, builder.shape(acc), "flight");
}

std::vector<Value> wgmma_wait(KernelBuilder& builder, std::vector<Value> accumulators, int64_t pending) {
  KOp op{.op = Op::wgmma_wait, .attrs = {{"pending", pending}}};
  for (Value value : accumulators) op.frags.push_back(value.id);
  return builder.emit_all(std::move(op), accumulators, "_done");
}

}  // namespace stepc::kernel::hopper
