#include "tests/support/run_group.h"

namespace stepc {
namespace {

using test::GroupCase;
using test::run_everywhere;
using test::Tolerance;

const std::vector<Shape> kRows{{1, 1},   {1, 100},  {5, 17},  {3, 33},   {7, 64},
                               {2, 127}, {33, 256}, {3, 768}, {3, 1000}, {0, 40}};

ValueId rows_of(GraphBuilder& g, ValueId x, const Shape& shape) { return g.broadcast(x, shape, {0}); }

TEST_CASE("RMSNorm in one kernel") {
  for (const Shape& shape : kRows) {
    run_everywhere({"rmsnorm " + shape_text(shape),
                    Template::row,
                    [shape](GraphBuilder& g) {
                      const ValueId x = g.cast(g.input("x", {Dtype::bf16, shape}), Dtype::f32);
                      const ValueId w = g.input("w", {Dtype::f32, {shape[1]}});
                      const ValueId sums = g.reduce(Op::reduce_sum, g.mul(x, x), {1});
                      const ValueId mean = g.mul(sums, 1.0 / static_cast<double>(shape[1]));
                      const ValueId scale = g.unary(Op::rsqrt, g.add(mean, 1e-5));
                      g.output("rstd", scale);
                      const ValueId y = g.mul(g.mul(x, rows_of(g, scale, shape)), g.broadcast(w, shape, {1}));
                      g.output("y", g.cast(y, Dtype::bf16));
                    },
                    {4e-6, 0}});
  }
}

TEST_CASE("RMSNorm's gradient with the weight's partial sums") {
  for (const Shape& shape : std::vector<Shape>{{4, 33}, {24, 64}, {6, 1}, {40, 100}, {128, 256}, {6, 1536}}) {
    run_everywhere({"rmsnorm_grad " + shape_text(shape),
                    Template::row,
                    [shape](GraphBuilder& g) {
                      const int64_t columns = shape[1];
                      const ValueId x = g.cast(g.input("x", {Dtype::bf16, shape}), Dtype::f32);
                      const ValueId dy = g.cast(g.input("dy", {Dtype::bf16, shape}), Dtype::f32);
                      const ValueId w = g.broadcast(g.input("w", {Dtype::f32, {columns}}), shape, {1});
                      const ValueId mean =
                          g.mul(g.reduce(Op::reduce_sum, g.mul(x, x), {1}), 1.0 / static_cast<double>(columns));
                      const ValueId scale = g.unary(Op::rsqrt, g.add(mean, 1e-5));
                      const ValueId dxhat = g.mul(dy, w);
                      const ValueId dots = g.reduce(Op::reduce_sum, g.mul(dxhat, x), {1});
                      const ValueId cube = g.mul(scale, g.mul(scale, scale));
                      const ValueId shrink = g.mul(g.mul(dots, 1.0 / static_cast<double>(columns)), cube);
                      const ValueId dx =
                          g.sub(g.mul(dxhat, rows_of(g, scale, shape)), g.mul(x, rows_of(g, shrink, shape)));
                      g.output("dx", g.cast(dx, Dtype::bf16));
                      const ValueId dw_rows = g.mul(dy, g.mul(x, rows_of(g, scale, shape)));
                      const int64_t parts = 2;
                      const ValueId split = g.reshape(dw_rows, {parts, shape[0] / parts, columns});
                      g.output("dw", g.reduce(Op::reduce_sum, split, {1}));
                    },
                    {1e-5, 1e-4}});
  }
}

TEST_CASE("softmax and cross-entropy of rows") {
  for (const Shape& shape : kRows) {
    const int64_t rows = shape[0];
    const int64_t columns = shape[1];
    const std::pair<double, double> targets{0, static_cast<double>(columns - 1)};
    run_everywhere({"cross_entropy " + shape_text(shape),
                    Template::row,
                    [=](GraphBuilder& g) {
                      const ValueId logits = g.input("logits", {Dtype::f32, shape});
                      const ValueId target = g.input("target", {Dtype::i32, {rows}});
                      const ValueId largest = g.reduce(Op::reduce_max, logits, {1});
                      const ValueId shifted = g.sub(logits, rows_of(g, largest, shape));
                      const ValueId exps = g.unary(Op::exp, shifted);
                      const ValueId sums = g.reduce(Op::reduce_sum, exps, {1});
                      const ValueId is_target = g.binary(Op::equal, g.iota(1, shape), rows_of(g, target, shape));
                      const ValueId zero = g.constant(0, {Dtype::f32, shape});
                      const ValueId picked = g.reduce(Op::reduce_sum, g.select(is_target, shifted, zero), {1});
                      g.output("loss", g.sub(g.unary(Op::log, sums), picked));
                      const ValueId probs = g.div(exps, rows_of(g, sums, shape));
                      const ValueId one = g.cast(is_target, Dtype::f32);
                      g.output("dlogits", g.cast(g.mul(g.sub(probs, one), 1.0 / 64), Dtype::bf16));
                    },
                    {1e-5, 3e-6},
                    {{"target", targets}, {"logits", {-9, 9}}}});
  }
}

// The last columns are none of the vocabulary's; a target may be one of them, or no column at all. On a GPU the longer
// rows are kept in shared memory between passes.
TEST_CASE("cross-entropy of padded bf16 rows and its gradient") {
  for (const Shape& shape : std::vector<Shape>{{3, 40}, {2, 1025}, {2, 10240}, {2, 12345}, {1, 50432}}) {
    const int64_t rows = shape[0], columns = shape[1], vocabulary = columns - columns / 16;
    run_everywhere({"padded cross_entropy " + shape_text(shape),
                    Template::row,
                    [=](GraphBuilder& g) {
                      const ValueId logits = g.input("logits", {Dtype::bf16, shape});
                      const ValueId target = g.reshape(g.input("target", {Dtype::i32, {1, rows}}), {rows});
                      const ValueId column = g.iota(1, shape);
                      const auto all = [&](double x) { return g.constant(x, {Dtype::f32, shape}); };
                      const ValueId is_word =
                          g.binary(Op::less, column, g.constant(static_cast<double>(vocabulary), {Dtype::i32, shape}));
                      const ValueId x = g.select(is_word, g.cast(logits, Dtype::f32), all(-1e30));
                      const ValueId shifted = g.sub(x, rows_of(g, g.reduce(Op::reduce_max, x, {1}), shape));
                      const ValueId exps = g.unary(Op::exp, shifted);
                      const ValueId sums = g.reduce(Op::reduce_sum, exps, {1});
                      const ValueId is_target = g.binary(Op::equal, column, rows_of(g, target, shape));
                      const ValueId picked = g.reduce(Op::reduce_sum, g.select(is_target, shifted, all(0)), {1});
                      g.output("picked", g.binary(Op::max, picked, g.constant(-100, {Dtype::f32, {rows}})));
                      g.output("loss", g.unary(Op::log, sums));
                      const ValueId one = g.select(is_target, all(-1), all(0));
                      const ValueId probs = g.div(exps, rows_of(g, sums, shape));
                      g.output("dlogits", g.cast(g.select(is_word, g.add(one, probs), all(0)), Dtype::bf16));
                    },
                    {1e-5, 3e-6},
                    {{"target", {-1, static_cast<double>(columns)}}, {"logits", {-9, 9}}}});
  }
}

TEST_CASE("rows of several dimensions, smallest and largest") {
  run_everywhere(
      {"rows of [2, 3, 40]",
       Template::row,
       [](GraphBuilder& g) {
         const ValueId x = g.input("x", {Dtype::f32, {2, 3, 40}});
         const ValueId low = g.reduce(Op::reduce_min, x, {2});
         const ValueId high = g.reduce(Op::reduce_max, x, {2});
         const ValueId range = g.sub(high, low);
         g.output("range", range);
         g.output("y", g.div(g.sub(x, g.broadcast(low, {2, 3, 40}, {0, 1})), g.broadcast(range, {2, 3, 40}, {0, 1})));
       },
       {4e-7, 0}});
  run_everywhere({"a sum of everything",
                  Template::row,
                  [](GraphBuilder& g) {
                    const ValueId x = g.input("x", {Dtype::f32, {3, 5, 70}});
                    g.output("sum", g.reduce(Op::reduce_sum, g.mul(x, x), {0, 1, 2}));
                  },
                  {1e-5, 0}});
}

TEST_CASE("rows stored in another order") {
  run_everywhere({"norm of heads",
                  Template::row,
                  [](GraphBuilder& g) {
                    const Shape shape{2, 5, 3, 36};
                    const ValueId x = g.input("x", {Dtype::f32, shape});
                    const ValueId sums = g.reduce(Op::reduce_sum, g.mul(x, x), {3});
                    const ValueId y = g.div(x, g.broadcast(sums, shape, {0, 1, 2}));
                    g.output("heads", g.transpose(y, {0, 2, 1, 3}));
                    g.output("turned", g.transpose(y, {3, 0, 1, 2}));
                    g.output("sums", g.transpose(sums, {2, 0, 1}));
                  },
                  {2e-6, 0}});
  run_everywhere({"an axis of one element",
                  Template::row,
                  [](GraphBuilder& g) {
                    const ValueId x = g.input("x", {Dtype::f32, {6, 1, 20, 1}});
                    const ValueId sums = g.reduce(Op::reduce_sum, x, {1, 2});
                    g.output("sums", sums);
                    g.output("y", g.add(x, g.broadcast(sums, {6, 1, 20, 1}, {0, 3})));
                  },
                  {2e-6, 2e-6}});
}

TEST_CASE("embedded rows are normalised as they are read") {
  run_everywhere({"embed and norm",
                  Template::row,
                  [](GraphBuilder& g) {
                    const ValueId table = g.input("table", {Dtype::bf16, {11, 72}});
                    const ValueId index = g.input("index", {Dtype::i32, {29}});
                    const ValueId rows = g.emit1(Op::gather_rows, {table, index});
                    g.output("rows", rows);
                    const ValueId x = g.cast(rows, Dtype::f32);
                    const ValueId scale = g.unary(Op::rsqrt, g.add(g.reduce(Op::reduce_sum, g.mul(x, x), {1}), 1e-5));
                    g.output("y", g.cast(g.mul(x, rows_of(g, scale, {29, 72})), Dtype::bf16));
                  },
                  {3e-6, 0},
                  {{"index", {-1, 10}}}});
}

TEST_CASE("column sums") {
  for (const Shape& shape :
       std::vector<Shape>{{1, 1, 1}, {2, 5, 3}, {1, 64, 256}, {3, 33, 100}, {1, 1000, 1}, {2, 0, 9}, {4, 17, 0}}) {
    run_everywhere({"column_sum " + shape_text(shape),
                    Template::column_sum,
                    [shape](GraphBuilder& g) {
                      const ValueId x = g.input("x", {Dtype::f32, shape});
                      const ValueId y = g.cast(g.input("y", {Dtype::bf16, shape}), Dtype::f32);
                      const ValueId sum = g.reduce(Op::reduce_sum, g.mul(x, y), {1});
                      g.output("sum", sum);
                      const ValueId old = g.input("old", {Dtype::f32, {shape[0], shape[2]}});
                      g.output("scaled", g.add(old, g.mul(sum, 0.5)));
                    },
                    {1e-5, 1e-4}});
  }
}

TEST_CASE("rows scattered: several to one row, none to another") {
  for (int64_t columns : {1, 7, 64, 100}) {
    run_everywhere({fmt::format("scatter of {}", columns),
                    Template::scatter,
                    [columns](GraphBuilder& g) {
                      const ValueId x = g.cast(g.input("x", {Dtype::bf16, {57, columns}}), Dtype::f32);
                      const ValueId index = g.input("index", {Dtype::i32, {57}});
                      const ValueId sum =
                          g.emit1(Op::scatter_add_rows, {g.mul(x, 3.0), index}, {}, {Dtype::f32, {21, columns}});
                      g.output("sum", sum);
                      g.output("added", g.add(sum, g.input("old", {Dtype::f32, {21, columns}})));
                    },
                    {1e-6, 1e-6},
                    {{"index", {-1, 20}}}});
  }
}

// The evaluator refuses such an index; a kernel skips it, and writes nothing that is another row's.
TEST_CASE("rows scattered: an index that names no row is skipped") {
  for (int64_t rows : {1, 2, 21, 40}) {
    const TensorType type{Dtype::i32, {61}};
    Tensor index{type, {}}, misled{type, {}};
    const std::vector<double> nowhere = {INT32_MIN, -16, -21, -2, static_cast<double>(rows), 48, 1000, INT32_MAX};
    for (int64_t n = 0; n < 61; ++n) {
      const bool wrong = n % 3 == 0 || n == 60;
      index.data.push_back(wrong ? -1 : static_cast<double>(n * 7 % rows));
      misled.data.push_back(wrong ? nowhere[static_cast<size_t>(n / 3) % nowhere.size()] : index.data.back());
    }
    run_everywhere(
        {fmt::format("scatter to {} rows", rows),
         Template::scatter,
         [&](GraphBuilder& g) {
           const ValueId x = g.input("x", {Dtype::f32, {61, 40}});
           g.output("sum", g.emit1(Op::scatter_add_rows, {x, g.input("index", type)}, {}, {Dtype::f32, {rows, 40}}));
         },
         {1e-6, 1e-6}},
        {{"index", index}}, {{"index", misled}});
  }
}

TEST_CASE("routing: ties, overflow and empty slots") {
  struct Sizes {
    int64_t tokens, experts, top, capacity;
  };
  for (const Sizes& s :
       std::vector<Sizes>{{1, 1, 1, 1}, {40, 4, 2, 17}, {33, 8, 2, 3}, {7, 3, 3, 40}, {100, 5, 1, 20}}) {
    const std::string name = fmt::format("route {} {} {} {}", s.tokens, s.experts, s.top, s.capacity);
    run_everywhere({name,
                    Template::route,
                    [s](GraphBuilder& g) {
                      const ValueId coarse = g.input("coarse", {Dtype::i32, {s.tokens, s.experts}});
                      const ValueId probs = g.cast(coarse, Dtype::f32);  // few values, so many ties
                      const std::vector<ValueId> routed =
                          g.emit(Op::route, {probs}, {{AttrKey::top, s.top}, {AttrKey::capacity, s.capacity}});
                      g.output("expert", routed[0]);
                      g.output("slot", routed[1]);
                      g.output("assignment", routed[2]);
                      g.output("count", routed[3]);
                    },
                    {},
                    {{"coarse", {0, 3}}}});
  }
}

TEST_CASE("what a template cannot make is an error that says why") {
  const auto error_of = [](const GroupCase& test) {
    const Module module = test::one_group_module(test);
    const auto scheduled = schedule_host(module.programs[0], module.programs[0].groups[0], baseline_host_target());
    REQUIRE(!scheduled.has_value());
    return scheduled.error().text();
  };
  CHECK(error_of({"", Template::pointwise,
                  [](GraphBuilder& g) {
                    g.output("sum", g.reduce(Op::reduce_sum, g.input("x", {Dtype::f32, {8, 40}}), {1}));
                  }}) ==
        "kernel @k: the pointwise template cannot make it: %reduce_sum = reduce_sum: a reduction that the "
        "template does not make");
  CHECK(error_of({"", Template::row, [](GraphBuilder& g) {
                    const ValueId x = g.input("x", {Dtype::f32, {40, 40}});
                    g.output("a", g.reduce(Op::reduce_sum, x, {1}));
                    g.output("b", g.reduce(Op::reduce_max, x, {0}));
                  }}) == "kernel @k: the row template cannot make it: %reduce_max is no sum over the rows of a task");
}

}  // namespace
}  // namespace stepc
