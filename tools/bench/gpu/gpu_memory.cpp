// Cases that memory bounds: a router's products and the rows of logits.
#include <algorithm>

#include "tools/bench/gpu/gpu_product.h"

namespace stepc::bench {
namespace {

// A router's products, 8 experts: x and the gradient of its logits with the f32 weight.
struct Router {
  int64_t tokens = 32768, width = 3072, experts = 8;
  double rows_bytes() const { return 2.0 * static_cast<double>(tokens * width); }
  double flops() const { return 2.0 * static_cast<double>(tokens * width * experts); }
};

Result<double> dot_error(GpuData& data, int64_t index, const Sum& expected, double more = 0) {
  STEPC_ASSIGN(const double found, element(data, "y", index));
  return std::abs(found - expected.value - more) / std::max(expected.size, 1e-30);
}

GpuCase router_product(std::string name, bool is_gradient) {
  const Router r;
  const Product p = is_gradient ? Product{1, r.width, r.experts, r.tokens, true, false, Dtype::f32}
                                : Product{1, r.tokens, r.experts, r.width, false, false, Dtype::f32};
  GpuCase test{std::move(name), r.flops(), {}, {}, 0, {}, r.rows_bytes()};
  test.build = [p](GraphBuilder& g) {
    const ValueId a =
        g.cast(g.input("a", {Dtype::bf16, {p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k}}), Dtype::f32);
    g.output("y", g.matmul(a, g.input("b", {Dtype::f32, {p.k, p.n}}), Dtype::f32, p.transpose_a, false));
  };
  test.error = [p](GpuData& data) {
    return worst_error(data, p,
                       [&](const Place&, int64_t index, const Sum& sum) { return dot_error(data, index, sum); });
  };
  return test;
}

// Beside the gradient of a token's logits those of its two experts, gathered from their slots.
GpuCase router_input_gradient() {
  const Router r;
  const Product p{1, r.tokens, r.width, r.experts, false, true, Dtype::f32};
  GpuCase test{"router, input gradient", r.flops(), {}, {}, 0, {}, 3 * r.rows_bytes()};
  test.build = [r](GraphBuilder& g) {
    const ValueId slots = g.input("slots", {Dtype::bf16, {2 * r.tokens, r.width}});
    const ValueId mine = g.emit1(Op::gather_rows, {slots, g.input("place", {Dtype::i32, {2 * r.tokens}})});
    const ValueId wide = g.cast(g.reshape(mine, {r.tokens, 2, r.width}), Dtype::f32);
    const ValueId a = g.input("a", {Dtype::f32, {r.tokens, r.experts}});
    const ValueId b = g.input("b", {Dtype::f32, {r.width, r.experts}});
    const ValueId sum = g.add(g.reduce(Op::reduce_sum, wide, {1}), g.matmul(a, b, Dtype::f32, false, true));
    g.output("y", g.cast(sum, Dtype::bf16));
  };
  test.error = [r, p](GpuData& data) {
    return worst_error(data, p, [&](const Place& at, int64_t index, const Sum& sum) {
      double beside = 0;
      for (int64_t each = 0; each < 2; ++each)
        beside +=
            data.input("slots", static_cast<int64_t>(data.input("place", 2 * at.row + each)) * r.width + at.column);
      return dot_error(data, index, {sum.value, sum.size + 1}, beside);
    });
  };
  return test;
}

// The loss of each row and, where the logits were, its gradient.
GpuCase cross_entropy() {
  constexpr int64_t kRows = 32768, kColumns = 50432, kWords = 50257;
  GpuCase test{"cross-entropy", 8.0 * kRows * kColumns, {}, {}, 0, {}, 4.0 * kRows * kColumns};
  test.build = [](GraphBuilder& g) {
    const Shape shape{kRows, kColumns};
    const auto all = [&](double x) { return g.constant(x, {Dtype::f32, shape}); };
    const auto rows = [&](ValueId x) { return g.broadcast(x, shape, {0}); };
    const ValueId column = g.iota(1, shape);
    const ValueId is_word = g.binary(Op::less, column, g.constant(kWords, {Dtype::i32, shape}));
    const ValueId x = g.select(is_word, g.cast(g.input("logits", {Dtype::bf16, shape}), Dtype::f32), all(-1e30));
    const ValueId shifted = g.sub(x, rows(g.reduce(Op::reduce_max, x, {1})));
    const ValueId exps = g.unary(Op::exp, shifted);
    const ValueId sums = g.reduce(Op::reduce_sum, exps, {1});
    const ValueId is_target = g.binary(Op::equal, column, rows(g.input("target", {Dtype::i32, {kRows}})));
    const ValueId picked = g.reduce(Op::reduce_sum, g.select(is_target, shifted, all(0)), {1});
    g.output("loss", g.sub(g.unary(Op::log, sums), picked));
    const ValueId share = g.mul(rows(g.div(g.constant(1, {Dtype::f32, {kRows}}), sums)), exps);
    g.output("y", g.cast(g.select(is_word, g.add(g.select(is_target, all(-1), all(0)), share), all(0)), Dtype::bf16));
  };
  test.error = [](GpuData& data) -> Result<double> {
    double worst = 0;
    for (int s = 0; s < kSamples; ++s) {
      const Place at = sample(s, 1, kRows, kWords);
      double sum = 0;
      for (int64_t c = 0; c < kWords; ++c) sum += std::exp(data.input("logits", at.row * kColumns + c));
      const auto target = static_cast<int64_t>(data.input("target", at.row));
      STEPC_ASSIGN(const double loss, element(data, "loss", at.row));
      worst = std::max(worst, std::abs(loss - std::log(sum) + data.input("logits", at.row * kColumns + target)));
      STEPC_ASSIGN(const double found, element(data, "y", at.row * kColumns + target));
      const double share = std::exp(data.input("logits", at.row * kColumns + target)) / sum;
      worst = std::max(worst, std::abs(found - share + 1));
    }
    return worst;
  };
  return test;
}

}  // namespace

void add_memory_bound(std::vector<GpuCase>& cases) {
  cases.push_back(router_product("router, forward", false));
  cases.push_back(router_product("router, weight gradient", true));
  cases.push_back(router_input_gradient());
  cases.push_back(cross_entropy());
}

}  // namespace stepc::bench
