// Attention kernels straight from their templates, also for q, k and v that lie apart and for few multiprocessors.
#pragma once

#include <vector>

#include "compiler/schedule/sm90/attention.h"
#include "ir/kernel/layout.h"
#include "tests/support/run_group.h"

namespace stepc::sm90 {

struct AttentionCase {
  AttentionSizes sizes;
  bool packed = true;
  GpuTarget target{"sm_90a"};
  std::optional<int64_t> kept_operands = {};  // of the gradient's queries, other than the template's choice
};

inline AttentionCase attention_case(int64_t batch, int64_t tokens, int64_t heads, int64_t dim, bool packed = true,
                                    int64_t processors = 132) {
  return {{batch, tokens, heads, dim, true, 1 / std::sqrt(static_cast<double>(dim))}, packed, {"sm_90a", processors}};
}

// Of q, k, v (or their gradients): one packed buffer, or three.
inline std::vector<HeadTensor> head_tensors(kernel::KernelBuilder& builder, const AttentionCase& test,
                                            const std::string& name) {
  const AttentionSizes& s = test.sizes;
  if (test.packed) {
    const auto buffer = builder.global(name, Dtype::bf16, {s.batch, s.tokens, 3, s.heads, s.dim});
    return {{buffer, 0}, {buffer, 1}, {buffer, 2}};
  }
  std::vector<HeadTensor> tensors;
  for (const char* part : {"q", "k", "v"})
    tensors.push_back({builder.global(name + part, Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim}), {}});
  return tensors;
}

struct AttentionLaunch {
  kernel::Kernel kernel;
  int64_t grid = 0;
};

// Buffers: qkv, out, lse.
inline AttentionLaunch forward_kernel(const AttentionCase& test) {
  const AttentionSizes& s = test.sizes;
  kernel::KernelBuilder builder("attention", kernel::Target::sm90);
  const auto qkv = head_tensors(builder, test, "x");
  const auto out = builder.global("out", Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim});
  const auto lse = builder.global("lse", Dtype::f32, {s.batch, s.heads, s.tokens});
  const AttentionConfig config = pick_attention_forward(s, test.target);
  emit_attention_forward(builder, s, config, {qkv[0], qkv[1], qkv[2], {out, {}}, lse});
  return {builder.finish(), config.tasks};
}

// Buffers: qkv, out, lse, dout, dqkv, stats.
inline AttentionLaunch gradient_kernel(const AttentionCase& test, bool keys) {
  const AttentionSizes& s = test.sizes;
  kernel::KernelBuilder builder(keys ? "keys" : "queries", kernel::Target::sm90);
  const Shape rows{s.batch, s.tokens, s.heads, s.dim};
  const auto qkv = head_tensors(builder, test, "x");
  const auto out = builder.global("out", Dtype::bf16, rows);
  const auto lse = builder.global("lse", Dtype::f32, {s.batch, s.heads, s.tokens});
  const auto dout = builder.global("dout", Dtype::bf16, rows);
  const auto dqkv = head_tensors(builder, test, "y");
  const auto stats = builder.global("stats", Dtype::f32, attention_stats_shape(s));
  const AttentionGradient tensors{qkv[0], qkv[1], qkv[2], {out, {}}, {dout, {}}, dqkv[0], dqkv[1], dqkv[2], lse, stats};
  AttentionConfig config = keys ? pick_attention_keys(s, test.target) : pick_attention_queries(s, test.target);
  config.kept_operands = test.kept_operands.value_or(config.kept_operands);
  if (keys)
    emit_attention_keys(builder, s, config, tensors);
  else
    emit_attention_queries(builder, s, config, tensors);
  return {builder.finish(), config.tasks};
}

inline std::vector<AttentionLaunch> attention_kernels(const AttentionCase& test) {
  return {forward_kernel(test), gradient_kernel(test, false), gradient_kernel(test, true)};
}

}  // namespace stepc::sm90
