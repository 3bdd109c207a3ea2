// The portable contraction template: its kernels verify, and every access is proved.
#include <doctest/doctest.h>

#include "compiler/schedule/cuda/matmul.h"
#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"
#include "tests/support/golden.h"

namespace stepc {
namespace {

kernel::Kernel plain_matmul(const MatmulProblem& p, const cuda::MatmulConfig& config) {
  kernel::KernelBuilder builder("matmul", kernel::Target::cuda);
  cuda::MatmulBuffers buffers;
  buffers.a = builder.global("a", p.a_dtype, p.transpose_a ? Shape{p.batch, p.k, p.m} : Shape{p.batch, p.m, p.k});
  buffers.b = builder.global("b", p.b_dtype, p.transpose_b ? Shape{p.batch, p.n, p.k} : Shape{p.batch, p.k, p.n});
  const kernel::BufferId y = builder.global("y", Dtype::f32, {config.splits * p.batch, p.m, p.n});
  builder.set_grid(config.tasks(p) * config.splits);
  cuda::emit_matmul(builder, p, config, buffers, [&](const cuda::MatmulTile& tile) {
    for (size_t part = 0; part < tile.sums.size(); ++part)
      builder.store_tile(
          tile.sums[part], y,
          {tile.split * p.batch + tile.batch, tile.row, tile.column + static_cast<int64_t>(part) * p.columns()}, 1,
          tile.width, tile.height);
  });
  return builder.finish();
}

TEST_CASE("contraction kernels verify and stay in bounds") {
  for (const int64_t size : {1, 7, 33, 64, 130, 4096})
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32})
      for (int order = 0; order < 8; ++order) {
        // A long k is split.
        MatmulProblem p{.m = size, .n = size, .k = size == 33 ? 2000 : size, .batch = 2};
        p.a_dtype = p.b_dtype = p.math_dtype = dtype;
        p.transpose_a = order & 1;
        p.transpose_b = order & 2;
        p.halves = order & 4;
        if (p.halves) p.n *= 2;
        const kernel::Kernel kernel = plain_matmul(p, cuda::pick_matmul(p, {"sm_80"}));
        const std::string text = kernel::print_kernel(kernel);
        for (const std::string& access : kernel::unproved_accesses(kernel))
          CHECK_MESSAGE(false, access << "\n" << text);
        const auto parsed = kernel::parse_kernel(text, "k.kir");
        REQUIRE_MESSAGE(parsed.has_value(), parsed.error().text());
        CHECK(kernel::print_kernel(*parsed) == text);
      }
}

TEST_CASE("a portable product to read") {
  const MatmulProblem p{.m = 200,
                        .n = 256,
                        .k = 512,
                        .batch = 1,
                        .a_dtype = Dtype::bf16,
                        .b_dtype = Dtype::bf16,
                        .math_dtype = Dtype::bf16};
  cuda::MatmulConfig config;  // the large tile
  test::check_golden("schedule/matmul.cuda.kir", kernel::print_kernel(plain_matmul(p, config)));
}

}  // namespace
}  // namespace stepc
