// Hopper's attention kernels as kernel IR: well formed, and every access but those TMA clips is proved to be in bounds.
#include <doctest/doctest.h>

#include "compiler/schedule/sm90/gemm.h"
#include "ir/kernel/print.h"
#include "tests/hopper/attention_case.h"
#include "tests/support/golden.h"

namespace stepc::sm90 {
namespace {

TEST_CASE("attention's accesses are in bounds for any number of tokens") {
  for (const int64_t dim : {64, 128})
    for (const int64_t tokens : {1, 31, 64, 129, 2048})
      for (const bool packed : {true, false})
        for (const AttentionLaunch& launch : attention_kernels(attention_case(2, tokens, 3, dim, packed))) {
          CAPTURE(launch.kernel.name);
          test::check_kernel(launch.kernel, true);
          CHECK(kernel::shared_layout(launch.kernel).total_bytes <= kSharedBytes);
          CHECK(kernel::fragment_layouts(launch.kernel).has_value());
        }
}

TEST_CASE("the atomic gradient's kernel reads as it should") {
  AttentionCase test = attention_case(16, 2048, 24, 128);
  test.form = GradientForm::atomic;
  const AttentionLaunch launch = gradient_kernel(test, GradientKernel::keys);
  const AttentionConfig config = pick_attention_keys(test.sizes, test.target, test.form);
  test::check_golden("schedule/attention_grad_atomic.sm90.kir",
                     fmt::format("// {}\n{}", describe(config), kernel::print_kernel(launch.kernel)));
}

}  // namespace
}  // namespace stepc::sm90
