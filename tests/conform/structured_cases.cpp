// Products, rows, attention and routing.
#include "tests/conform/op_cases.h"

namespace stepc::test {
namespace {

struct Sizes {
  int64_t m, n, k, batch;
};

// The tokens as rows, as columns and as what is summed over, and experts' batches of them.
std::vector<Sizes> product_sizes(int64_t tokens) {
  return {{tokens, 48, 72, 1}, {40, tokens, 64, 1}, {72, 136, tokens, 1}, {tokens, 40, 24, 3}, {tokens, 5, 33, 1}};
}

OpCase product(const Sizes& s, Dtype operands, Dtype result, bool transpose_a, bool transpose_b) {
  const Shape a = transpose_a ? Shape{s.batch, s.k, s.m} : Shape{s.batch, s.m, s.k};
  const Shape b = transpose_b ? Shape{s.batch, s.n, s.k} : Shape{s.batch, s.k, s.n};
  return {Op::matmul,
          {fmt::format("matmul {} {}x{}x{} x {} {}{} -> {}", dtype_name(operands), s.m, s.n, s.k, s.batch,
                       transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', dtype_name(result)),
           Template::matmul, [=](GraphBuilder& g) {
             const ValueId x = g.input("a", {operands, a}), y = g.input("b", {operands, b});
             g.output("y", g.matmul(x, y, result, transpose_a, transpose_b));
           }}};
}

// Batches of which none, one, half and all of the first operand's rows are filled.
OpCase counted_product(int64_t tokens, Dtype operands, Dtype result, bool transpose_a) {
  const std::vector<double> counts{0, 1, std::floor(static_cast<double>(tokens) / 2), static_cast<double>(tokens) + 3};
  const int64_t batch = 4, width = 72, n = 40;
  OpCase made{Op::matmul,
              {fmt::format("matmul {} with counts{} -> {}", dtype_name(operands), transpose_a ? " along k" : "",
                           dtype_name(result)),
               Template::matmul, [=](GraphBuilder& g) {
                 const ValueId a = g.input("a", {operands, {batch, tokens, width}});
                 const ValueId b = g.input("b", {operands, {batch, transpose_a ? tokens : width, n}});
                 g.output("y", g.matmul(a, b, result, transpose_a, false, g.input("count", {Dtype::i32, {batch}})));
               }}};
  made.adjust = [=](const std::string& name, Tensor& tensor) {
    if (name == "count") tensor.data = counts;
    if (name != "a") return;
    for (int64_t i = 0; i < batch * tokens * width; ++i)
      if (static_cast<double>(i / width % tokens) >= counts[static_cast<size_t>(i / width / tokens)])
        tensor.data[static_cast<size_t>(i)] = 0;
  };
  return made;
}

// Row numbers without repetition, -1 where there is none.
void make_one_to_one(Tensor& index, int64_t rows) {
  for (size_t i = 0; i < index.data.size(); ++i) {
    const auto row = static_cast<int64_t>(i) * 7 % (rows + 3);
    index.data[i] = rows % 7 != 4 && row < rows && static_cast<int64_t>(i) < rows + 3 ? static_cast<double>(row) : -1;
  }
}

OpCase gather(int64_t tokens, Dtype dtype, int64_t columns) {
  const int64_t rows = 37;
  return {Op::gather_rows,
          {fmt::format("gather_rows {} of {} columns", dtype_name(dtype), columns),
           Template::pointwise,
           [=](GraphBuilder& g) {
             const ValueId x = g.input("x", {dtype, {rows, columns}});
             g.output("y", g.emit1(Op::gather_rows, {x, g.input("index", {Dtype::i32, {tokens}})}));
           },
           {},
           {{"index", {-1, rows - 1}}}}};
}

// With its inverse, which is not read forwards.
OpCase gather_one_to_one(int64_t tokens, Dtype dtype) {
  OpCase made{
      Op::gather_rows,
      {fmt::format("gather_rows {} with an inverse", dtype_name(dtype)), Template::pointwise, [=](GraphBuilder& g) {
         const ValueId x = g.input("x", {dtype, {tokens, 64}});
         const ValueId index = g.input("index", {Dtype::i32, {tokens + 5}});
         const ValueId inverse = g.input("inverse", {Dtype::i32, {tokens}});
         g.output("y", g.emit1(Op::gather_rows, {x, index, inverse}));
       }}};
  made.adjust = [tokens](const std::string& name, Tensor& tensor) {
    if (name == "index") make_one_to_one(tensor, tokens);
    if (name == "inverse") std::fill(tensor.data.begin(), tensor.data.end(), -1.0);
  };
  return made;
}

OpCase scatter(int64_t tokens, Dtype dtype, int64_t rows, int64_t columns) {
  return {Op::scatter_add_rows,
          {fmt::format("scatter_add_rows {} to {} of {} columns", dtype_name(dtype), rows, columns),
           Template::scatter,
           [=](GraphBuilder& g) {
             const ValueId x = g.input("x", {dtype, {tokens, columns}});
             const ValueId index = g.input("index", {Dtype::i32, {tokens}});
             g.output("sum", g.emit1(Op::scatter_add_rows, {x, index}, {}, {Dtype::f32, {rows, columns}}));
           },
           {},
           {{"index", {-1, static_cast<double>(rows - 1)}}}}};
}

OpCase attention(Op op, int64_t batch, int64_t tokens, int64_t heads, int64_t dim, bool causal) {
  return {
      op,
      {fmt::format("{} of {} x {} x {} x {}{}", op_info(op).name, batch, tokens, heads, dim, causal ? ", causal" : ""),
       Template::attention, [=](GraphBuilder& g) {
         const Attrs attrs{{AttrKey::causal, causal}, {AttrKey::scale, 1 / std::sqrt(static_cast<double>(dim))}};
         const ValueId qkv = g.input("qkv", {Dtype::bf16, {batch, tokens, 3, heads, dim}});
         const auto forward = g.emit(Op::attention, {qkv}, attrs);
         g.output("out", forward[0]);
         g.output("lse", forward[1]);
         if (op == Op::attention) return;
         const ValueId dout = g.input("dout", g.type(forward[0]));
         g.output("dqkv", g.emit1(op, {qkv, forward[0], forward[1], dout}, attrs));
       }}};
}

enum class Loads { any, ties, one };

// `one`: every token chooses the last expert first and the one before it second; all others stay empty.
OpCase route(int64_t tokens, int64_t experts, int64_t top, int64_t capacity, Loads loads) {
  const char* names[] = {"any", "ties", "one"};
  OpCase made{
      Op::route,
      {fmt::format("route to {} of {} experts of {}, {}", top, experts, capacity, names[static_cast<int>(loads)]),
       Template::route, [=](GraphBuilder& g) {
         const auto routed = g.emit(Op::route, {g.input("probs", {Dtype::f32, {tokens, experts}})},
                                    {{AttrKey::top, top}, {AttrKey::capacity, capacity}});
         for (size_t i = 0; i < routed.size(); ++i) g.output(fmt::format("y{}", i), routed[i]);
       }}};
  made.adjust = [=](const std::string&, Tensor& probs) {
    for (size_t i = 0; i < probs.data.size(); ++i) {
      if (loads == Loads::ties) probs.data[i] = std::floor(probs.data[i] + 0.5) / 4;
      if (loads == Loads::one) probs.data[i] = static_cast<double>(i % static_cast<size_t>(experts)) / 16;
    }
  };
  return made;
}

}  // namespace

std::vector<OpCase> product_cases(int64_t tokens) {
  std::vector<OpCase> cases;
  for (const Sizes& sizes : product_sizes(tokens))
    for (Dtype operands : {Dtype::bf16, Dtype::f32})
      for (Dtype result : {Dtype::bf16, Dtype::f32})
        for (const bool transpose_a : {false, true})
          for (const bool transpose_b : {false, true})
            cases.push_back(product(sizes, operands, result, transpose_a, transpose_b));
  for (Dtype operands : {Dtype::bf16, Dtype::f32})
    for (Dtype result : {Dtype::bf16, Dtype::f32})
      for (const bool transpose_a : {false, true})
        cases.push_back(counted_product(tokens, operands, result, transpose_a));
  return cases;
}

std::vector<OpCase> row_cases(int64_t tokens) {
  std::vector<OpCase> cases;
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32}) {
    for (int64_t columns : {64, 33}) cases.push_back(gather(tokens, dtype, columns));
    cases.push_back(gather_one_to_one(tokens, dtype));
  }
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    cases.push_back(scatter(tokens, dtype, 7, 64));  // many to one row
    cases.push_back(scatter(tokens, dtype, 61, 33));
  }
  return cases;
}

std::vector<OpCase> attention_cases(int64_t tokens) {
  std::vector<OpCase> cases;
  for (Op op : {Op::attention, Op::attention_grad})
    for (const bool causal : {true, false})
      for (const int64_t dim : {128, 64, 16}) cases.push_back(attention(op, 1 + dim / 128, tokens, 2, dim, causal));
  return cases;
}

std::vector<OpCase> route_cases(int64_t tokens) {
  const int64_t even = (tokens * 2 + 7) / 8;
  return {route(tokens, 8, 2, even, Loads::any),       route(tokens, 8, 2, even, Loads::ties),
          route(tokens, 8, 2, even, Loads::one),    // too many for their slots
          route(tokens, 8, 2, tokens, Loads::one),  // all of them find one
          route(tokens, 4, 1, tokens + 3, Loads::any), route(tokens, 3, 3, 1, Loads::any)};
}

}  // namespace stepc::test
