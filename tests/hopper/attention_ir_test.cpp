// Hopper's attention kernels as kernel IR: well formed, and every access but those TMA clips is proved to be in bounds.
#include <doctest/doctest.h>

#include "compiler/schedule/sm90/gemm.h"
#include "tests/hopper/attention_case.h"

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

}  // namespace
}  // namespace stepc::sm90
