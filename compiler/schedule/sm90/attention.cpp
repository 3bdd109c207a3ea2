// From a kernel group to Hopper's attention kernels.
#include "compiler/schedule/sm90/attention.h"

#include <algorithm>
#include <utility>

#include "compiler/schedule/sm90/attention_tail.h"
#include "compiler/schedule/sm90/templates.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::KernelBuilder;

constexpr int64_t kCachedBytes = int64_t{16} << 20;  // of rows that tasks running at one time share

int64_t row_tiles(const AttentionSizes& sizes) { return (sizes.tokens + kAttentionTile - 1) / kAttentionTile; }

// What the busiest task has to do, in blocks of a tile and the start and end of one, which cost about another.
int64_t longest_task(const AttentionSizes& sizes, const AttentionConfig& config) {
  const int64_t heads = sizes.batch * sizes.heads, longest = row_tiles(sizes);
  std::vector<int64_t> work(static_cast<size_t>(config.tasks));
  for (int64_t number = 0; number < heads * longest; ++number) {
    const int64_t wave = number / config.tasks, column = number % config.tasks;
    const bool back = config.turns_back && wave % 2 == 1 && wave < heads * longest / config.tasks;
    const int64_t rank = number % (config.group_heads * longest) / config.group_heads;
    work[static_cast<size_t>(back ? config.tasks - 1 - column : column)] += longest - rank + 1;
  }
  return *std::max_element(work.begin(), work.end());
}

// The order of tiles that loads tasks most evenly: groups are of one size, a divisor of the number of heads, and small
// enough for the second-level cache. Sizes that fit equally well go to the larger group.
void pick_order(const AttentionSizes& sizes, AttentionConfig& config) {
  const int64_t heads = sizes.batch * sizes.heads, head_bytes = 2 * sizes.tokens * sizes.dim * 2;
  const int64_t most = std::clamp<int64_t>(kCachedBytes / head_bytes, 1, heads);
  AttentionConfig best;
  int64_t least = INT64_MAX;
  for (config.group_heads = most; config.group_heads >= 1; --config.group_heads) {
    if (heads % config.group_heads != 0) continue;
    for (bool turns_back : {false, true}) {
      config.turns_back = turns_back;
      const int64_t work = longest_task(sizes, config);
      if (work < least) best = config;
      least = std::min(least, work);
    }
  }
  config = best;
}

AttentionConfig pick(const AttentionSizes& sizes, const GpuTarget& target, int64_t stages) {
  const int64_t tiles = sizes.batch * sizes.heads * row_tiles(sizes);
  AttentionConfig config;
  config.tasks = std::min(target.processors, tiles);
  pick_order(sizes, config);
  config.stages = stages;
  return config;
}

// The gradient's sums leave its consumers few registers.
AttentionConfig pick_gradient(const AttentionSizes& sizes, const GpuTarget& target) {
  AttentionConfig config = pick(sizes, target, 3);
  config.producer_registers = 24;
  config.consumer_registers = 240;
  return config;
}

bool fits(const AttentionSizes& sizes) {
  const bool known_dim = sizes.dim == kAttentionBlock || sizes.dim == 2 * kAttentionBlock;
  return sizes.causal && sizes.scale > 0 && known_dim && sizes.batch > 0 && sizes.tokens > 0 && sizes.heads > 0;
}

// A kernel with the group's buffers declared, those of the attention op under the shapes that it sees.
struct Draft {
  KernelBuilder builder;
  std::map<ValueId, BufferId> buffers;

  Draft(std::string name, const Program& program, const AttentionGroup& group, const ScheduledKernel& scheduled)
      : builder(std::move(name), kernel::Target::sm90) {
    std::map<ValueId, Shape> shapes;
    const Node& node = program.producer(group.results[0]);
    for (size_t i = 0; i < node.operands.size(); ++i) shapes[group.operands[i]] = program.type(node.operands[i]).shape;
    for (ValueId result : group.results) shapes[result] = program.type(result).shape;
    // What follows the gradient has its shape, but for what it reads beside it.
    if (node.op == Op::attention_grad) shapes[scheduled.results[0]] = program.type(group.results[0]).shape;
    const auto declare = [&](std::string buffer, ValueId value) {
      const auto seen = shapes.find(value);
      const TensorType& type = program.type(value);
      buffers[value] = builder.global(std::move(buffer), type.dtype, seen == shapes.end() ? type.shape : seen->second);
    };
    for (size_t i = 0; i < scheduled.operands.size(); ++i) declare(fmt::format("x{}", i), scheduled.operands[i]);
    for (size_t i = 0; i < scheduled.results.size(); ++i) declare(fmt::format("y{}", i), scheduled.results[i]);
  }
};

ScheduledKernel start(const Program& program, const Group& group) {
  ScheduledKernel scheduled;
  scheduled.operands = group_operands(program, group);
  scheduled.results = group_results(program, group);
  return scheduled;
}

// The results are the attention op's own, with nothing done to them.
bool is_plain(const ScheduledKernel& scheduled, const AttentionGroup& group) {
  return std::all_of(scheduled.results.begin(), scheduled.results.end(), [&](ValueId value) {
    return std::find(group.results.begin(), group.results.end(), value) != group.results.end();
  });
}

// A tail is made on whole tiles, so that no row needs a test, and by kernels that store what they sum.
bool takes_tail(const AttentionGroup& group) {
  return fits(group.sizes) && !group.atomic && group.sizes.tokens % kAttentionTile == 0;
}

// Adds the gradient's kernels to the group's, in order.
class GradientKernels {
 public:
  GradientKernels(const Program& program, const Group& source, const AttentionGroup& group, GradientForm form,
                  ScheduledKernel& scheduled)
      : program_(program),
        source_(source),
        group_(group),
        workspace_(attention_workspace_shape(group.sizes, form)),
        scheduled_(scheduled) {
    scheduled.workspace_bytes = numel(workspace_) * dtype_bytes(Dtype::f32);
  }

  // An error says what of the tail cannot be made.
  template <class Emit>
  Status add(std::string name, const AttentionConfig& config, const Emit& emit) {
    Draft draft(std::move(name), program_, group_, scheduled_);
    const auto operand = [&](size_t i) { return draft.buffers.at(group_.operands[i]); };
    const BufferId qkv = operand(0), dqkv = draft.buffers.at(scheduled_.results[0]);
    const BufferId workspace = draft.builder.global("workspace", Dtype::f32, workspace_);
    AttentionGradient tensors{{qkv, 0},  {qkv, 1},  {qkv, 2},  {operand(1), {}}, {operand(3), {}},
                              {dqkv, 0}, {dqkv, 1}, {dqkv, 2}, operand(2),       workspace};
    std::optional<AttentionTail> tail;
    if (!is_plain(scheduled_, group_))
      tensors.tail = &tail.emplace(draft.builder, program_, source_, group_, draft.buffers);
    emit(draft.builder, group_.sizes, config, tensors);
    if (tail && tail->failure()) return user_error("kernel @{}: {}", source_.name, *tail->failure());
    if (std::exchange(is_first_, false)) {
      scheduled_.kernel = draft.builder.finish();
      scheduled_.grid = config.tasks;
    } else {
      scheduled_.later.push_back({draft.builder.finish(), {}, config.tasks});
    }
    return {};
  }

 private:
  const Program& program_;
  const Group& source_;
  const AttentionGroup& group_;
  Shape workspace_;
  ScheduledKernel& scheduled_;
  bool is_first_ = true;
};

}  // namespace

std::string describe(const AttentionConfig& config) {
  return fmt::format("tiles of {} rows, {} stages, groups of {} heads{}, {} tasks, registers {}/{}{}", kAttentionTile,
                     config.stages, config.group_heads, config.turns_back ? " there and back" : "", config.tasks,
                     config.producer_registers, config.consumer_registers,
                     config.kept_operands ? fmt::format(", {} operands kept", config.kept_operands) : "");
}

AttentionConfig pick_attention_forward(const AttentionSizes& sizes, const GpuTarget& target) {
  return pick(sizes, target, 2);
}

// Where there is but one tile of a head, its code is a line without loops, in which one operand less fits.
AttentionConfig pick_attention_queries(const AttentionSizes& sizes, const GpuTarget& target) {
  AttentionConfig config = pick_gradient(sizes, target);
  config.kept_operands = sizes.dim > kAttentionBlock && sizes.tokens <= kAttentionTile ? 1 : 2;
  return config;
}

// Where there is but one tile of a head, its code is a line without loops, in which too much would be under way; and
// nothing would be gained.
GradientForm gradient_form(const AttentionSizes& sizes, bool may_be_atomic) {
  const bool one_tile = sizes.dim > kAttentionBlock && sizes.tokens <= kAttentionTile;
  return may_be_atomic && !one_tile ? GradientForm::atomic : GradientForm::deterministic;
}

// The atomic form's dS and sums take the place of a third stage.
AttentionConfig pick_attention_keys(const AttentionSizes& sizes, const GpuTarget& target, GradientForm form) {
  AttentionConfig config = pick_gradient(sizes, target);
  if (form == GradientForm::deterministic) return config;
  config.stages = 2;
  return config;
}

AttentionConfig pick_attention_pass(const AttentionSizes& sizes, const GpuTarget& target) {
  return pick(sizes, target, 2);
}

Result<std::optional<ScheduledKernel>> schedule_attention(const Program& program, const Group& group,
                                                          const GpuTarget& target) {
  const AttentionGroup attention = analyse_attention(program, group);
  ScheduledKernel scheduled = start(program, group);
  const ValueId out = attention.results[0], lse = attention.results[1];
  const auto wanted = [&](ValueId value) {
    return std::find(scheduled.results.begin(), scheduled.results.end(), value) != scheduled.results.end();
  };
  if (!fits(attention.sizes) || !is_plain(scheduled, attention) || !wanted(out))
    return std::optional<ScheduledKernel>();
  const AttentionConfig config = pick_attention_forward(attention.sizes, target);
  Draft draft("attention", program, attention, scheduled);
  const BufferId qkv = draft.buffers.at(attention.operands[0]);
  AttentionForward tensors{{qkv, 0}, {qkv, 1}, {qkv, 2}, {draft.buffers.at(out), {}}, {}};
  if (wanted(lse)) tensors.lse = draft.buffers.at(lse);
  emit_attention_forward(draft.builder, attention.sizes, config, tensors);
  scheduled.kernel = draft.builder.finish();
  scheduled.grid = config.tasks;
  scheduled.config = describe(config);
  STEPC_ASSIGN(scheduled.problem, group_problem(program, group));
  return std::optional(std::move(scheduled));
}

Result<std::optional<ScheduledKernel>> schedule_attention_grad(const Program& program, const Group& group,
                                                               const GpuTarget& target) {
  const AttentionGroup attention = analyse_attention(program, group);
  const AttentionSizes& sizes = attention.sizes;
  ScheduledKernel scheduled = start(program, group);
  if (!fits(sizes) || (!is_plain(scheduled, attention) && !takes_tail(attention)))
    return std::optional<ScheduledKernel>();
  const GradientForm form = gradient_form(sizes, attention.atomic);
  GradientKernels kernels(program, group, attention, form, scheduled);
  const AttentionConfig keys = pick_attention_keys(sizes, target, form);
  const auto emit_keys = [form](auto&... arguments) { emit_attention_keys(arguments..., form); };
  if (form == GradientForm::deterministic) {
    const AttentionConfig queries = pick_attention_queries(sizes, target);
    STEPC_TRY(kernels.add("attention_grad_queries", queries, emit_attention_queries));
    STEPC_TRY(kernels.add("attention_grad_keys", keys, emit_keys));
    scheduled.config = fmt::format("dQ: {}; dK, dV: {}", describe(queries), describe(keys));
  } else {
    const AttentionConfig pass = pick_attention_pass(sizes, target);
    STEPC_TRY(kernels.add("attention_grad_stats", pass, emit_attention_stats));
    STEPC_TRY(kernels.add("attention_grad_atomic", keys, emit_keys));
    STEPC_TRY(kernels.add("attention_grad_rounding", pass, emit_attention_rounding));
    scheduled.config = fmt::format("dQ added in no fixed order: {}", describe(keys));
  }
  STEPC_ASSIGN(scheduled.problem, group_problem(program, group));
  return std::optional(std::move(scheduled));
}

bool attention_grad_takes_tail(const Program& program, const Node& gradient) {
  return takes_tail(
      analyse_attention(program, {"", Template::attention_grad, {program.value(gradient.results[0]).producer}}));
}

}  // namespace stepc::sm90
