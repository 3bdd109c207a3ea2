// Epilogues whose operands come through the ring of stages: an optimizer's update behind a weight gradient.
#include "compiler/schedule/region/matmul_group.h"
#include "compiler/schedule/sm90/templates.h"
#include "tests/hopper/run_hopper.h"
#include "tests/support/golden.h"

namespace stepc::sm90 {
namespace {

using test::GroupCase;

ScheduledKernel scheduled(const Program& program, const Group& group, const GpuTarget& target) {
  auto kernel = schedule_gemm(program, group, target);
  REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
  REQUIRE_MESSAGE(kernel->has_value(), "the template does not take the group");
  return std::move(**kernel);
}

// Two tasks take turns over all tiles.
void check(GroupCase test, bool streams = true, uint64_t seed = 1) {
  test.tolerance = {1e-5, 0.02};
  for (const char* name : {"x", "w"}) test.ranges.try_emplace(name, -0.5, 0.5);
  const auto schedule = [&](const Program& program, const Group& group) {
    ScheduledKernel made = scheduled(program, group, {"sm_90a", 2});
    CHECK_MESSAGE((made.config.find("results through the ring") != std::string::npos) == streams, made.config);
    return made;
  };
  test::check_on_gpu(test, schedule, seed);
}

// What an optimizer does with a gradient of `shape`, the bf16 weight and two moments, where `apply` says so.
void update(GraphBuilder& g, const Shape& shape, ValueId gradient) {
  const TensorType wide_type{Dtype::f32, shape};
  const ValueId old_w = g.input("p", {Dtype::bf16, shape}), w32 = g.cast(old_w, Dtype::f32);
  const ValueId old_m = g.input("m", wide_type), old_v = g.input("v", wide_type);
  const ValueId rate = g.input("rate", {Dtype::f32, {}});
  const ValueId apply = g.broadcast(g.unary(Op::is_finite, rate), shape, {});
  const ValueId m = g.add(g.mul(old_m, 0.9), g.mul(gradient, 0.1));
  const ValueId v = g.add(g.mul(old_v, 0.95), g.mul(g.mul(gradient, gradient), 0.05));
  const ValueId step = g.div(m, g.add(g.unary(Op::sqrt, v), 1e-3));
  const ValueId moved = g.sub(w32, g.mul(g.add(step, g.mul(w32, 0.1)), rate));
  g.output("p.new", g.cast(g.select(apply, moved, w32), Dtype::bf16));
  g.output("m.new", g.select(apply, m, old_m));
  g.output("v.new", g.select(apply, v, old_v));
}

struct Sizes {
  int64_t batch, m, n, k;
};

// Counted k is that of a weight gradient.
GroupCase update_case(const Sizes& s, CountedAxis axis) {
  GroupCase test{fmt::format("update {}x{}x{}*{}", s.m, s.n, s.k, s.batch), Template::matmul, [=](GraphBuilder& g) {
                   const bool transposed = axis != CountedAxis::m;
                   const Shape shape = transposed ? Shape{s.batch, s.k, s.m} : Shape{s.batch, s.m, s.k};
                   const ValueId x = g.input("x", {Dtype::bf16, shape});
                   const ValueId dy = g.input("w", {Dtype::bf16, {s.batch, s.k, s.n}});
                   const bool counted = axis != CountedAxis::none;
                   const ValueId count = counted ? g.input("count", {Dtype::i32, {s.batch}}) : ValueId::none;
                   update(g, {s.batch, s.m, s.n}, g.matmul(x, dy, Dtype::f32, transposed, false, count));
                 }};
  test.ranges["v"] = {0.1, 1};
  return test;
}

TEST_CASE("an optimizer's update behind a weight gradient, at edges and in batches") {
  for (const Sizes& s : {Sizes{1, 128, 256, 64}, {1, 136, 200, 264}, {2, 264, 328, 136}, {3, 384, 520, 72}}) {
    const GroupCase test = update_case(s, CountedAxis::none);
    for (uint64_t seed = 1; seed <= 3; ++seed) check(test, true, seed);
  }
}

// Turns of the ring differ from batch to batch; what holds nothing takes those of its results alone.
TEST_CASE("an update behind a gradient of counted rows") {
  for (const Sizes& s : {Sizes{2, 264, 328, 136}, {3, 384, 520, 200}})
    for (const CountedAxis axis : {CountedAxis::k, CountedAxis::m}) {
      const auto all = static_cast<double>(axis == CountedAxis::k ? s.k : s.m);
      for (const auto& [low, high] : {std::pair{all, all}, {0.0, all}, {0.0, 0.0}}) {
        GroupCase test = update_case(s, axis);
        test.ranges["count"] = {low, high};
        if (low < all) test.ranges["x"] = {0, 0};  // as the counts promise
        check(test);
      }
    }
}

// In a place of the ring it would be stored over by what the place holds.
TEST_CASE("a result of the product's shape in another order is not sent from the ring") {
  for (const int64_t m : {200, 264}) {
    const Shape shape{2, m, 264};
    GroupCase test{"reversed", Template::matmul, [=](GraphBuilder& g) {
                     const ValueId x = g.input("x", {Dtype::bf16, {2, 72, m}});
                     const ValueId dy = g.input("w", {Dtype::bf16, {2, 72, 264}});
                     const ValueId product = g.matmul(x, dy, Dtype::f32, true, false);
                     const ValueId sum = g.add(g.input("m", {Dtype::f32, shape}), product);
                     const ValueId other = g.add(g.input("v", {Dtype::f32, shape}), g.mul(product, product));
                     const Attrs swap{{AttrKey::permutation, std::vector<int64_t>{0, 2, 1}}};
                     const Attrs last{{AttrKey::axes, std::vector<int64_t>{2}}};
                     g.output("sum", sum);
                     g.output("other",
                              m == 264 ? g.emit1(Op::transpose, {other}, swap) : g.emit1(Op::reverse, {other}, last));
                   }};
    check(test);
  }
}

// What lies past the edges of a tile is written by nobody.
TEST_CASE("a result that no operand has a place for, of whole tiles and at edges") {
  for (const Sizes& s : {Sizes{1, 128, 256, 64}, {2, 256, 512, 72}, {1, 64, 8, 72}, {2, 136, 200, 72}}) {
    const Shape shape{s.batch, s.m, s.n};
    check({fmt::format("square {}x{}", s.m, s.n), Template::matmul, [=](GraphBuilder& g) {
             const ValueId x = g.input("x", {Dtype::bf16, {s.batch, s.k, s.m}});
             const ValueId dy = g.input("w", {Dtype::bf16, {s.batch, s.k, s.n}});
             const ValueId product = g.matmul(x, dy, Dtype::f32, true, false);
             g.output("sum", g.add(g.input("m", {Dtype::f32, shape}), product));
             g.output("square", g.mul(product, product));
           }});
  }
}

TEST_CASE("rows that TMA cannot take are for the other epilogue") {
  GroupCase test{"update of 132 x 66 + 1", Template::matmul, [](GraphBuilder& g) {
                   const ValueId x = g.input("x", {Dtype::bf16, {72, 136}});
                   const ValueId dy = g.input("w", {Dtype::bf16, {67, 72}});
                   update(g, {136, 67}, g.matmul(x, dy, Dtype::f32, true, true));
                 }};
  test.ranges["v"] = {0.1, 1};
  check(test, false);
}

TEST_CASE("the text of an update behind a gradient of counted rows") {
  const Module module = test::one_group_module(update_case({8, 3072, 8192, 8192}, CountedAxis::k));
  const ScheduledKernel made = scheduled(module.programs[0], module.programs[0].groups[0], {"sm_90a"});
  test::check_golden("schedule/update.sm90.kir",
                     fmt::format("// {}; {}\n{}", made.problem, made.config, kernel::print_kernel(made.kernel)));
}

}  // namespace
}  // namespace stepc::sm90
