// Tiles go to swizzled shared memory by stmatrix, as they are and transposed, and come back by ldmatrix.
#include "ir/kernel/builder_hopper.h"
#include "tests/hopper/run_hopper.h"

namespace stepc {
namespace {

using kernel::KernelBuilder;

ScheduledKernel through_shared(bool transposed) {
  KernelBuilder builder("through", kernel::Target::sm90);
  const auto x = builder.global("x", Dtype::bf16, {64, 64});
  const auto y = builder.global("y", Dtype::bf16, {64, 64});
  const auto tile = builder.shared("tile", Dtype::bf16, {2, 64, 64}, 128);
  builder.set_grid(1);
  builder.begin_role("main", 4);
  kernel::hopper::stmatrix(builder, builder.load(x, {0, 0}, {64, 64}), builder.ref(tile, {1, 0, 0}), transposed);
  builder.emit({.op = kernel::Op::sync_task});
  builder.store(builder.load(tile, {1, 0, 0}, {64, 64}), y, {0, 0});
  ScheduledKernel scheduled;
  scheduled.kernel = builder.finish();
  scheduled.grid = 1;
  return scheduled;
}

TEST_CASE("stmatrix and ldmatrix are inverse, and a transposed store transposes") {
  test::Bytes x(64 * 64 * 2);
  for (size_t i = 0; i < 64 * 64; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(x.data() + 2 * i, &bits, 2);
  }
  for (const bool transposed : {false, true}) {
    const ScheduledKernel scheduled = through_shared(transposed);
    const auto code = emit_ptx(scheduled.kernel, {"sm_90a"});
    REQUIRE(code.has_value());
    CHECK(code->ptx.find("ldmatrix.sync") != std::string::npos);
    std::vector<test::Bytes> after;
    const test::Bytes before(x.rbegin(), x.rend());
    test::run_on_gpu(scheduled, {test::guarded(x), test::guarded(before)}, after, 1);
    int wrong = 0;
    for (size_t row = 0; row < 64; ++row)
      for (size_t column = 0; column < 64; ++column) {
        uint16_t bits = 0;
        std::memcpy(&bits, after[1].data() + 256 + 2 * (row * 64 + column), 2);
        wrong += bits != (transposed ? column * 64 + row : row * 64 + column);
      }
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace stepc
