#include "tests/support/run_group.h"

namespace stepc {
namespace {

using test::GroupCase;
using test::run_everywhere;
using test::Tolerance;

const std::vector<int64_t> kOddSizes{0, 1, 7, 31, 33, 64, 127, 1000};

TEST_CASE("pointwise chains are exact at any size") {
  for (int64_t n : kOddSizes) {
    run_everywhere({fmt::format("chain of {}", n),
                    Template::pointwise,
                    [n](GraphBuilder& g) {
                      const ValueId x = g.input("x", {Dtype::f32, {n}});
                      const ValueId y = g.input("y", {Dtype::bf16, {n}});
                      const ValueId sum = g.add(g.mul(x, x), g.cast(y, Dtype::f32));
                      g.output("f32", g.unary(Op::sqrt, g.unary(Op::abs, sum)));
                      g.output("bf16", g.cast(sum, Dtype::bf16));
                      g.output("pred", g.binary(Op::less, x, sum));
                      g.output("i32", g.cast(sum, Dtype::i32));
                    },
                    {2e-7, 0}});
  }
}

TEST_CASE("matrices with rows, columns and scalars broadcast") {
  for (const Shape& shape :
       std::vector<Shape>{{1, 1}, {5, 4}, {3, 33}, {7, 64}, {31, 7}, {2, 1000}, {0, 8}, {300, 4}}) {
    run_everywhere({"broadcast " + shape_text(shape), Template::pointwise, [shape](GraphBuilder& g) {
                      const ValueId x = g.input("x", {Dtype::f32, shape});
                      const ValueId row = g.broadcast(g.input("row", {Dtype::f32, {shape[1]}}), shape, {1});
                      const ValueId column = g.broadcast(g.input("column", {Dtype::f32, {shape[0]}}), shape, {0});
                      const ValueId scalar = g.broadcast(g.input("scalar", {Dtype::f32, {}}), shape, {});
                      g.output("y", g.add(g.mul(x, row), g.mul(column, scalar)));
                    }});
  }
}

TEST_CASE("views move positions") {
  for (int64_t n : {1, 6, 34, 128}) {
    run_everywhere({fmt::format("views of {}", n), Template::pointwise, [n](GraphBuilder& g) {
                      const ValueId x = g.input("x", {Dtype::f32, {n, 2, 3}});
                      const ValueId turned = g.transpose(x, {2, 0, 1});
                      g.output("transposed", g.mul(turned, 2.0));
                      const ValueId flat = g.reshape(x, {6 * n});
                      g.output("sliced", g.add(g.slice(flat, 0, n, 5 * n), g.slice(flat, 0, 2 * n, 6 * n)));
                      g.output("reversed", g.emit1(Op::reverse, {flat}, {{AttrKey::axes, std::vector<int64_t>{0}}}));
                      const Attrs pads{{AttrKey::low, std::vector<int64_t>{3}},
                                       {AttrKey::high, std::vector<int64_t>{n}}};
                      g.output("padded", g.emit1(Op::pad, {flat}, pads));
                      const ValueId both = g.emit1(Op::concat, {turned, turned}, {{AttrKey::axis, int64_t{1}}});
                      g.output("joined", g.add(both, both));
                    }});
  }
}

TEST_CASE("results are stored through the views that end them") {
  for (int64_t dim : {1, 5, 40}) {
    run_everywhere({fmt::format("heads of {}", dim), Template::pointwise, [dim](GraphBuilder& g) {
                      const ValueId x = g.mul(g.input("x", {Dtype::f32, {2, 7, 3, dim}}), 3.0);
                      g.output("x", x);
                      g.output("heads", g.transpose(x, {0, 2, 1, 3}));
                      g.output("inner", g.transpose(x, {3, 0, 1, 2}));
                      const ValueId flat = g.reshape(x, {42 * dim});
                      g.output("backwards", g.emit1(Op::reverse, {flat}, {{AttrKey::axes, std::vector<int64_t>{0}}}));
                      const ValueId y = g.unary(Op::neg, x);
                      const ValueId turned = g.transpose(y, {0, 2, 1, 3});
                      g.output("joined", g.emit1(Op::concat, {turned, g.transpose(x, {0, 2, 1, 3})},
                                                 {{AttrKey::axis, int64_t{2}}}));
                    }});
  }
}

TEST_CASE("iota and random bits know their element") {
  for (const Shape& shape : std::vector<Shape>{{5}, {40, 3}, {3, 50}, {2, 3, 16}}) {
    const auto rank = static_cast<int64_t>(shape.size());
    run_everywhere({"leaves " + shape_text(shape),
                    Template::pointwise,
                    [shape, rank](GraphBuilder& g) {
                      const ValueId seed = g.input("seed", {Dtype::i32, {}});
                      const ValueId step = g.input("step", {Dtype::i32, {}});
                      const ValueId bits = g.emit1(Op::random_bits, {seed, seed, step}, {}, {Dtype::i32, shape});
                      g.output("first", g.cast(g.iota(0, shape), Dtype::f32));
                      g.output("last", g.iota(rank - 1, shape));
                      g.output("bits", bits);
                      g.output("unit", g.unary(Op::unit_from_bits, bits));
                    },
                    {},
                    {{"seed", {0, 1e6}}, {"step", {0, 100}}}});
  }
}

ValueId swap_pairs(GraphBuilder& g, ValueId x) {
  Shape pairs = g.shape(x);
  pairs.back() /= 2;
  pairs.push_back(2);
  const auto last = static_cast<int64_t>(pairs.size()) - 1;
  const ValueId swapped = g.emit1(Op::reverse, {g.reshape(x, pairs)}, {{AttrKey::axes, std::vector<int64_t>{last}}});
  return g.reshape(swapped, g.shape(x));
}

TEST_CASE("RoPE: adjacent pairs exchanged") {
  for (int64_t dim : {2, 6, 16, 34, 64}) {
    run_everywhere({fmt::format("rope of {}", dim), Template::pointwise, [dim](GraphBuilder& g) {
                      const Shape shape{2, 5, 3, 2, dim};
                      const ValueId x = g.cast(g.input("qkv", {Dtype::bf16, shape}), Dtype::f32);
                      const ValueId cosines = g.input("cos", {Dtype::f32, {5, 3, dim}});
                      const ValueId sines = g.input("sin", {Dtype::f32, {5, 3, dim}});
                      const ValueId turned = g.add(g.mul(x, g.broadcast(cosines, shape, {1, 2, 4})),
                                                   g.mul(swap_pairs(g, x), g.broadcast(sines, shape, {1, 2, 4})));
                      g.output("y", g.cast(turned, Dtype::bf16));
                    }});
  }
}

TEST_CASE("SwiGLU and its gradient share their halves") {
  for (int64_t half : {1, 7, 32, 100}) {
    const auto declare = [half](GraphBuilder& g) {
      const ValueId z = g.cast(g.input("z", {Dtype::bf16, {5, 2 * half}}), Dtype::f32);
      const ValueId dy = g.cast(g.input("dy", {Dtype::bf16, {5, half}}), Dtype::f32);
      const ValueId gate = g.slice(z, 1, 0, half);
      const ValueId up = g.slice(z, 1, half, 2 * half);
      const ValueId sigmoid = g.unary(Op::logistic, gate);
      const ValueId silu = g.mul(gate, sigmoid);
      g.output("y", g.cast(g.mul(silu, up), Dtype::bf16));
      const ValueId slope = g.add(sigmoid, g.mul(silu, g.add(g.unary(Op::neg, sigmoid), 1.0)));
      const ValueId dgate = g.mul(g.mul(dy, up), slope);
      const ValueId dup = g.mul(dy, silu);
      const auto pad = [&](ValueId x, int64_t low, int64_t high) {
        return g.emit1(Op::pad, {x},
                       {{AttrKey::low, std::vector<int64_t>{0, low}}, {AttrKey::high, std::vector<int64_t>{0, high}}});
      };
      g.output("dz", g.cast(g.add(pad(dgate, 0, half), pad(dup, half, 0)), Dtype::bf16));
      const ValueId joined = g.emit1(Op::concat, {dgate, dup}, {{AttrKey::axis, int64_t{1}}});
      g.output("dz_joined", joined);
    };
    run_everywhere({fmt::format("swiglu of {}", half), Template::pointwise, declare, {2e-6, 1e-6}});
  }
}

TEST_CASE("AdamW") {
  for (const Shape& shape : std::vector<Shape>{{64, 3, 64}, {33}, {5, 7}}) {
    run_everywhere({"adamw " + shape_text(shape),
                    Template::pointwise,
                    [shape](GraphBuilder& g) {
                      const ValueId old = g.input("p", {Dtype::bf16, shape});
                      const ValueId gradient = g.input("g", {Dtype::f32, shape});
                      const ValueId lr = g.input("lr", {Dtype::f32, {}});
                      const ValueId apply = g.broadcast(g.input("apply", {Dtype::pred, {}}), shape, {});
                      const ValueId p = g.cast(old, Dtype::f32);
                      const ValueId m0 = g.input("m", {Dtype::f32, shape});
                      const ValueId v0 = g.input("v", {Dtype::f32, shape});
                      const ValueId m = g.add(g.mul(m0, 0.9), g.mul(gradient, 0.1));
                      const ValueId v = g.add(g.mul(v0, 0.999), g.mul(g.mul(gradient, gradient), 0.001));
                      const ValueId direction = g.div(m, g.add(g.unary(Op::sqrt, v), 1e-8));
                      const ValueId moved = g.sub(p, g.mul(g.add(direction, g.mul(p, 0.1)), lr));
                      g.output("p", g.cast(g.select(apply, moved, p), Dtype::bf16));
                      g.output("m", g.select(apply, m, m0));
                      g.output("v", g.select(apply, v, v0));
                    },
                    {4e-7, 1e-7},
                    {{"v", {0, 1}}}});
  }
}

TEST_CASE("a result may be written over an operand that another result reads") {
  const GroupCase test{"swap", Template::pointwise, [](GraphBuilder& g) {
                         const ValueId w = g.input("w", {Dtype::f32, {70}});
                         const ValueId last = g.input("last", {Dtype::f32, {70}});
                         g.output("last", g.mul(w, 1.0));
                         g.output("w", g.sub(w, last));
                       }};
  const Module module = test::one_group_module(test);
  const auto scheduled = schedule_host(module.programs[0], module.programs[0].groups[0], detect_host_target());
  REQUIRE(scheduled.has_value());
  REQUIRE(scheduled->operands.size() == 2);
  std::vector<float> w(70, 5);
  std::vector<float> last(70, 3);
  auto* const w_bytes = reinterpret_cast<std::byte*>(w.data());
  auto* const last_bytes = reinterpret_cast<std::byte*>(last.data());
  test::compiled(detect_host_target())(*scheduled, {w_bytes, last_bytes, last_bytes, w_bytes});
  CHECK(w == std::vector<float>(70, 2));
  CHECK(last == std::vector<float>(70, 5));
}

TEST_CASE("rows gathered, -1 gives zeros") {
  for (int64_t dim : {1, 4, 24, 64}) {
    run_everywhere({fmt::format("gather of {}", dim),
                    Template::pointwise,
                    [dim](GraphBuilder& g) {
                      const ValueId table = g.input("table", {Dtype::bf16, {9, dim}});
                      const ValueId index = g.input("index", {Dtype::i32, {37}});
                      const ValueId rows = g.emit1(Op::gather_rows, {table, index});
                      const Shape twice{9, 2, dim};
                      const ValueId repeated = g.reshape(g.broadcast(table, twice, {0, 2}), {18, dim});
                      g.output("rows", rows);
                      g.output("scaled", g.mul(g.cast(rows, Dtype::f32), 0.5));
                      g.output("repeated", g.emit1(Op::gather_rows, {repeated, index}));
                    },
                    {},
                    {{"index", {-1, 8}}}});
  }
}

TEST_CASE("small reductions are written out") {
  for (int64_t n : {1, 5, 33, 100}) {
    run_everywhere({fmt::format("small softmax of {}", n),
                    Template::row,
                    [n](GraphBuilder& g) {
                      const Shape shape{n, 4};
                      const ValueId x = g.input("x", {Dtype::f32, shape});
                      const ValueId largest = g.broadcast(g.reduce(Op::reduce_max, x, {1}), shape, {0});
                      const ValueId exps = g.unary(Op::exp, g.sub(x, largest));
                      const ValueId sums = g.reduce(Op::reduce_sum, exps, {1});
                      g.output("probs", g.div(exps, g.broadcast(sums, shape, {0})));
                      g.output("sums", sums);
                    },
                    {3e-6, 1e-7}});
    run_everywhere({fmt::format("pairs of {}", n),
                    Template::pointwise,
                    [n](GraphBuilder& g) {
                      const ValueId x = g.input("x", {Dtype::f32, {n, 2, 24}});
                      const ValueId w = g.broadcast(g.input("w", {Dtype::f32, {n, 2}}), {n, 2, 24}, {0, 1});
                      g.output("y", g.reduce(Op::reduce_sum, g.mul(x, w), {1}));
                    },
                    {1e-6, 1e-6}});
  }
}

}  // namespace
}  // namespace stepc
