// Contractions with the epilogues that the model has, and some that it has not, as groups of one kernel: for the
// templates of every target.
#pragma once

#include "tests/support/run_group.h"

namespace stepc::test {

struct ProductSizes {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
};

// [batch, rows, columns], without a batch of 1.
inline Shape matrix(int64_t batch, int64_t rows, int64_t columns) {
  return batch == 1 ? Shape{rows, columns} : Shape{batch, rows, columns};
}

inline GroupCase epilogue_case(std::string name, const ProductSizes& s, std::function<void(GraphBuilder&)> declare) {
  GroupCase test;
  test.name = fmt::format("{} {}x{}x{}*{}", name, s.m, s.n, s.k, s.batch);
  test.schedule = Template::matmul;
  test.declare = std::move(declare);
  test.tolerance = {1e-5, 1e-5 + 1e-6 * static_cast<double>(s.k)};
  return test;
}

inline ValueId product_of(GraphBuilder& g, const ProductSizes& s, Dtype dtype, bool transpose_a = false,
                          bool transpose_b = false) {
  const ValueId a = g.input("a", {Dtype::bf16, transpose_a ? matrix(s.batch, s.k, s.m) : matrix(s.batch, s.m, s.k)});
  const ValueId b = g.input("b", {Dtype::bf16, transpose_b ? matrix(s.batch, s.n, s.k) : matrix(s.batch, s.k, s.n)});
  return g.matmul(a, b, dtype, transpose_a, transpose_b);
}

// bf16(x + a b)
inline GroupCase residual_case(const ProductSizes& s) {
  return epilogue_case("residual", s, [s](GraphBuilder& g) {
    const ValueId x = g.input("x", {Dtype::bf16, matrix(s.batch, s.m, s.n)});
    g.output("y", g.cast(g.add(g.cast(x, Dtype::f32), product_of(g, s, Dtype::f32)), Dtype::bf16));
  });
}

// The same with rows of a table, some of them absent.
inline GroupCase gathered_case(const ProductSizes& s, int64_t rows) {
  GroupCase test = epilogue_case("gathered", s, [s, rows](GraphBuilder& g) {
    const ValueId table = g.input("table", {Dtype::bf16, {rows, s.n}});
    const ValueId ids = g.input("ids", {Dtype::i32, {s.m}});
    const ValueId x = g.emit1(Op::gather_rows, {table, ids});
    g.output("y", g.cast(g.add(g.cast(x, Dtype::f32), product_of(g, s, Dtype::f32)), Dtype::bf16));
  });
  test.ranges["ids"] = {-1, static_cast<double>(rows - 1)};
  return test;
}

// Pairs of columns turned by an angle of the token: m = batches * tokens, n = 3 * heads * dim.
inline GroupCase rope_case(int64_t batches, int64_t tokens, int64_t heads, int64_t dim, int64_t k) {
  const ProductSizes s{batches * tokens, 3 * heads * dim, k};
  return epilogue_case(fmt::format("rope of {} heads of {}", heads, dim), s, [=](GraphBuilder& g) {
    const ValueId product = product_of(g, s, Dtype::f32);
    const Shape heads_shape{batches, tokens, 3, heads, dim};
    const auto table = [&](const char* name) {
      return g.broadcast(g.input(name, {Dtype::f32, {tokens, 3, dim}}), heads_shape, {1, 2, 4});
    };
    const ValueId pairs = g.reshape(product, {batches, tokens, 3, heads, dim / 2, 2});
    const ValueId turned =
        g.reshape(g.emit1(Op::reverse, {pairs}, {{AttrKey::axes, std::vector<int64_t>{5}}}), heads_shape);
    const ValueId sum = g.add(g.mul(g.reshape(product, heads_shape), table("cos")), g.mul(turned, table("sin")));
    g.output("qkv", g.cast(sum, Dtype::bf16));
  });
}

// silu(gate) * up, beside the product itself: n = 2 * width.
inline GroupCase swiglu_case(const ProductSizes& s) {
  return epilogue_case("swiglu", s, [s](GraphBuilder& g) {
    const ValueId product = product_of(g, s, Dtype::bf16);
    const ValueId wide = g.cast(product, Dtype::f32);
    const int64_t axis = s.batch == 1 ? 1 : 2;
    const ValueId gate = g.slice(wide, axis, 0, s.n / 2), up = g.slice(wide, axis, s.n / 2, s.n);
    g.output("gate_up", product);
    g.output("y", g.cast(g.mul(g.mul(gate, g.unary(Op::logistic, gate)), up), Dtype::bf16));
  });
}

// Its gradient: the product is dy, n columns, and the result has 2 n.
inline GroupCase swiglu_gradient_case(const ProductSizes& s) {
  return epilogue_case("swiglu gradient", s, [s](GraphBuilder& g) {
    const ValueId dy = g.cast(product_of(g, s, Dtype::bf16, false, true), Dtype::f32);
    const int64_t axis = s.batch == 1 ? 1 : 2;
    const ValueId gate_up = g.cast(g.input("gate_up", {Dtype::bf16, matrix(s.batch, s.m, 2 * s.n)}), Dtype::f32);
    const ValueId gate = g.slice(gate_up, axis, 0, s.n), up = g.slice(gate_up, axis, s.n, 2 * s.n);
    const ValueId share = g.unary(Op::logistic, gate);
    const ValueId d_up = g.mul(dy, g.mul(gate, share));
    const ValueId d_gate = g.mul(g.mul(dy, up), g.mul(share, g.add(g.mul(gate, g.add(g.unary(Op::neg, share), 1)), 1)));
    const ValueId both =
        g.emit1(Op::concat, {g.cast(d_gate, Dtype::bf16), g.cast(d_up, Dtype::bf16)}, {{AttrKey::axis, axis}});
    g.output("d_gate_up", both);
  });
}

// A weight gradient goes straight into moments and weights, unless the step is bad.
inline GroupCase adamw_case(const ProductSizes& s) {
  GroupCase test = epilogue_case("adamw", s, [s](GraphBuilder& g) {
    const ValueId gradient = product_of(g, s, Dtype::f32, true, false);
    const Shape shape = matrix(s.batch, s.m, s.n);
    const ValueId m = g.input("m", {Dtype::f32, shape}), v = g.input("v", {Dtype::f32, shape});
    const ValueId w = g.cast(g.input("w", {Dtype::bf16, shape}), Dtype::f32);
    const ValueId rate = g.input("rate", {Dtype::f32, {}}), loss = g.input("loss", {Dtype::f32, {}});
    const ValueId finite = g.broadcast(g.unary(Op::is_finite, loss), shape, {});
    const ValueId m_new = g.add(g.mul(m, 0.9), g.mul(gradient, 0.1));
    const ValueId v_new = g.add(g.mul(v, 0.999), g.mul(g.mul(gradient, gradient), 0.001));
    const ValueId step = g.div(m_new, g.add(g.unary(Op::sqrt, v_new), 1e-8));
    const ValueId w_new = g.sub(w, g.mul(g.add(step, g.mul(w, 0.1)), g.broadcast(rate, shape, {})));
    g.output("w", g.cast(g.select(finite, w_new, w), Dtype::bf16));
    g.output("m", g.select(finite, m_new, m));
    g.output("v", g.select(finite, v_new, v));
  });
  test.ranges["v"] = {0.5, 2};
  test.ranges["rate"] = {0.001, 0.002};
  return test;
}

// Heads before tokens in the result; `columns_first`: a result whose rows are the product's columns.
inline GroupCase transposed_case(int64_t batches, int64_t tokens, int64_t heads, int64_t dim, int64_t k,
                                 bool columns_first) {
  const ProductSizes s{batches * tokens, heads * dim, k};
  return epilogue_case(columns_first ? "columns first" : "heads first", s, [=](GraphBuilder& g) {
    const ValueId product = product_of(g, s, Dtype::bf16);
    if (columns_first) return g.output("y", g.transpose(product, {1, 0}));
    g.output("y", g.transpose(g.reshape(product, {batches, tokens, heads, dim}), {0, 2, 1, 3}));
  });
}

// A bias by column, a scale by row, and a number of the row's own.
inline GroupCase vectors_case(const ProductSizes& s) {
  return epilogue_case("vectors", s, [s](GraphBuilder& g) {
    const Shape shape = matrix(s.batch, s.m, s.n);
    const int64_t rows = s.batch == 1 ? 0 : 1;
    const ValueId bias = g.broadcast(g.input("bias", {Dtype::f32, {s.n}}), shape, {rows + 1});
    const ValueId scale = g.broadcast(g.input("scale", {Dtype::f32, {s.m}}), shape, {rows});
    const ValueId number = g.cast(g.iota(rows, shape), Dtype::f32);
    g.output("y", g.add(g.add(g.mul(product_of(g, s, Dtype::f32), scale), bias), number));
  });
}

}  // namespace stepc::test
