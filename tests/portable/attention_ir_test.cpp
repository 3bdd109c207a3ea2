// The portable attention templates: their kernels verify, and every access is proved.
#include <doctest/doctest.h>

#include "compiler/schedule/cuda/attention.h"
#include "ir/kernel/layout.h"
#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"
#include "tests/support/golden.h"

namespace stepc {
namespace {

void check(const kernel::Kernel& kernel) {
  const std::string text = kernel::print_kernel(kernel);
  for (const std::string& access : kernel::unproved_accesses(kernel)) CHECK_MESSAGE(false, access << "\n" << text);
  const auto layouts = kernel::fragment_layouts(kernel);
  REQUIRE_MESSAGE(layouts.has_value(), layouts.error().text() << text);
  const auto parsed = kernel::parse_kernel(text, "k.kir");
  REQUIRE_MESSAGE(parsed.has_value(), parsed.error().text());
  CHECK(kernel::print_kernel(*parsed) == text);
}

kernel::Kernel forward(const AttentionSizes& s) {
  kernel::KernelBuilder builder("attention", kernel::Target::cuda);
  cuda::AttentionBuffers buffers;
  buffers.qkv = builder.global("qkv", Dtype::bf16, {s.batch, s.tokens, 3 * s.heads, s.dim});
  buffers.out = builder.global("out", Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim});
  buffers.lse = builder.global("lse", Dtype::f32, {s.batch, s.heads, s.tokens});
  builder.set_grid(cuda::attention_tasks(s));
  cuda::emit_attention(builder, s, buffers);
  return builder.finish();
}

kernel::Kernel gradient(const AttentionSizes& s, bool is_stats) {
  kernel::KernelBuilder builder("attention_grad", kernel::Target::cuda);
  cuda::AttentionGradBuffers buffers;
  buffers.qkv = builder.global("qkv", Dtype::bf16, {s.batch, s.tokens, 3 * s.heads, s.dim});
  buffers.out = builder.global("out", Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim});
  buffers.lse = builder.global("lse", Dtype::f32, {s.batch, s.heads, s.tokens});
  buffers.dout = builder.global("dout", Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim});
  buffers.dqkv = builder.global("dqkv", Dtype::bf16, {s.batch, s.tokens, 3 * s.heads, s.dim});
  buffers.stats = builder.global("stats", Dtype::f32, {2 * s.batch, s.heads, s.tokens});
  builder.set_grid(is_stats ? cuda::attention_tasks(s) : cuda::attention_grad_tasks(s));
  (is_stats ? cuda::emit_attention_stats : cuda::emit_attention_grad)(builder, s, buffers);
  return builder.finish();
}

TEST_CASE("portable attention kernels verify and stay in bounds") {
  for (const int64_t tokens : {1, 31, 64, 127, 129, 256})
    for (const int64_t dim : {16, 64, 80, 128})
      for (const bool causal : {true, false}) {
        const AttentionSizes sizes{2, tokens, 3, dim, causal, 0.125};
        check(forward(sizes));
        check(gradient(sizes, true));
        check(gradient(sizes, false));
      }
}

TEST_CASE("portable attention to read") {
  test::check_golden("schedule/attention.cuda.kir", kernel::print_kernel(forward({2, 200, 3, 64, true, 0.125})));
}

}  // namespace
}  // namespace stepc
