// The builder's ops of GPUs and of Hopper alone, by name: barriers, bulk copies, products of shared tiles. What
// each promises is in kernel_ops.def; what it requires is checked when the kernel is finished.
#pragma once

#include <string_view>
#include <vector>

#include "ir/kernel/builder.h"

namespace stepc::kernel::hopper {

// Of an operand in shared memory: its rows are m (n) and its columns k, or the other way round.
enum class Major : uint8_t { k, mn };

// ---- barriers -------------------------------------------------------------------------------------------------------
void wait(KernelBuilder& builder, Ref barrier, Index parity);
void arrive(KernelBuilder& builder, Ref barrier);
void arrive_cluster(KernelBuilder& builder, Ref barrier);  // at this barrier of every task of the cluster
void expect(KernelBuilder& builder, Ref barrier, Index bytes);
void sync(KernelBuilder& builder, Index id, int64_t warps);
void sync_arrive(KernelBuilder& builder, Index id, int64_t warps);

// ---- copies ---------------------------------------------------------------------------------------------------------
void tma_load(KernelBuilder& builder, Ref map, Ref shared, Ref barrier, bool multicast = false);
void tma_store(KernelBuilder& builder, Ref shared, Ref map);
void bulk_load(KernelBuilder& builder, Ref global, Ref shared, Ref barrier, Index bytes);
void bulk_reduce(KernelBuilder& builder, Ref shared, Ref global, Index bytes);
void bulk_commit(KernelBuilder& builder);
void bulk_wait(KernelBuilder& builder, int64_t pending);  // shared memory may be written again
void bulk_wait_written(KernelBuilder& builder, int64_t pending);
void fence_async(KernelBuilder& builder);

// ---- tasks of a launch in step --------------------------------------------------------------------------------------
void progress_wait(KernelBuilder& builder, Index count);
void progress_add(KernelBuilder& builder);
void progress_end(KernelBuilder& builder);

// ---- tiles ----------------------------------------------------------------------------------------------------------
void stmatrix(KernelBuilder& builder, Value tile, Ref shared, bool transposed = false);
std::vector<Value> halves(KernelBuilder& builder, Value tile);
// Columns first .. first + count of a tile; the tile itself if that is all of it.
Value columns(KernelBuilder& builder, Value tile, int64_t first, int64_t count);
// acc + A * B over k columns. An accumulator that is `constant 0` costs nothing.
Value wgmma(KernelBuilder& builder, Value acc, Ref a, Major a_major, Ref b, Major b_major, int64_t k);
Value wgmma_rs(KernelBuilder& builder, Value acc, Value a, Ref b, Major b_major, int64_t k);
std::vector<Value> wgmma_wait(KernelBuilder& builder, std::vector<Value> accumulators, int64_t pending);

}  // namespace stepc::kernel::hopper
