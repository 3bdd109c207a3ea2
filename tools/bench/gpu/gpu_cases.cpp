#include "tools/bench/gpu/gpu_cases.h"

#include <algorithm>
#include <cmath>

#include "tools/bench/gpu/gpu_product.h"

namespace stepc::bench {
namespace {

// ---- contractions ------------------------------------------------------------------------------------------------

ValueId product(GraphBuilder& g, const Product& p, Dtype result) {
  const ValueId a = g.input("a", {Dtype::bf16, p.a_shape()});
  const ValueId b = g.input("b", {Dtype::bf16, p.b_shape()});
  const ValueId count = p.counted ? g.input("count", {Dtype::i32, {p.batch}}) : ValueId::none;
  return g.matmul(a, b, result, p.transpose_a, p.transpose_b, count);
}

GpuCase plain(std::string name, const Product& p, double wanted = 0.97) {
  GpuCase test{std::move(name), p.flops(), {}, {p.request("matmul")}, wanted, {}};
  test.build = [p](GraphBuilder& g) { g.output("y", product(g, p, p.result)); };
  test.error = [p](GpuData& data) {
    return worst_error(data, p, [&](const Place&, int64_t index, const Sum& expected) -> Result<double> {
      STEPC_ASSIGN(const double found, element(data, "y", index));
      return std::abs(found - expected.value) / std::max(expected.size, 1e-30);
    });
  };
  return test;
}

// y = x * w + r, r and y bf16: what ends an attention block.
GpuCase residual(std::string name, const Product& p) {
  GpuCase test{std::move(name), p.flops(), {}, {p.request("residual")}, 0.97, {}};
  const TensorType type{Dtype::bf16, {p.batch, p.m, p.n}};
  test.build = [p, type](GraphBuilder& g) {
    const ValueId r = g.cast(g.input("r", type), Dtype::f32);
    g.output("y", g.cast(g.add(product(g, p, Dtype::f32), r), Dtype::bf16));
  };
  test.error = [p](GpuData& data) {
    return worst_error(data, p, [&](const Place&, int64_t index, const Sum& sum) -> Result<double> {
      STEPC_ASSIGN(const double found, element(data, "y", index));
      return std::abs(found - sum.value - data.input("r", index)) / (sum.size + 1);
    });
  };
  return test;
}

double round_bf16(double x) { return double{round_to_bf16(static_cast<float>(x))}; }

// z = x * w and y = silu(gate) * up of its halves.
GpuCase swiglu(std::string name, const Product& p) {
  GpuCase test{std::move(name), p.flops(), {}, {p.request("swiglu")}, 0.97, {}};
  test.build = [p](GraphBuilder& g) {
    const ValueId z = product(g, p, Dtype::bf16);
    const ValueId wide = g.cast(z, Dtype::f32);
    const ValueId gate = g.slice(wide, 2, 0, p.n / 2);
    const ValueId up = g.slice(wide, 2, p.n / 2, p.n);
    g.output("z", z);
    g.output("y", g.cast(g.mul(g.mul(gate, g.unary(Op::logistic, gate)), up), Dtype::bf16));
  };
  test.error = [p](GpuData& data) -> Result<double> {
    double worst = 0;
    const int64_t half = p.n / 2;
    for (int s = 0; s < kSamples; ++s) {
      const Place at = sample(s, p.batch, p.m, half);
      const Sum gate = dot(data, p, at.batch, at.row, at.column);
      const Sum up = dot(data, p, at.batch, at.row, half + at.column);
      const double g = round_bf16(gate.value);
      STEPC_ASSIGN(const double found, element(data, "y", (at.batch * p.m + at.row) * half + at.column));
      const double expected = g / (1 + std::exp(-g)) * round_bf16(up.value);
      worst = std::max(worst, std::abs(found - expected) / (gate.size * up.size + 1));
    }
    return worst;
  };
  return test;
}

// The gradient of a weight and what AdamW makes of it: in one kernel, or in two. FLOPs are the product's.
GpuCase update(std::string name, const Product& p, bool apart) {
  GpuCase test{std::move(name), p.flops(), {}, {}, 0, {}};
  test.whole = true;
  test.updates_apart = apart;
  constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-3, kDecay = 0.1, kRate = 1e-2;
  test.build = [p](GraphBuilder& g) {
    const Shape shape{p.batch, p.m, p.n};
    g.set_phase(Phase::backward);
    const ValueId gradient = product(g, p, Dtype::f32);
    g.set_phase(Phase::optimizer);
    const ValueId weight = g.cast(g.input("weight", {Dtype::bf16, shape}), Dtype::f32);
    const ValueId old_m = g.input("moment", {Dtype::f32, shape}), old_v = g.input("squares", {Dtype::f32, shape});
    const ValueId m = g.add(g.mul(old_m, kBeta1), g.mul(gradient, 1 - kBeta1));
    const ValueId v = g.add(g.mul(old_v, kBeta2), g.mul(g.mul(gradient, gradient), 1 - kBeta2));
    const ValueId loss = g.input("loss", {Dtype::f32, {}});
    const ValueId apply = g.broadcast(g.unary(stepc::Op::is_finite, loss), shape, {});
    const ValueId unbiased = g.mul(v, 1 / (1 - kBeta2));
    ValueId step = g.div(g.mul(m, 1 / (1 - kBeta1)), g.add(g.unary(stepc::Op::sqrt, unbiased), kEps));
    step = g.add(step, g.mul(weight, kDecay));
    g.output("weight.new", g.cast(g.select(apply, g.sub(weight, g.mul(step, kRate)), weight), Dtype::bf16));
    g.output("moment.new", g.select(apply, m, old_m));
    g.output("squares.new", g.select(apply, v, old_v));
  };
  test.error = [p](GpuData& data) {
    return worst_error(data, p, [&](const Place&, int64_t index, const Sum& sum) -> Result<double> {
      const double m = kBeta1 * data.input("moment", index) + (1 - kBeta1) * sum.value;
      const double v = kBeta2 * data.input("squares", index) + (1 - kBeta2) * sum.value * sum.value;
      const double step = m / (1 - kBeta1) / (std::sqrt(v / (1 - kBeta2)) + kEps), old = data.input("weight", index);
      STEPC_ASSIGN(const double new_m, element(data, "moment.new", index));
      STEPC_ASSIGN(const double new_v, element(data, "squares.new", index));
      STEPC_ASSIGN(const double weight, element(data, "weight.new", index));
      const double moved = old - kRate * (step + kDecay * old);
      return std::max({std::abs(new_m - m) / (sum.size + 1), std::abs(new_v - v) / (sum.size * sum.size + 1),
                       std::abs(weight - moved) / (std::abs(old) + 1)});
    });
  };
  return test;
}

// ---- experts with empty slots ---------------------------------------------------------------------------------------

// The experts' products with counts: of full experts, which shows what counting costs; and of experts that are half
// empty, beside all rows of the same zeros. FLOPs are those of all rows.
void add_counted(std::vector<GpuCase>& cases) {
  const std::vector<int32_t> full(8, 8192), half{8192, 8192, 5000, 4000, 3000, 2049, 1500, 835};
  const auto add = [&](const std::string& name, const Product& p, GpuCase (*make)(std::string, const Product&)) {
    for (const bool is_half : {false, true})
      for (const bool counted : {false, true}) {
        if (!is_half && !counted) continue;  // is among the others
        Product each = p;
        each.filled = is_half ? half : full;
        each.counted = counted;
        cases.push_back(
            make(fmt::format("{}, {}{}", name, is_half ? "half empty" : "full", counted ? ", counted" : ""), each));
        cases.back().filled = each.filled;
        cases.back().requests = {};
      }
  };
  const auto product = [](std::string name, const Product& p) { return plain(std::move(name), p); };
  const Dtype f32 = Dtype::f32, bf16 = Dtype::bf16;
  add("experts up, SwiGLU", {8, 8192, 8192, 3072}, swiglu);
  add("experts up, input gradient", {8, 8192, 3072, 8192, false, true, bf16}, product);
  add("experts up, weight gradient", {8, 3072, 8192, 8192, true, false, f32}, product);
  add("experts down", {8, 8192, 3072, 4096}, product);
  add("experts down, weight gradient", {8, 4096, 3072, 8192, true, false, f32}, product);
}

// ---- attention ---------------------------------------------------------------------------------------------------

struct Heads {
  int64_t batch = 16, tokens = 2048, heads = 24, dim = 128;
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(dim)); }
  // Of q (0), k (1) or v (2), in qkv [B, T, 3, H, d].
  int64_t at(int64_t b, int64_t token, int64_t part, int64_t head, int64_t x) const {
    return (((b * tokens + token) * 3 + part) * heads + head) * dim + x;
  }
  int64_t out(int64_t b, int64_t token, int64_t head, int64_t x) const {
    return ((b * tokens + token) * heads + head) * dim + x;
  }
  double flops() const {  // forward: two products over the visible half
    return 2.0 * static_cast<double>(batch * heads) * static_cast<double>(tokens * tokens) * static_cast<double>(dim);
  }
  std::string request(std::string_view kind, std::string_view backend) const {
    return fmt::format("{} {} {} {} {} {}", kind, batch, tokens, heads, dim, backend);
  }
  Attrs attrs() const { return {{AttrKey::causal, true}, {AttrKey::scale, scale()}}; }
};

// Probabilities of one query of one head.
std::vector<double> probabilities(const GpuData& data, const Heads& h, int64_t b, int64_t head, int64_t query) {
  std::vector<double> p(static_cast<size_t>(query) + 1);
  double largest = -INFINITY, sum = 0;
  for (int64_t key = 0; key <= query; ++key) {
    double score = 0;
    for (int64_t x = 0; x < h.dim; ++x)
      score += data.input("qkv", h.at(b, query, 0, head, x)) * data.input("qkv", h.at(b, key, 1, head, x));
    p[static_cast<size_t>(key)] = score * h.scale();
    largest = std::max(largest, p[static_cast<size_t>(key)]);
  }
  for (double& each : p) sum += each = std::exp(each - largest);
  for (double& each : p) each /= sum;
  return p;
}

double inner(const GpuData& data, const Heads& h, std::string_view dout, int64_t b, int64_t query, int64_t key,
             int64_t head) {
  double sum = 0;
  for (int64_t x = 0; x < h.dim; ++x)
    sum += data.input(dout, h.out(b, query, head, x)) * data.input("qkv", h.at(b, key, 2, head, x));
  return sum;
}

double relative_error(const std::vector<double>& found, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

GpuCase attention_forward(const Heads& h) {
  GpuCase test{
      "attention forward", h.flops(), {}, {h.request("attention", "cudnn"), h.request("attention", "flash")}, 1.05, {}};
  test.build = [h](GraphBuilder& g) {
    const ValueId qkv = g.input("qkv", {Dtype::bf16, {h.batch, h.tokens, 3, h.heads, h.dim}});
    const std::vector<ValueId> results = g.emit(stepc::Op::attention, {qkv}, h.attrs());
    g.output("out", results[0]);
    g.output("lse", results[1]);
  };
  test.error = [h](GpuData& data) -> Result<double> {
    double worst = 0;
    for (int s = 0; s < kSamples; ++s) {
      const Place at = sample(s, h.batch, h.tokens, h.heads);
      const std::vector<double> p = probabilities(data, h, at.batch, at.column, at.row);
      std::vector<double> expected(static_cast<size_t>(h.dim));
      for (int64_t key = 0; key <= at.row; ++key)
        for (int64_t x = 0; x < h.dim; ++x)
          expected[static_cast<size_t>(x)] +=
              p[static_cast<size_t>(key)] * data.input("qkv", h.at(at.batch, key, 2, at.column, x));
      STEPC_ASSIGN(const std::vector<double> found, data.output("out", h.out(at.batch, at.row, at.column, 0), h.dim));
      worst = std::max(worst, relative_error(found, expected));
    }
    return worst;
  };
  return test;
}

// Rows of dQ, whose sum needs one query only.
Result<double> query_gradient_error(GpuData& data, const Heads& h) {
  double worst = 0;
  for (int s = 0; s < kSamples; ++s) {
    const Place at = sample(s, h.batch, h.tokens, h.heads);
    if (at.row == 0) continue;  // one key: its gradient is zero
    const std::vector<double> p = probabilities(data, h, at.batch, at.column, at.row);
    std::vector<double> dp;
    double delta = 0;
    for (int64_t key = 0; key <= at.row; ++key) {
      dp.push_back(inner(data, h, "dout", at.batch, at.row, key, at.column));
      delta += p[static_cast<size_t>(key)] * dp.back();
    }
    std::vector<double> expected(static_cast<size_t>(h.dim));
    for (int64_t key = 0; key <= at.row; ++key) {
      const double ds = p[static_cast<size_t>(key)] * (dp[static_cast<size_t>(key)] - delta) * h.scale();
      for (int64_t x = 0; x < h.dim; ++x)
        expected[static_cast<size_t>(x)] += ds * data.input("qkv", h.at(at.batch, key, 1, at.column, x));
    }
    STEPC_ASSIGN(const std::vector<double> found, data.output("dqkv", h.at(at.batch, at.row, 0, at.column, 0), h.dim));
    worst = std::max(worst, relative_error(found, expected));
  }
  return worst;
}

// dK and dV of one key near the end of a head, which few queries see.
Result<double> key_gradient_error(GpuData& data, const Heads& h) {
  const int64_t b = h.batch - 1, head = h.heads / 2, key = h.tokens - 150;
  std::vector<double> dk(static_cast<size_t>(h.dim)), dv(static_cast<size_t>(h.dim));
  for (int64_t query = key; query < h.tokens; ++query) {
    const std::vector<double> p = probabilities(data, h, b, head, query);
    double delta = 0;
    for (int64_t j = 0; j <= query; ++j) delta += p[static_cast<size_t>(j)] * inner(data, h, "dout", b, query, j, head);
    const double weight = p[static_cast<size_t>(key)];
    const double ds = weight * (inner(data, h, "dout", b, query, key, head) - delta) * h.scale();
    for (int64_t x = 0; x < h.dim; ++x) {
      dk[static_cast<size_t>(x)] += ds * data.input("qkv", h.at(b, query, 0, head, x));
      dv[static_cast<size_t>(x)] += weight * data.input("dout", h.out(b, query, head, x));
    }
  }
  STEPC_ASSIGN(const std::vector<double> found_k, data.output("dqkv", h.at(b, key, 1, head, 0), h.dim));
  STEPC_ASSIGN(const std::vector<double> found_v, data.output("dqkv", h.at(b, key, 2, head, 0), h.dim));
  return std::max(relative_error(found_k, dk), relative_error(found_v, dv));
}

// The forward pass runs first, so that its results are what the gradient expects; only the gradient is timed.
GpuCase attention_gradient(const Heads& h, bool atomic = false) {
  GpuCase test{atomic ? "attention gradient, atomic" : "attention gradient",
               2.5 * h.flops(),
               {},
               {h.request("attention_grad", "cudnn"), h.request("attention_grad", "flash")},
               1.05,
               {}};
  test.build = [h, atomic](GraphBuilder& g) {
    const ValueId qkv = g.input("qkv", {Dtype::bf16, {h.batch, h.tokens, 3, h.heads, h.dim}});
    const ValueId dout = g.input("dout", {Dtype::bf16, {h.batch, h.tokens, h.heads, h.dim}});
    const std::vector<ValueId> results = g.emit(stepc::Op::attention, {qkv}, h.attrs());
    g.set_phase(Phase::backward);
    Attrs attributes = h.attrs();
    if (atomic) attributes.set(AttrKey::atomic, true);
    g.output("dqkv", g.emit1(stepc::Op::attention_grad, {qkv, results[0], results[1], dout}, attributes));
  };
  test.error = [h](GpuData& data) -> Result<double> {
    STEPC_ASSIGN(const double queries, query_gradient_error(data, h));
    STEPC_ASSIGN(const double keys, key_gradient_error(data, h));
    return std::max(queries, keys);
  };
  return test;
}

}  // namespace

std::vector<GpuCase> gpu_cases() {
  const Dtype f32 = Dtype::f32, bf16 = Dtype::bf16;
  std::vector<GpuCase> cases{
      plain("cube 8192", {1, 8192, 8192, 8192}),
      plain("qkv", {1, 32768, 9216, 3072}),
      plain("qkv, input gradient", {1, 32768, 3072, 9216, false, true, bf16}),
      plain("qkv, weight gradient", {1, 3072, 9216, 32768, true, false, f32}),
      residual("attention out, residual", {1, 32768, 3072, 3072}),
      plain("attention out, weight gradient", {1, 3072, 3072, 32768, true, false, f32}),
      swiglu("experts up, SwiGLU", {8, 8192, 8192, 3072}),
      plain("experts up, input gradient", {8, 8192, 3072, 8192, false, true, bf16}),
      plain("experts up, weight gradient", {8, 3072, 8192, 8192, true, false, f32}),
      plain("experts down", {8, 8192, 3072, 4096}),
      plain("experts down, weight gradient", {8, 4096, 3072, 8192, true, false, f32}),
      plain("head", {1, 32768, 50432, 3072}),
      attention_forward({}),
      attention_gradient({}),
      attention_gradient({}, true),
  };
  for (const bool apart : {false, true}) {
    const std::string how = apart ? "adamw apart: " : "adamw: ";
    cases.push_back(update(how + "qkv", {1, 3072, 9216, 32768, true, false}, apart));
    cases.push_back(update(how + "attention out", {1, 3072, 3072, 32768, true, false}, apart));
    cases.push_back(update(how + "experts up", {8, 3072, 8192, 8192, true, false}, apart));
    cases.push_back(update(how + "experts down", {8, 4096, 3072, 8192, true, false}, apart));
  }
  add_counted(cases);
  add_memory_bound(cases);
  return cases;
}

}  // namespace stepc::bench
