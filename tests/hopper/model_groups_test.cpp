// Every contraction of the reference model's training step that Hopper's template takes: ptxas keeps all of it in
// registers.
#include <set>

#include "compiler/emit/nvptx.h"
#include "compiler/graph/autodiff.h"
#include "compiler/pipeline.h"
#include "compiler/ptxas/ptxas.h"
#include "compiler/schedule/sm90/templates.h"
#include "ir/graph/fused.h"
#include "ir/kernel/print.h"
#include "model/config.h"
#include "model/programs.h"
#include "tests/support/skip.h"

namespace stepc::sm90 {
namespace {

struct Tally {
  std::set<std::string> kernels;  // by text
  int left = 0;                   // for the portable template
};

void check_contractions(const Ptxas& ptxas, const Program& program, Tally& tally) {
  for (const Group& group : program.groups) {
    if (group.schedule != Template::matmul) continue;
    const auto scheduled = schedule_gemm(program, group, {"sm_90a"});
    REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
    tally.left += !*scheduled;
    if (!*scheduled || !tally.kernels.insert(kernel::print_kernel((*scheduled)->kernel)).second) continue;
    CAPTURE(group.name);
    CAPTURE((*scheduled)->problem);
    CAPTURE((*scheduled)->config);
    const auto code = emit_ptx((*scheduled)->kernel, {"sm_90a"});
    REQUIRE_MESSAGE(code.has_value(), code.error().text());
    const auto cubin = assemble(ptxas, code->ptx, "sm_90a", group.name);
    REQUIRE_MESSAGE(cubin.has_value(), cubin.error().text());
    CHECK(cubin->report.registers <= 168);
    CHECK_FALSE(cubin->report.uses_local_memory());
    for (const std::string& remark : cubin->report.remarks) FAIL_CHECK(remark);
  }
}

TEST_CASE("the contractions of the presets' training steps assemble without spills") {
  const auto ptxas = find_ptxas();
  REQUIRE_MESSAGE(ptxas.has_value(), ptxas.error().text());
  if (!*ptxas) return test::skip("gemm_model_ptxas", "no ptxas");
  for (const char* name : {"tiny", "small", "moe-4b"}) {
    CAPTURE(name);
    Module module = build_module(*preset_config(name), differentiate);
    REQUIRE(run_passes(module).has_value());
    Tally tally;
    for (const Program& program : module.programs)
      if (program.name == "step") check_contractions(**ptxas, program, tally);
    CHECK(tally.kernels.size() > 8);
    // Three products of each router are f32.
    CHECK(tally.left == 3 * preset_config(name)->model.layers);
  }
}

}  // namespace
}  // namespace stepc::sm90
