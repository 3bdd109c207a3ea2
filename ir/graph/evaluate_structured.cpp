// Evaluator entries of structured ops: attention and its gradient, head by head, and MoE routing.
#include <cmath>
#include <limits>

#include "ir/graph/evaluate_products.h"
#include "ir/graph/evaluate_rules.h"

namespace stepc {
namespace {

// Where the rows of one head lie in a tensor.
struct HeadRows {
  int64_t offset;
  int64_t row_stride;
};

MatrixView view(const double* tensor, HeadRows rows) { return {tensor + rows.offset, rows.row_stride, 1}; }

// The sizes of one attention op.
struct Heads {
  int64_t batch, tokens, heads, dim;

  explicit Heads(const Shape& qkv) : batch(qkv[0]), tokens(qkv[1]), heads(qkv[3]), dim(qkv[4]) {}

  // q (part 0), k (1) or v (2) of a head in qkv [B, T, 3, H, d].
  HeadRows part(int64_t b, int64_t h, int64_t which) const {
    return {((b * tokens * 3 + which) * heads + h) * dim, 3 * heads * dim};
  }
  // A head in out [B, T, H, d].
  HeadRows out(int64_t b, int64_t h) const { return {(b * tokens * heads + h) * dim, heads * dim}; }

  void store(const std::vector<double>& head, double factor, double* tensor, HeadRows rows) const {
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0; j < dim; ++j)
        tensor[rows.offset + t * rows.row_stride + j] = factor * head[static_cast<size_t>(t * dim + j)];
  }
};

Status check_scores_fit(const Heads& sizes) {
  constexpr int64_t kMaxTokens = 1 << 14;  // 2 GiB of scores
  if (sizes.tokens > kMaxTokens) return user_error("{} tokens are too many for the evaluator", sizes.tokens);
  return {};
}

int64_t visible_keys(bool causal, int64_t query, int64_t tokens) { return causal ? query + 1 : tokens; }

// Turns a row of scaled scores into probabilities (0 where hidden); the row's log-sum-exp.
double softmax_row(double* row, int64_t visible, int64_t tokens, double scale) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < visible; ++j) {
    row[j] *= scale;
    if (row[j] > largest || std::isnan(row[j])) largest = row[j];
  }
  double sum = 0;
  for (int64_t j = 0; j < visible; ++j) sum += row[j] = std::exp(row[j] - largest);
  for (int64_t j = 0; j < tokens; ++j) row[j] = j < visible ? row[j] / sum : 0;
  return largest + std::log(sum);
}

void round_all(std::vector<double>& values) {
  for (double& x : values) x = static_cast<double>(round_to_bf16(x));
}

// dS of one head, from its P (unrounded) and dP = dout v^T: P * (dP - rowsum(dout * out)).
std::vector<double> score_gradient(const Heads& sizes, const std::vector<double>& p, std::vector<double> ds,
                                   MatrixView out, MatrixView dout) {
  for (int64_t i = 0; i < sizes.tokens; ++i) {
    double total = 0;
    for (int64_t j = 0; j < sizes.dim; ++j)
      total += dout.data[i * dout.row_stride + j] * out.data[i * out.row_stride + j];
    for (int64_t j = 0; j < sizes.tokens; ++j) {
      const auto at = static_cast<size_t>(i * sizes.tokens + j);
      ds[at] = p[at] == 0 ? 0 : p[at] * (ds[at] - total);
    }
  }
  return ds;
}

// exp(scale q.k - lse) of one head, 0 where hidden.
std::vector<double> probabilities(const Evaluation& e, const Heads& sizes, int64_t b, int64_t h) {
  const int64_t tokens = sizes.tokens;
  std::vector<double> p(static_cast<size_t>(tokens * tokens));
  multiply(tokens, tokens, sizes.dim, view(e.data(0), sizes.part(b, h, 0)),
           transposed(view(e.data(0), sizes.part(b, h, 1))), p.data());
  const double scale = e.node.attrs.real(AttrKey::scale);
  const double* const lse = e.data(2) + (b * sizes.heads + h) * tokens;
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t visible = visible_keys(e.node.attrs.flag(AttrKey::causal), i, tokens);
    double* const row = p.data() + i * tokens;
    for (int64_t j = 0; j < tokens; ++j) row[j] = j < visible ? std::exp(scale * row[j] - lse[i]) : 0;
  }
  return p;
}

void attention_head(Evaluation& e, const Heads& sizes, int64_t b, int64_t h) {
  const int64_t tokens = sizes.tokens;
  std::vector<double> p(static_cast<size_t>(tokens * tokens));
  multiply(tokens, tokens, sizes.dim, view(e.data(0), sizes.part(b, h, 0)),
           transposed(view(e.data(0), sizes.part(b, h, 1))), p.data());
  double* const lse = e.result(1) + (b * sizes.heads + h) * tokens;
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t visible = visible_keys(e.node.attrs.flag(AttrKey::causal), i, tokens);
    lse[i] = softmax_row(p.data() + i * tokens, visible, tokens, e.node.attrs.real(AttrKey::scale));
  }
  round_all(p);
  std::vector<double> head(static_cast<size_t>(tokens * sizes.dim));
  multiply(tokens, sizes.dim, tokens, dense(p, tokens), view(e.data(0), sizes.part(b, h, 2)), head.data());
  sizes.store(head, 1, e.result(0), sizes.out(b, h));
}

void attention_grad_head(Evaluation& e, const Heads& sizes, int64_t b, int64_t h) {
  const int64_t tokens = sizes.tokens;
  const int64_t dim = sizes.dim;
  const double scale = e.node.attrs.real(AttrKey::scale);
  const MatrixView dout = view(e.data(3), sizes.out(b, h));
  std::vector<double> p = probabilities(e, sizes, b, h);
  std::vector<double> dp(p.size());
  multiply(tokens, tokens, dim, dout, transposed(view(e.data(0), sizes.part(b, h, 2))), dp.data());
  std::vector<double> ds = score_gradient(sizes, p, std::move(dp), view(e.data(1), sizes.out(b, h)), dout);
  round_all(p);
  round_all(ds);
  std::vector<double> head(static_cast<size_t>(tokens * dim));
  multiply(tokens, dim, tokens, dense(ds, tokens), view(e.data(0), sizes.part(b, h, 1)), head.data());
  sizes.store(head, scale, e.result(), sizes.part(b, h, 0));
  multiply(tokens, dim, tokens, transposed(dense(ds, tokens)), view(e.data(0), sizes.part(b, h, 0)), head.data());
  sizes.store(head, scale, e.result(), sizes.part(b, h, 1));
  multiply(tokens, dim, tokens, transposed(dense(p, tokens)), dout, head.data());
  sizes.store(head, 1, e.result(), sizes.part(b, h, 2));
}

// The `top` largest of a row, ties to the lower index.
std::vector<int64_t> largest_of(const double* row, int64_t count, int64_t top) {
  std::vector<bool> taken(static_cast<size_t>(count), false);
  std::vector<int64_t> chosen;
  for (int64_t k = 0; k < top; ++k) {
    int64_t best = -1;
    for (int64_t i = 0; i < count; ++i)
      if (!taken[static_cast<size_t>(i)] && (best < 0 || row[i] > row[best])) best = i;
    taken[static_cast<size_t>(best)] = true;
    chosen.push_back(best);
  }
  return chosen;
}

}  // namespace

Status eval_attention(Evaluation& e) {
  const Heads sizes(e.shape(0));
  STEPC_TRY(check_scores_fit(sizes));
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t h = 0; h < sizes.heads; ++h) attention_head(e, sizes, b, h);
  return {};
}

Status eval_attention_grad(Evaluation& e) {
  const Heads sizes(e.shape(0));
  STEPC_TRY(check_scores_fit(sizes));
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t h = 0; h < sizes.heads; ++h) attention_grad_head(e, sizes, b, h);
  return {};
}

Status eval_route(Evaluation& e) {
  const int64_t tokens = e.shape(0)[0];
  const int64_t experts = e.shape(0)[1];
  const int64_t top = e.node.attrs.integer(AttrKey::top);
  const int64_t capacity = e.node.attrs.integer(AttrKey::capacity);
  double* const expert = e.result(0);
  double* const slot = e.result(1);
  double* const assignment = e.result(2);
  double* const count = e.result(3);
  std::fill(assignment, assignment + e.result_count(2), -1.0);
  for (int64_t n = 0; n < tokens; ++n) {
    const std::vector<int64_t> chosen = largest_of(e.data(0) + n * experts, experts, top);
    for (int64_t k = 0; k < top; ++k) {
      const int64_t at = n * top + k;
      const int64_t to = chosen[static_cast<size_t>(k)];
      const auto place = static_cast<int64_t>(count[to]++);
      expert[at] = static_cast<double>(to);
      slot[at] = place < capacity ? static_cast<double>(to * capacity + place) : -1;
      if (place < capacity) assignment[to * capacity + place] = static_cast<double>(at);
    }
  }
  return {};
}

}  // namespace stepc
