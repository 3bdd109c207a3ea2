// The model's own products and attention through the portable templates: of a small model against the evaluator, and of
// the presets, assembled.
#include <set>

#include "compiler/pipeline.h"
#include "tests/model/model_run.h"
#include "tests/portable/portable.h"

namespace stepc {
namespace {

bool has_products(const Group& group) {
  return group.schedule == Template::matmul || group.schedule == Template::attention ||
         group.schedule == Template::attention_grad;
}

void check_step(const Config& config) {
  test::ModelRun run(config, differentiate);
  Module fused = run.module();
  REQUIRE(run_passes(fused).has_value());
  test::ModelRun fused_run(config, fused);
  std::mt19937 random(3);
  const TensorMap inputs{{"tokens", test::random_ids(random, config, config.train.batch)},
                         {"targets", test::random_ids(random, config, config.train.batch)}};
  TensorMap trace;
  fused_run.run("step", fused_run.with_scalars("step", inputs, 1), &trace);
  const Program& program = *fused_run.module().find_program("step");
  for (const Group& group : program.groups) {
    if (!has_products(group)) continue;
    CAPTURE(group.name);
    const test::Tolerance tolerance =
        group.schedule == Template::matmul ? test::Tolerance{2e-5, 1e-5} : test::Tolerance{1e-5, 4e-3};
    test::check_group(program, group, trace, test::portable({"sm_80"}), test::on_gpu({"sm_80"}), tolerance);
  }
}

TEST_CASE("portable products of a small model's step") {
  Config config = test::small_config();
  config.model.dim = 32;
  config.model.head_dim = 16;
  check_step(config);  // 10 and 20 columns of experts: rows that are aligned to nothing
  config.model.ffn = 24;
  check_step(config);
}

void assemble_preset(const std::string& preset, const std::string& arch) {
  CAPTURE(preset);
  CAPTURE(arch);
  Module module = build_module(preset_config(preset).value(), differentiate);
  REQUIRE(run_passes(module).has_value());
  std::set<std::string> seen;
  for (const Program& program : module.programs)
    for (const Group& group : program.groups) {
      if (!has_products(group)) continue;
      CAPTURE(program.name);
      CAPTURE(group.name);
      const auto scheduled = test::portable({arch})(program, group);
      REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
      for (const kernel::Kernel* kernel : test::kernels_of(*scheduled)) {
        if (!seen.insert(kernel::print_kernel(*kernel)).second) continue;
        if (std::getenv("STEPC_LIST")) MESSAGE(scheduled->problem << ": " << scheduled->config);
        const auto code = emit_ptx(*kernel, {arch});
        REQUIRE_MESSAGE(code.has_value(), code.error().text() << kernel::print_kernel(*kernel));
        test::check_ptxas(code->ptx, arch);
      }
    }
}

TEST_CASE("portable products of the presets are made and assembled") {
  assemble_preset("tiny", "sm_80");
  assemble_preset("tiny", "sm_89");
  assemble_preset("moe-4b", "sm_90a");
}

}  // namespace
}  // namespace stepc
