#include "compiler/schedule/sm90/gemm_handoff.h"

#include "ir/kernel/builder_hopper.h"

namespace stepc::sm90 {

using kernel::Index;
using kernel::Value;

ProductHandoff::ProductHandoff(kernel::KernelBuilder& builder, const GemmConfig& config)
    : b_(builder), panels_(config.tile_n / kPanel) {
  product_ = b_.shared("product", Dtype::bf16, {kConsumers, panels_, kGroupRows, kPanel}, 128);
  ready_ = b_.barriers("ready", kConsumers, 1);
  taken_ = b_.barriers("taken", kConsumers, kGroupRows / kStripRows);
}

void ProductHandoff::put(Index tile, Value sums) {
  kernel::hopper::wait(b_, b_.ref(taken_, {b_.copy()}), (tile + 1) % 2);
  for (int64_t panel = 0; panel < panels_; ++panel) {
    const Value columns = kernel::hopper::columns(b_, sums, panel * kPanel, kPanel);
    kernel::hopper::stmatrix(b_, b_.cast(columns, Dtype::bf16), b_.ref(product_, {b_.copy(), panel, 0, 0}));
  }
  kernel::hopper::sync(b_, b_.copy() + 1, kGroupWarps);
  b_.once([&] { kernel::hopper::arrive(b_, b_.ref(ready_, {b_.copy()})); });
}

void ProductHandoff::wait(Index tile, Index strip) {
  kernel::hopper::wait(b_, b_.ref(ready_, {part_of(strip)}), tile % 2);
}

Value ProductHandoff::columns(Index strip, int64_t first) {
  const Index row = strip % (kGroupRows / kStripRows) * kStripRows;
  return b_.cast(b_.load(product_, {part_of(strip), first / kPanel, row, 0}, {kStripRows, kPanel}), Dtype::f32);
}

void ProductHandoff::release(Index strip) {
  kernel::hopper::sync(b_, b_.copy() + kConsumers + 1, 1);
  b_.once([&] { kernel::hopper::arrive(b_, b_.ref(taken_, {part_of(strip)})); });
}

}  // namespace stepc::sm90
