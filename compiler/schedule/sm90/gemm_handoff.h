// Hands a product over from the warps that make it to warps that make the group's results of it, so that these work
// while the next product is under way. It goes through shared memory as bf16, a tile at a time: what one consumer
// writes is a part, which it may write again when all of it has been read.
#pragma once

#include "compiler/schedule/sm90/gemm.h"

namespace stepc::sm90 {

class ProductHandoff {
 public:
  // Declares shared memory and barriers.
  ProductHandoff(kernel::KernelBuilder& builder, const GemmConfig& config);

  // By a consumer: its 64 rows of the task's tile number `tile`.
  void put(kernel::Index tile, kernel::Value sums);

  // By a warp of the epilogue: waits for the strip of kStripRows rows, gives columns of it, and says that it is read.
  void wait(kernel::Index tile, kernel::Index strip);
  kernel::Value columns(kernel::Index strip, int64_t first);  // f32[kStripRows, 64]; `first`: a multiple of 64
  void release(kernel::Index strip);

 private:
  kernel::Index part_of(kernel::Index strip) const { return strip / (kGroupRows / kStripRows); }

  kernel::KernelBuilder& b_;
  int64_t panels_;
  kernel::BufferId product_{}, ready_{}, taken_{};
};

}  // namespace stepc::sm90
