// The builder's ops of every GPU by name: copies to shared tiles and portable products of them. What each promises is
// in kernel_ops.def; what it requires is checked when the kernel is finished.
#pragma once

#include "ir/kernel/builder_hopper.h"

namespace stepc::kernel::gpu {

using hopper::Major;

void sync_task(KernelBuilder& builder);
// `tile` = [rows, cols]; `rows` names a dimension of the source, -1: the one before the last.
struct CopyShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t rows_dimension = -1;
};
void copy_async(KernelBuilder& builder, Ref global, Ref shared, CopyShape tile, Index height, Index width);
void copy_commit(KernelBuilder& builder);
void copy_wait(KernelBuilder& builder, int64_t pending);
Value mma_sync(KernelBuilder& builder, Value acc, Ref a, Major a_major, Ref b, Major b_major, int64_t k);
Value mma_sync_rs(KernelBuilder& builder, Value acc, Value a, Ref b, Major b_major, int64_t k);

}  // namespace stepc::kernel::gpu
