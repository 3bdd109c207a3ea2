// Groups without products: of random programs and of the model, each on the evaluator's own values; and of the presets,
// assembled.
#include "compiler/schedule/cuda/one_role.h"

#include <set>

#include "compiler/graph/autodiff.h"
#include "compiler/graph/fuse.h"
#include "compiler/graph/order.h"
#include "compiler/pipeline.h"
#include "tests/model/model_run.h"
#include "tests/support/ptxas.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_gpu.h"

namespace stepc {
namespace {

bool is_one_role(const Group& group) {
  return group.schedule != Template::matmul && group.schedule != Template::attention &&
         group.schedule != Template::attention_grad;
}

void check_groups_on_gpu(const Program& program, const TensorMap& trace) {
  for (const Group& group : program.groups) {
    if (!is_one_role(group)) continue;
    CAPTURE(group.name);
    test::check_group(program, group, trace, cuda::schedule_one_role, test::on_gpu({"sm_90a"}), {1e-4, 1e-4});
  }
}

TEST_CASE("one role: kernels of random fused programs compute what the evaluator does") {
  const char* wanted = std::getenv("STEPC_SEEDS");  // for a longer search
  const uint64_t count = wanted ? std::strtoull(wanted, nullptr, 10) : 6;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    CAPTURE(seed);
    const auto kind = seed % 2 ? test::GraphKind::all : test::GraphKind::plain;
    Module module = test::random_graph(seed, 10 + static_cast<int>(seed % 30), kind);
    fuse(module.programs[0]);
    order(module.programs[0]);
    TensorMap persistents = test::random_persistents(module, seed);
    TensorMap trace;
    const TensorMap inputs = test::random_inputs(module.programs[0], seed);
    REQUIRE(evaluate(module.programs[0], persistents, inputs, Precision::f32, &trace).has_value());
    check_groups_on_gpu(module.programs[0], trace);
  }
}

TEST_CASE("one role: kernels of a small model's step compute what the evaluator does") {
  const Config config = test::small_config();
  test::ModelRun run(config, differentiate);
  Module fused = run.module();
  REQUIRE(run_passes(fused).has_value());
  test::ModelRun fused_run(config, fused);
  std::mt19937 random(3);
  TensorMap inputs{{"tokens", test::random_ids(random, config, config.train.batch)},
                   {"targets", test::random_ids(random, config, config.train.batch)}};
  TensorMap trace;
  fused_run.run("step", fused_run.with_scalars("step", inputs, 1), &trace);
  check_groups_on_gpu(*fused_run.module().find_program("step"), trace);
}

TEST_CASE("one role: routing and scattering of more rows than a CTA has threads") {
  test::run_case({"route",
                  Template::route,
                  [](GraphBuilder& g) {
                    const ValueId coarse = g.input("coarse", {Dtype::i32, {1536, 8}});
                    const auto routed = g.emit(Op::route, {g.cast(coarse, Dtype::f32)},
                                               {{AttrKey::top, int64_t{2}}, {AttrKey::capacity, int64_t{300}}});
                    g.output("slot", routed[1]);
                    g.output("assignment", routed[2]);
                    g.output("count", routed[3]);
                  },
                  {},
                  {{"coarse", {0, 9}}}},
                 cuda::schedule_one_role, test::on_gpu({"sm_90a"}));
  test::run_case({"scatter",
                  Template::scatter,
                  [](GraphBuilder& g) {
                    const ValueId x = g.cast(g.input("x", {Dtype::bf16, {3000, 520}}), Dtype::f32);
                    const ValueId index = g.input("index", {Dtype::i32, {3000}});
                    g.output("sum", g.emit1(Op::scatter_add_rows, {x, index}, {}, {Dtype::f32, {97, 520}}));
                  },
                  {1e-6, 1e-5},
                  {{"index", {-1, 96}}}},
                 cuda::schedule_one_role, test::on_gpu({"sm_90a"}));
}

TEST_CASE("one role: scattering to one row, and of rows that go to none") {
  for (int64_t rows : {1, 2}) {
    CAPTURE(rows);
    test::run_case({"scatter",
                    Template::scatter,
                    [&](GraphBuilder& g) {
                      const ValueId x = g.cast(g.input("x", {Dtype::bf16, {300, 40}}), Dtype::f32);
                      const ValueId index = g.input("index", {Dtype::i32, {300}});
                      g.output("sum", g.emit1(Op::scatter_add_rows, {x, index}, {}, {Dtype::f32, {rows, 40}}));
                    },
                    {1e-6, 1e-5},
                    {{"index", {-1, static_cast<int32_t>(rows) - 1}}}},
                   cuda::schedule_one_role, test::on_gpu({"sm_90a"}));
  }
}

TEST_CASE("one role: every kernel of the presets is made and assembled") {
  std::set<std::string> seen;
  for (const char* preset : {"tiny", "moe-4b"}) {
    Module module = build_module(preset_config(preset).value(), differentiate);
    REQUIRE(run_passes(module).has_value());
    for (const Program& program : module.programs)
      for (const Group& group : program.groups) {
        if (!is_one_role(group)) continue;
        CAPTURE(std::string(preset));
        CAPTURE(program.name);
        CAPTURE(group.name);
        const auto scheduled = cuda::schedule_one_role(program, group);
        REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
        if (!seen.insert(kernel::print_kernel(scheduled->kernel)).second) continue;
        if (std::getenv("STEPC_LIST")) MESSAGE(program.name << " " << scheduled->problem << ": " << scheduled->config);
        for (const char* arch : {"sm_80", "sm_90a"}) {
          const auto code = emit_ptx(scheduled->kernel, {arch});
          REQUIRE_MESSAGE(code.has_value(), code.error().text() << kernel::print_kernel(scheduled->kernel));
          if (std::string(arch) == "sm_90a") test::check_ptxas(code->ptx, arch);
        }
      }
  }
}

}  // namespace
}  // namespace stepc
