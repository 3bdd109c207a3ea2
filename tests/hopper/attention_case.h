// Attention kernels straight from their templates, also for q, k and v that lie apart.
#pragma once

#include <vector>

#include "compiler/schedule/sm90/attention.h"
#include "ir/kernel/layout.h"
#include "tests/support/run_group.h"

namespace stepc::sm90 {

// Of q, k, v (or their gradients): one packed buffer, or three.
inline std::vector<HeadTensor> head_tensors(kernel::KernelBuilder& builder, const AttentionSizes& s, bool packed,
                                            const std::string& name) {
  if (packed) {
    const auto buffer = builder.global(name, Dtype::bf16, {s.batch, s.tokens, 3, s.heads, s.dim});
    return {{buffer, 0}, {buffer, 1}, {buffer, 2}};
  }
  std::vector<HeadTensor> tensors;
  for (const char* part : {"q", "k", "v"})
    tensors.push_back({builder.global(name + part, Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim}), {}});
  return tensors;
}

// Buffers: qkv, out, lse.
inline kernel::Kernel forward_kernel(const AttentionSizes& s, bool packed) {
  kernel::KernelBuilder builder("attention", kernel::Target::sm90);
  const auto qkv = head_tensors(builder, s, packed, "x");
  const auto out = builder.global("out", Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim});
  const auto lse = builder.global("lse", Dtype::f32, {s.batch, s.heads, s.tokens});
  emit_attention_forward(builder, s, pick_attention_forward(s), {qkv[0], qkv[1], qkv[2], {out, {}}, lse});
  return builder.finish();
}

// Buffers: qkv, out, lse, dout, dqkv, stats.
inline kernel::Kernel gradient_kernel(const AttentionSizes& s, bool packed, bool keys) {
  kernel::KernelBuilder builder(keys ? "keys" : "queries", kernel::Target::sm90);
  const Shape rows{s.batch, s.tokens, s.heads, s.dim};
  const auto qkv = head_tensors(builder, s, packed, "x");
  const auto out = builder.global("out", Dtype::bf16, rows);
  const auto lse = builder.global("lse", Dtype::f32, {s.batch, s.heads, s.tokens});
  const auto dout = builder.global("dout", Dtype::bf16, rows);
  const auto dqkv = head_tensors(builder, s, packed, "y");
  const auto stats = builder.global("stats", Dtype::f32, attention_stats_shape(s));
  const AttentionGradient tensors{qkv[0], qkv[1], qkv[2], {out, {}}, {dout, {}}, dqkv[0], dqkv[1], dqkv[2], lse, stats};
  if (keys)
    emit_attention_keys(builder, s, pick_attention_keys(s), tensors);
  else
    emit_attention_queries(builder, s, pick_attention_queries(s), tensors);
  return builder.finish();
}

inline std::vector<kernel::Kernel> attention_kernels(const AttentionSizes& sizes, bool packed) {
  return {forward_kernel(sizes, packed), gradient_kernel(sizes, packed, false), gradient_kernel(sizes, packed, true)};
}

}  // namespace stepc::sm90
