// The text of kernels as a reader meets it, and the small steps behind it.
#include "compiler/kernel/hoist.h"
#include "compiler/schedule/region/boxes.h"
#include "compiler/schedule/region/views.h"
#include "tests/support/golden.h"
#include "tests/support/run_group.h"

namespace stepc {
namespace {

using schedule::Index;
using schedule::LaneIndex;

// A machine with AVX-512, whatever this one has.
const HostTarget kWide{"znver4", "", 64, true};

std::string kernel_text(const test::GroupCase& test) {
  const Module module = test::one_group_module(test);
  const auto scheduled = schedule_host(module.programs[0], module.programs[0].groups[0], kWide);
  REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
  return fmt::format("// {}; {}\n{}", scheduled->problem, scheduled->config, kernel::print_kernel(scheduled->kernel));
}

ValueId rows_of(GraphBuilder& g, ValueId x, const Shape& shape) { return g.broadcast(x, shape, {0}); }

TEST_CASE("the text of an RMSNorm gradient") {
  test::check_golden(
      "schedule/rmsnorm_grad.host.kir",
      kernel_text({"", Template::row, [](GraphBuilder& g) {
                     const Shape shape{4096, 256};
                     const ValueId x = g.cast(g.input("x", {Dtype::bf16, shape}), Dtype::f32);
                     const ValueId dy = g.cast(g.input("dy", {Dtype::bf16, shape}), Dtype::f32);
                     const ValueId w = g.broadcast(g.input("w", {Dtype::f32, {256}}), shape, {1});
                     const ValueId mean = g.mul(g.reduce(Op::reduce_sum, g.mul(x, x), {1}), 1.0 / 256);
                     const ValueId scale = g.unary(Op::rsqrt, g.add(mean, 1e-5));
                     const ValueId dxhat = g.mul(dy, w);
                     const ValueId dots = g.mul(g.reduce(Op::reduce_sum, g.mul(dxhat, x), {1}), 1.0 / 256);
                     const ValueId shrink = g.mul(dots, g.mul(scale, g.mul(scale, scale)));
                     const ValueId dx =
                         g.sub(g.mul(dxhat, rows_of(g, scale, shape)), g.mul(x, rows_of(g, shrink, shape)));
                     g.output("dx", g.cast(dx, Dtype::bf16));
                     const ValueId dw = g.reshape(g.mul(dy, g.mul(x, rows_of(g, scale, shape))), {64, 64, 256});
                     g.output("dw_partial", g.reduce(Op::reduce_sum, dw, {1}));
                   }}));
}

TEST_CASE("the text of an AdamW update: any shape is one dimension") {
  test::check_golden(
      "schedule/adamw.host.kir",
      kernel_text({"", Template::pointwise, [](GraphBuilder& g) {
                     const Shape shape{64, 3, 64};
                     const ValueId old = g.input("p", {Dtype::bf16, shape});
                     const ValueId gradient = g.input("g", {Dtype::f32, shape});
                     const ValueId p = g.cast(old, Dtype::f32);
                     const ValueId m = g.add(g.mul(g.input("m", {Dtype::f32, shape}), 0.9), g.mul(gradient, 0.1));
                     const ValueId v = g.add(g.mul(g.input("v", {Dtype::f32, shape}), 0.999),
                                             g.mul(g.mul(gradient, gradient), 0.001));
                     const ValueId direction = g.div(m, g.add(g.unary(Op::sqrt, v), 1e-8));
                     g.output("p", g.cast(g.sub(p, g.mul(direction, g.input("lr", {Dtype::f32, {}}))), Dtype::bf16));
                     g.output("m", m);
                     g.output("v", v);
                   }}));
}

TEST_CASE("the text of a SwiGLU gradient: both halves from one evaluation") {
  test::check_golden(
      "schedule/swiglu_grad.host.kir",
      kernel_text({"", Template::pointwise, [](GraphBuilder& g) {
                     const ValueId z = g.cast(g.input("z", {Dtype::bf16, {512, 384}}), Dtype::f32);
                     const ValueId dy = g.cast(g.input("dy", {Dtype::bf16, {512, 192}}), Dtype::f32);
                     const ValueId gate = g.slice(z, 1, 0, 192);
                     const ValueId up = g.slice(z, 1, 192, 384);
                     const ValueId sigmoid = g.unary(Op::logistic, gate);
                     const ValueId silu = g.mul(gate, sigmoid);
                     const ValueId slope = g.add(sigmoid, g.mul(silu, g.add(g.unary(Op::neg, sigmoid), 1.0)));
                     const std::vector<ValueId> halves{g.mul(g.mul(dy, up), slope), g.mul(dy, silu)};
                     g.output("dz", g.cast(g.emit1(Op::concat, halves, {{AttrKey::axis, int64_t{1}}}), Dtype::bf16));
                   }}));
}

TEST_CASE("lanes keep a known pattern through views where a row holds whole vectors") {
  kernel::KernelBuilder builder("k", kernel::Target::host);
  builder.set_grid(Index(1));
  builder.begin_role("main");
  schedule::LaneMath math(builder);
  math.set_lanes({8, 8, std::nullopt});
  builder.loop("c", Index(0), Index(96), Index(8), [&](Index c) {
    const LaneIndex lanes = math.along(c);
    const schedule::Position pairs = schedule::reshape_position(math, {lanes}, {96}, {24, 2, 2});
    CHECK(pairs[0].pattern == std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1});
    CHECK(pairs[1].pattern == std::vector<int64_t>{0, 0, 1, 1, 0, 0, 1, 1});
    CHECK(pairs[2].pattern == std::vector<int64_t>{0, 1, 0, 1, 0, 1, 0, 1});
    const schedule::Position back = schedule::reshape_position(math, pairs, {24, 2, 2}, {96});
    CHECK(schedule::position_key(builder, back) == schedule::position_key(builder, {lanes}));
    // Rows of 16 hold two vectors: the vector decides the row.
    const schedule::Position rows = schedule::reshape_position(math, {lanes}, {96}, {6, 16});
    CHECK(rows[0].uniform());
    CHECK(rows[1].pattern == lanes.pattern);
    // Rows of 12 do not: only the running kernel knows.
    const schedule::Position odd = schedule::reshape_position(math, {lanes}, {96}, {8, 12});
    CHECK(odd[0].dynamic.valid());
  });
}

TEST_CASE("results are cut at the seams of pads and concats, unless the pieces are slivers") {
  Module module{"m", {}, {}};
  GraphBuilder g(module, "p");
  const ValueId x = g.input("x", {Dtype::f32, {4, 32}});
  const auto pad = [&](int64_t low, int64_t high) {
    return g.emit1(Op::pad, {x},
                   {{AttrKey::low, std::vector<int64_t>{0, low}}, {AttrKey::high, std::vector<int64_t>{0, high}}});
  };
  const ValueId halves = g.add(pad(0, 32), pad(32, 0));
  const ValueId sliver = g.unary(Op::neg, pad(1, 31));
  g.output("halves", halves);
  g.output("sliver", sliver);
  Group group{"k", Template::pointwise, {}};
  for (size_t n = 1; n < module.programs[0].nodes.size() - 2; ++n) group.nodes.push_back(static_cast<NodeId>(n));
  const Program& program = module.programs[0];
  const auto boxes = schedule::boxes_of(program, group, halves, 8, true);
  REQUIRE(boxes.size() == 2);
  CHECK(boxes[0].extents == Shape{4, 32});
  CHECK(boxes[1].offset == std::vector<int64_t>{0, 32});
  CHECK(schedule::boxes_of(program, group, sliver, 8, true).size() == 1);
}

TEST_CASE("what a loop does not change moves out of it; what it may not stays") {
  kernel::KernelBuilder builder("k", kernel::Target::host);
  const kernel::BufferId x = builder.global("x", Dtype::f32, {4});
  const kernel::BufferId y = builder.global("y", Dtype::f32, {4, 8});
  builder.set_grid(Index(1));
  builder.begin_role("main");
  builder.loop("i", Index(0), Index(4), Index(1), [&](Index i) {
    builder.loop("j", Index(0), Index(8), Index(1), [&](Index j) {
      const kernel::Value row = builder.load(x, {i}, {});
      const kernel::Value two = builder.constant(2, Dtype::f32);
      const kernel::Value old = builder.load(y, {i, Index(0)}, {});
      const kernel::Value product = builder.pointwise(kernel::Op::mul, {row, two});
      builder.store(builder.pointwise(kernel::Op::add, {product, old}), y, {i, j});
    });
  });
  const kernel::Kernel kernel = hoist_invariants(builder.finish());
  REQUIRE(kernel::verify(kernel).has_value());
  CHECK(kernel::print_kernel(kernel) == R"(kernel @k host
global %x: f32[4]
global %y: f32[4, 8]
grid 1

role @main {
  %c: f32[] = constant {value=2}
  for %i = 0 .. 4 {
    %x_v: f32[] = load %x[%i]
    %mul: f32[] = mul %x_v, %c
    for %j = 0 .. 8 {
      %y_v: f32[] = load %y[%i, 0]
      %add: f32[] = add %mul, %y_v
      store %add, %y[%i, %j]
    }
  }
}
)");
}

}  // namespace
}  // namespace stepc
