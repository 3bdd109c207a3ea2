// Hopper's attention kernels as kernel IR: well formed, and every access but those TMA clips is proved to be in bounds.
#include <doctest/doctest.h>

#include "compiler/schedule/sm90/attention.h"
#include "compiler/schedule/sm90/gemm.h"
#include "tests/hopper/attention_case.h"

namespace stepc::sm90 {
namespace {

TEST_CASE("attention's accesses are in bounds for any number of tokens") {
  for (const int64_t dim : {64, 128})
    for (const int64_t tokens : {1, 31, 64, 129, 2048})
      for (const bool packed : {true, false}) {
        const AttentionSizes sizes{2, tokens, 3, dim, true, 0.125};
        for (const kernel::Kernel& kernel : attention_kernels(sizes, packed)) {
          CAPTURE(kernel.name);
          test::check_kernel(kernel, true);
          CHECK(kernel::shared_layout(kernel).total_bytes <= kSharedBytes);
          CHECK(kernel::fragment_layouts(kernel).has_value());
        }
      }
}

}  // namespace
}  // namespace stepc::sm90
