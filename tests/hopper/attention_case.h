// Attention kernels straight from their templates, also for q, k and v that lie apart and for few multiprocessors.
#pragma once

#include <array>
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
  GradientForm form = GradientForm::deterministic;
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

enum class GradientKernel : uint8_t { queries, keys, stats, rounding };
inline std::vector<GradientKernel> gradient_kernels(GradientForm form) {
  using enum GradientKernel;
  if (form == GradientForm::deterministic) return {queries, keys};
  return {stats, keys, rounding};
}

// Buffers: qkv, out, lse, dout, dqkv, workspace.
inline AttentionLaunch gradient_kernel(const AttentionCase& test, GradientKernel which) {
  using enum GradientKernel;
  const AttentionSizes& s = test.sizes;
  const GradientForm form = test.form;
  const std::array names{"queries", "keys", "stats", "rounding"};
  kernel::KernelBuilder builder(
      std::string(names[static_cast<size_t>(which)]) + (form == GradientForm::deterministic ? "" : "_atomic"),
      kernel::Target::sm90);
  const Shape rows{s.batch, s.tokens, s.heads, s.dim};
  const auto qkv = head_tensors(builder, test, "x");
  const auto out = builder.global("out", Dtype::bf16, rows);
  const auto lse = builder.global("lse", Dtype::f32, {s.batch, s.heads, s.tokens});
  const auto dout = builder.global("dout", Dtype::bf16, rows);
  const auto dqkv = head_tensors(builder, test, "y");
  const auto workspace = builder.global("workspace", Dtype::f32, attention_workspace_shape(s, form));
  const AttentionGradient tensors{qkv[0],  qkv[1],  qkv[2],  {out, {}}, {dout, {}},
                                  dqkv[0], dqkv[1], dqkv[2], lse,       workspace};
  AttentionConfig config = pick_attention_pass(s, test.target);
  if (which == queries) config = pick_attention_queries(s, test.target);
  if (which == keys) config = pick_attention_keys(s, test.target, form);
  config.kept_operands = test.kept_operands.value_or(config.kept_operands);
  switch (which) {
    case queries: emit_attention_queries(builder, s, config, tensors); break;
    case keys: emit_attention_keys(builder, s, config, tensors, form); break;
    case stats: emit_attention_stats(builder, s, config, tensors); break;
    case rounding: emit_attention_rounding(builder, s, config, tensors); break;
  }
  return {builder.finish(), config.tasks};
}

// The gradient in each of its forms.
inline std::vector<AttentionCase> gradient_cases(const AttentionCase& test) {
  const GradientForm other = gradient_form(test.sizes, true);
  if (other == GradientForm::deterministic) return {test};
  std::vector<AttentionCase> cases(2, test);
  cases[1].form = other;
  return cases;
}

inline std::vector<AttentionLaunch> attention_kernels(const AttentionCase& test) {
  std::vector<AttentionLaunch> kernels{forward_kernel(test)};
  for (const AttentionCase& each : gradient_cases(test))
    for (const GradientKernel which : gradient_kernels(each.form)) kernels.push_back(gradient_kernel(each, which));
  return kernels;
}

}  // namespace stepc::sm90
