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

TEST_CASE("the contractions of moe-4b's training step assemble without spills") {
  const auto found = find_ptxas();
  REQUIRE_MESSAGE(found.has_value(), found.error().text());
  if (!*found) return test::skip("gemm_model_ptxas", "no ptxas");
  Module module = build_module(*preset_config("moe-4b"), differentiate);
  REQUIRE(run_passes(module).has_value());
  std::set<std::string> seen;
  int taken = 0, left = 0;
  for (const Program& program : module.programs)
    for (const Group& group : program.groups) {
      if (group.schedule != Template::matmul || program.name != "step") continue;
      const auto scheduled = schedule_gemm(program, group, {"sm_90a"});
      REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
      if (!*scheduled) {
        ++left;
        continue;
      }
      const kernel::Kernel& kernel = (*scheduled)->kernel;
      if (!seen.insert(kernel::print_kernel(kernel)).second) continue;
      ++taken;
      CAPTURE(group.name);
      CAPTURE((*scheduled)->problem);
      CAPTURE((*scheduled)->config);
      const auto code = emit_ptx(kernel, {"sm_90a"});
      REQUIRE_MESSAGE(code.has_value(), code.error().text() << kernel::print_kernel(kernel));
      const auto cubin = assemble(**found, code->ptx, "sm_90a", group.name);
      REQUIRE_MESSAGE(cubin.has_value(), cubin.error().text());
      CHECK(cubin->report.registers <= 168);
      CHECK_FALSE(cubin->report.uses_local_memory());
      for (const std::string& remark : cubin->report.remarks) FAIL_CHECK(remark);
    }
  CHECK(taken > 8);
  CHECK(left == 3 * 12);  // of each router: f32, for the portable template
}

}  // namespace
}  // namespace stepc::sm90
