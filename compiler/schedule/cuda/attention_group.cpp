// From a kernel group to an attention kernel, forward or gradient.
#include "compiler/schedule/cuda/attention.h"
#include "compiler/schedule/cuda/group_kernel.h"
#include "compiler/schedule/cuda/templates.h"

namespace stepc::cuda {
namespace {

Status check_head(const Group& group, const AttentionSizes& sizes) {
  if (fits_attention(sizes)) return {};
  return user_error("kernel @{}: heads of {} elements, expected a multiple of {} up to {} on a GPU", group.name,
                    sizes.dim, kHeadUnit, kLargestHead);
}

Shape qkv_shape(const AttentionSizes& sizes) { return {sizes.batch, sizes.tokens, 3 * sizes.heads, sizes.dim}; }
Shape out_shape(const AttentionSizes& sizes) { return {sizes.batch, sizes.tokens, sizes.heads, sizes.dim}; }
Shape lse_shape(const AttentionSizes& sizes) { return {sizes.batch, sizes.heads, sizes.tokens}; }

std::string config_text() {
  return fmt::format("blocks of {} queries and {} keys, {} warps", kAttentionBlock, kAttentionBlock, kAttentionWarps);
}

}  // namespace

Result<ScheduledKernel> schedule_attention(const Program& program, const Group& group) {
  const AttentionGroup attention = analyse_attention(program, group);
  const AttentionSizes& sizes = attention.sizes;
  STEPC_TRY(check_head(group, sizes));
  GroupKernel made(program, group,
                   {{attention.operands[0], qkv_shape(sizes)},
                    {attention.results[0], out_shape(sizes)},
                    {attention.results[1], lse_shape(sizes)}});
  const int64_t tasks = attention_tasks(sizes);
  made.builder().set_grid(tasks);
  if (tasks == 0)
    made.builder().begin_role("main", 1);
  else
    emit_attention(
        made.builder(), sizes,
        {made.buffer(attention.operands[0]), made.buffer(attention.results[0]), made.buffer(attention.results[1])});
  return made.finish(tasks, config_text());
}

Result<ScheduledKernel> schedule_attention_grad(const Program& program, const Group& group) {
  const AttentionGroup attention = analyse_attention(program, group);
  STEPC_TRY(check_nothing_follows(program, group, attention));
  const AttentionSizes& sizes = attention.sizes;
  STEPC_TRY(check_head(group, sizes));
  const std::vector<ValueId>& in = attention.operands;
  const std::map<ValueId, Shape> shapes{{in[0], qkv_shape(sizes)},
                                        {in[1], out_shape(sizes)},
                                        {in[2], lse_shape(sizes)},
                                        {in[3], out_shape(sizes)},
                                        {attention.results[0], qkv_shape(sizes)}};
  const auto make = [&](std::string name, int64_t tasks, auto emit) {
    GroupKernel made(program, group, shapes, std::move(name));
    AttentionGradBuffers buffers{made.buffer(in[0]), made.buffer(in[1]), made.buffer(in[2]), made.buffer(in[3]),
                                 made.buffer(attention.results[0])};
    // Where there is nothing to do there is no workspace either.
    if (tasks > 0) buffers.stats = made.workspace(Dtype::f32, {2 * sizes.batch, sizes.heads, sizes.tokens});
    made.builder().set_grid(tasks);
    if (tasks == 0)
      made.builder().begin_role("main", 1);
    else
      emit(made.builder(), sizes, buffers);
    return made.finish(tasks, config_text());
  };
  STEPC_ASSIGN(ScheduledKernel first, make("attention_stats", attention_tasks(sizes), emit_attention_stats));
  STEPC_ASSIGN(ScheduledKernel main, make("attention_grad", attention_grad_tasks(sizes), emit_attention_grad));
  first.later.push_back({std::move(main.kernel), std::move(main.scalars), main.grid});
  return first;
}

}  // namespace stepc::cuda
