// The ops of Hopper alone, one function an op family, each in a file of its own (hopper_*.cpp).
#pragma once

#include "compiler/emit/nvptx/context.h"

namespace stepc::emit {

// hopper_barriers.cpp: what the kernel needs before its roles begin (barriers are valid, maps are on their way),
// and what holds a task until its cluster is done with its memory.
void emit_hopper_entry(GpuContext& context);
void emit_hopper_exit(GpuContext& context);
void emit_barrier_op(GpuContext& context, const kernel::KOp& op);  // wait, arrive, expect
// hopper_copies.cpp: tma_load, tma_store, bulk_load, bulk_reduce, bulk_commit, bulk_wait, fence_async
void emit_bulk_op(GpuContext& context, const kernel::KOp& op);
// hopper_progress.cpp: progress_wait, progress_add, progress_end
void emit_progress_op(GpuContext& context, const kernel::KOp& op);
// hopper_products.cpp: wgmma, wgmma_rs, wgmma_wait
void emit_warpgroup_op(GpuContext& context, const kernel::KOp& op);
// hopper_tiles.cpp
void emit_stmatrix(GpuContext& context, const kernel::KOp& op);
// A load of a whole bf16 tile from a shared tile with swizzle 128: by ldmatrix.
bool reads_matrices(const GpuContext& context, const kernel::KOp& op);
void emit_ldmatrix(GpuContext& context, const kernel::KOp& op);

}  // namespace stepc::emit
