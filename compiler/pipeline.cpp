#include "compiler/pipeline.h"

#include <algorithm>
#include <array>

#include "compiler/graph/concat_pads.h"
#include "compiler/graph/cse.h"
#include "compiler/graph/dce.h"
#include "compiler/graph/fold.h"
#include "compiler/graph/fuse.h"
#include "compiler/graph/order.h"
#include "compiler/graph/split_column_sum.h"
#include "compiler/schedule/sm90/templates.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

// Most passes are the same for all targets.
template <void (*run)(Program&)>
void always(Program& program, const PassOptions&) {
  run(program);
}

// Hopper's products stream what an update reads, and its attention's gradient takes what follows it.
void fuse_for(Program& program, const PassOptions& options) {
  FuseOptions forms;
  if (options.for_gpu) forms.updates = options.has_sm90 ? Updates::in_bf16_products : Updates::apart;
  if (options.for_gpu && options.has_sm90) forms.takes_tail = sm90::attention_grad_takes_tail;
  if (options.updates_apart) forms.updates = Updates::apart;
  fuse(program, forms);
}

constexpr std::array kPasses = {
    Pass{"fold", always<fold>, "first: gives constants and views one spelling, in which cse finds equal ones"},
    Pass{"cse", always<cse>, "after fold; gradient rules repeat what they need and leave it to this"},
    Pass{"dce", always<dce>, "after the two that leave dead nodes, before fusion makes code for them"},
    Pass{"split_column_sum", always<split_column_sum>,
         "before fuse, which then finds a row kernel and a small column sum"},
    Pass{"concat_pads", always<concat_pads>,
         "before fuse, which stores a concat piece by piece; the dead sums do not bother it"},
    Pass{"fuse", fuse_for, "once nothing rewrites the graph any more"},
    Pass{"order", always<order>, "of the kernels that fuse made"},
};

Status check_pass_name(std::string_view name) {
  const auto is_named = [&](const Pass& pass) { return pass.name == name; };
  if (std::any_of(kPasses.begin(), kPasses.end(), is_named)) return {};
  std::string known;
  for (const Pass& pass : kPasses) known += (known.empty() ? "" : ", ") + std::string(pass.name);
  return user_error("no pass '{}'; the passes are: {}", name, known);
}

void run_pass(const Pass& pass, Module& module, const PassOptions& options) {
  for (Program& program : module.programs) pass.run(program, options);
  const Status status = verify(module);
  STEPC_CHECK(status.has_value(), "after pass {}: {}\n{}", pass.name, status.error().text(), print_module(module));
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Status run_passes(Module& module, const PassOptions& options) {
  for (const std::string& name : options.disable) STEPC_TRY(check_pass_name(name));
  if (!options.stop_after.empty()) STEPC_TRY(check_pass_name(options.stop_after));
  for (const Pass& pass : kPasses) {
    const auto& disable = options.disable;
    if (std::find(disable.begin(), disable.end(), pass.name) == disable.end()) {
      run_pass(pass, module, options);
      if (options.after) options.after(pass, module);
    }
    if (pass.name == options.stop_after) break;
  }
  return {};
}

}  // namespace stepc
