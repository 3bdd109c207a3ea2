// What follows attention's gradient in its kernel: RoPE turned back, from a table of pairs as the model has it or from
// two with a number for each element. Fused and apart give the same bits.
#include "compiler/emit/nvptx.h"
#include "compiler/graph/fuse.h"
#include "compiler/graph/fuse_check.h"
#include "compiler/ptxas/ptxas.h"
#include "compiler/schedule/sm90/templates.h"
#include "tests/hopper/run_hopper.h"
#include "tests/support/skip.h"

namespace stepc::sm90 {
namespace {

enum class Table : uint8_t { none, pairs, elements };

struct TailCase {
  int64_t batch = 1, tokens = 64, heads = 2, dim = 64;
  Table table = Table::pairs;
  bool atomic = false;
  Shape shape() const { return {batch, tokens, 3, heads, dim}; }
};

// Of x[B, T, 3, H, d], or its pairs. The second factor of a pair's partner has the sign that the model gives it.
std::pair<ValueId, ValueId> factors(GraphBuilder& g, const TailCase& test, const Shape& paired) {
  const Shape all{test.tokens, 3, test.dim};
  const std::vector<int64_t> axes{1, 2, 4};
  if (test.table == Table::elements) {
    const auto wide = [&](const char* name) {
      const ValueId table = g.broadcast(g.input(name, {Dtype::f32, all}), test.shape(), axes);
      return g.reshape(table, paired);
    };
    const ValueId cosines = wide("cos");
    return {cosines, wide("sin")};
  }
  const ValueId split = g.reshape(g.input("turns", {Dtype::f32, all}), {test.tokens, 3, test.dim / 2, 2});
  const auto turn = [&](int64_t which) {
    const ValueId one = g.slice(split, 3, which, which + 1);
    return g.broadcast(g.reshape(one, {test.tokens, 3, test.dim / 2}), paired, axes);
  };
  const TensorType reals{Dtype::f32, paired};
  const ValueId first = g.binary(Op::equal, g.iota(5, paired), g.constant(0, {Dtype::i32, paired}));
  const ValueId sign = g.select(first, g.constant(-1, reals), g.constant(1, reals));
  return {turn(0), g.mul(turn(1), sign)};
}

// bf16[B * T, 3 * H * d], as products read it.
ValueId turned_back(GraphBuilder& g, const TailCase& test, ValueId gradient) {
  const Shape paired{test.batch, test.tokens, 3, test.heads, test.dim / 2, 2};
  const Shape matrix{test.batch * test.tokens, 3 * test.heads * test.dim};
  if (test.table == Table::none) return gradient;
  const auto [cosines, sines] = factors(g, test, paired);
  const ValueId x = g.reshape(g.cast(gradient, Dtype::f32), paired);
  const Attrs last{{AttrKey::axes, std::vector<int64_t>{5}}};
  const ValueId partner = g.emit1(Op::reverse, {g.mul(x, sines)}, last);
  return g.cast(g.reshape(g.add(g.mul(x, cosines), partner), matrix), Dtype::bf16);
}

ValueId gradient_of(GraphBuilder& g, const TailCase& test) {
  const TensorType rows{Dtype::bf16, {test.batch, test.tokens, test.heads, test.dim}};
  const ValueId qkv = g.input("qkv", {Dtype::bf16, test.shape()});
  const ValueId out = g.input("out", rows);
  const ValueId lse = g.input("lse", {Dtype::f32, {test.batch, test.heads, test.tokens}});
  const ValueId dout = g.input("dout", rows);
  Attrs attributes{{AttrKey::causal, true}, {AttrKey::scale, 0.125}};
  if (test.atomic) attributes.set(AttrKey::atomic, true);
  return g.emit1(Op::attention_grad, {qkv, out, lse, dout}, attributes);
}

test::GroupCase gradient_case(const TailCase& test) {
  return {"gradient", Template::attention_grad,
          [test](GraphBuilder& g) { g.output("dqkv", turned_back(g, test, gradient_of(g, test))); }};
}

ScheduledKernel scheduled_case(const Module& module, const GpuTarget& target) {
  const Program& program = module.programs[0];
  test::require(verify(module));
  test::require(check_groups(program));
  const auto scheduled = schedule_attention_grad(program, program.groups[0], target);
  REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
  REQUIRE(scheduled->has_value());
  return **scheduled;
}

// The result of the group's kernels.
Tensor run_gradient(const TailCase& test, const TensorMap& inputs, uint64_t seed) {
  const Module module = test::one_group_module(gradient_case(test));
  const Program& program = module.programs[0];
  const ScheduledKernel scheduled = scheduled_case(module, {"sm_90a", 3});
  std::vector<test::Bytes> before, after;
  for (ValueId operand : scheduled.operands) {
    const std::string& name = program.producer(operand).attrs.text(AttrKey::name);
    before.push_back(test::guarded(test::to_bytes(inputs.at(name))));
  }
  const size_t result = before.size();
  const TensorType& type = program.type(scheduled.results.at(0));
  for (const int64_t bytes : {numel(type.shape) * 2, scheduled.workspace_bytes})
    before.push_back(test::guarded(test::Bytes(static_cast<size_t>(bytes), std::byte{0xff})));
  test::run_on_gpu(scheduled, before, after, seed);
  for (size_t i = 0; i < after.size(); ++i) {
    if (i < result) CHECK(after[i] == before[i]);
    CHECK(std::equal(after[i].begin(), after[i].begin() + 256, before[i].begin()));
    CHECK(std::equal(after[i].end() - 256, after[i].end(), before[i].end() - 256));
  }
  return test::from_bytes(type, after[result].data() + 256);
}

// The tail alone, by the graph evaluator.
Tensor evaluate_tail(const TailCase& test, TensorMap inputs, const Tensor& gradient) {
  Module module{"tail", {}, {}};
  GraphBuilder g(module, "p");
  g.output("dqkv", turned_back(g, test, g.input("gradient", gradient.type)));
  inputs["gradient"] = gradient;
  TensorMap none;
  auto results = evaluate(module.programs[0], none, inputs);
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  return results->at("dqkv");
}

void check_same_bits(const TailCase& test, uint64_t seed) {
  CAPTURE(fmt::format("B={} T={} H={} d={}, table {}", test.batch, test.tokens, test.heads, test.dim,
                      static_cast<int>(test.table)));
  const test::GroupCase whole = gradient_case(test);
  const Module module = test::one_group_module(whole);
  const TensorMap inputs = test::random_inputs(whole, module.programs[0]);
  TailCase alone = test;
  alone.table = Table::none;
  const Tensor wanted = evaluate_tail(test, inputs, run_gradient(alone, inputs, seed));
  const std::string difference = test::differences(run_gradient(test, inputs, seed), wanted, {});
  CHECK_MESSAGE(difference.empty(), difference);
}

TEST_CASE("RoPE turned back in the kernels of attention's gradient: the same bits") {
  if (!test::gpu_runs("sm_90a")) return test::skip("attention_tail", "no sm_90a");
  uint64_t seed = 1;
  for (const Table table : {Table::pairs, Table::elements}) {
    check_same_bits({2, 128, 3, 64, table}, seed++);
    check_same_bits({1, 256, 2, 128, table}, seed++);
    check_same_bits({1, 128, 1, 128, table}, seed++);
  }
  check_same_bits({1, 384, 2, 64, Table::pairs}, seed);
}

TEST_CASE("kernels with RoPE turned back stay in bounds") {
  for (const int64_t dim : {64, 128}) {
    const Module module = test::one_group_module(gradient_case({2, 256, 3, dim, Table::pairs}));
    const ScheduledKernel scheduled = scheduled_case(module, {"sm_90a"});
    for (const kernel::Kernel* kernel : {&scheduled.kernel, &scheduled.later.at(0).kernel})
      test::check_kernel(*kernel, true);
  }
}

TEST_CASE("kernels with RoPE turned back keep their registers and read its table once") {
  const auto ptxas = find_ptxas();
  REQUIRE_MESSAGE(ptxas.has_value(), ptxas.error().text());
  for (const int64_t dim : {64, 128})
    for (const int64_t tokens : {128, 256, 2048}) {
      CAPTURE(dim);
      CAPTURE(tokens);
      const Module module = test::one_group_module(gradient_case({16, tokens, 24, dim, Table::pairs}));
      const ScheduledKernel scheduled = scheduled_case(module, {"sm_90a"});
      REQUIRE(scheduled.later.size() == 1);
      for (const kernel::Kernel* kernel : {&scheduled.kernel, &scheduled.later[0].kernel}) {
        CAPTURE(kernel->name);
        for (const kernel::KOp& op : kernel->ops) CHECK(op.op != kernel::Op::gather);
        if (!*ptxas) continue;
        const auto code = emit_ptx(*kernel, {"sm_90a"});
        REQUIRE_MESSAGE(code.has_value(), code.error().text());
        const auto cubin = assemble(**ptxas, code->ptx, "sm_90a", kernel->name);
        REQUIRE_MESSAGE(cubin.has_value(), cubin.error().text());
        CHECK(cubin->report.registers <= 168);
        CHECK_FALSE(cubin->report.uses_local_memory());
        for (const std::string& remark : cubin->report.remarks) FAIL_CHECK(remark);
      }
    }
  if (!*ptxas) return test::skip("attention_tail_ptxas", "no ptxas");
}

// ---- fusion -------------------------------------------------------------------------------------------------------

struct Fused {
  int64_t gradients = 0;
  int64_t passes = 0;  // of their own
};

// The gradient, turned back, and a product that reads it; with `read_twice` the gradient is also wanted as it is.
Fused fused_case(const TailCase& test, bool for_sm90 = true, bool read_twice = false) {
  Module module{"fused", {}, {}};
  GraphBuilder g(module, "p");
  const ValueId gradient = gradient_of(g, test);
  const ValueId weights = g.input("w", {Dtype::bf16, {3 * test.heads * test.dim, 64}});
  g.output("dx", g.matmul(turned_back(g, test, gradient), weights, Dtype::bf16));
  if (read_twice) g.output("gradient", gradient);
  FuseOptions options{.updates = Updates::apart};
  if (for_sm90) options.takes_tail = attention_grad_takes_tail;
  fuse(module.programs[0], options);
  test::require(verify(module));
  test::require(check_groups(module.programs[0]));
  Fused fused;
  for (const Group& group : module.programs[0].groups) {
    fused.gradients += group.schedule == Template::attention_grad;
    fused.passes += group.schedule == Template::pointwise;
  }
  return fused;
}

TEST_CASE("RoPE's gradient joins attention's where the template takes it") {
  const auto passes = [](const TailCase& test, bool for_sm90 = true, bool read_twice = false) {
    const Fused fused = fused_case(test, for_sm90, read_twice);
    CHECK(fused.gradients == 1);
    return fused.passes;
  };
  for (const Table table : {Table::pairs, Table::elements}) {
    CHECK(passes({2, 128, 3, 64, table}) == 0);
    CHECK(passes({2, 128, 3, 64, table}, false) == 1);       // other targets
    CHECK(passes({2, 128, 3, 64, table}, true, true) == 1);  // two results
    CHECK(passes({2, 192, 3, 64, table}) == 1);              // half a tile
    CHECK(passes({2, 128, 3, 32, table}) == 1);              // heads for the portable template
    CHECK(passes({2, 128, 3, 64, table, true}) == 1);        // sums that a pass of their own rounds
  }
}

TEST_CASE("templates that cannot make what follows attention's gradient say so") {
  const Module module = test::one_group_module(gradient_case({1, 128, 1, 64, Table::pairs}));
  const Program& program = module.programs[0];
  const std::string result = program.value(program.producer(program.nodes.back().operands[0]).results[0]).name;
  const std::string wanted =
      "kernel @k: the attention_grad template of this target cannot make %" + result + ", which follows the op";
  const auto host = schedule_host(program, program.groups[0], detect_host_target());
  REQUIRE_FALSE(host.has_value());
  CHECK(host.error().text() == wanted);
  const auto portable = schedule_gpu(program, program.groups[0], {"sm_80"});
  REQUIRE_FALSE(portable.has_value());
  CHECK(portable.error().text() == wanted);
}

// ---- the same table beside the projection --------------------------------------------------------------------------

TEST_CASE("a product turned by a table of pairs loads it in order, once") {
  const TailCase test{2, 64, 2, 64, Table::pairs};
  test::GroupCase group{"rope", Template::matmul, [&](GraphBuilder& g) {
                          const ValueId a = g.input("a", {Dtype::bf16, {test.batch * test.tokens, 64}});
                          const ValueId b = g.input("b", {Dtype::bf16, {64, 3 * test.heads * test.dim}});
                          const Shape paired{test.batch, test.tokens, 3, test.heads, test.dim / 2, 2};
                          const auto [cosines, sines] = factors(g, test, paired);
                          const ValueId x = g.reshape(g.matmul(a, b, Dtype::f32), paired);
                          const Attrs last{{AttrKey::axes, std::vector<int64_t>{5}}};
                          const ValueId partner = g.emit1(Op::reverse, {x}, last);
                          const ValueId sum = g.add(g.mul(x, cosines), g.mul(partner, sines));
                          g.output("y", g.cast(g.reshape(sum, test.shape()), Dtype::bf16));
                        }};
  group.tolerance = {1.0 / 64, 1e-4};
  const auto schedule = [](const Program& program, const Group& made) {
    const ScheduledKernel scheduled = schedule_gemm(program, made, {"sm_90a", 4}).value().value();
    std::map<int64_t, int> tables;
    for (const kernel::KOp& op : scheduled.kernel.ops) {
      CHECK(op.op != kernel::Op::gather);
      if (op.op == kernel::Op::load) ++tables[numel(scheduled.kernel.frag(op.results[0]).shape)];
    }
    CHECK(tables.size() == 1);  // all loads are tiles of it
    return scheduled;
  };
  const Module module = test::one_group_module(group);
  schedule(module.programs[0], module.programs[0].groups[0]);
  if (!test::gpu_runs("sm_90a")) return test::skip("attention_tail", "no sm_90a");
  test::check_on_gpu(group, schedule);
}

}  // namespace
}  // namespace stepc::sm90
