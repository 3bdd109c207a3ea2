// Emitted host code, op by op, against plain C++ in double: values, special cases and declared errors, for
// this machine's CPU and for one without AVX-512.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "compiler/emit/host.h"
#include "ir/graph/evaluate.h"
#include "ir/kernel/builder.h"

namespace stepc::emit_test {

using kernel::Index;
using kernel::KernelBuilder;
using kernel::Op;
using kernel::Value;

namespace {

constexpr int64_t kLanes = 64;

std::vector<HostTarget> targets() { return {detect_host_target(), baseline_host_target()}; }

// Compiles a kernel and runs its tasks on `buffers`.
void run(const kernel::Kernel& kernel, const HostTarget& target, std::vector<void*> buffers, int64_t tasks = 1) {
  const auto code = emit_host(kernel, target);
  REQUIRE(code);
  HostLoader loader;
  const auto function = loader.load(code->object, kernel.name);
  REQUIRE(function);
  const int64_t bytes = kernel::shared_layout(kernel).total_bytes;
  void* shared = std::aligned_alloc(64, static_cast<size_t>(std::max<int64_t>(64, (bytes + 63) / 64 * 64)));
  for (int64_t task = 0; task < tasks; ++task) (*function)(buffers.data(), nullptr, task, shared);
  std::free(shared);
}

// y = op(x) over n elements (n a multiple of kLanes).
std::vector<float> map_unary(Op op, std::vector<float> x, const HostTarget& target) {
  const auto n = static_cast<int64_t>(x.size());
  KernelBuilder b("unary", kernel::Target::host);
  const auto in = b.global("x", Dtype::f32, {n});
  const auto out = b.global("y", Dtype::f32, {n});
  b.set_grid(1);
  b.begin_role("main");
  b.loop("i", 0, n, kLanes, [&](Index i) { b.store(b.pointwise(op, {b.load(in, {i}, {kLanes})}), out, {i}); });
  std::vector<float> y(x.size(), NAN);
  run(b.finish(), target, {x.data(), y.data()});
  return y;
}

struct MathCase {
  Op op;
  std::function<double(double)> exact;
  double low, high;
  double error;
  bool absolute;
};

}  // namespace

TEST_CASE("emit: transcendental functions keep their declared errors") {
  const std::vector<MathCase> cases = {
      {Op::exp, [](double x) { return std::exp(x); }, -87.3, 88.7, 4e-7, false},
      {Op::log, [](double x) { return std::log(x); }, 1e-38, 1e38, 4e-7, false},
      {Op::rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-30, 1e30, 4e-7, false},
      {Op::sin, [](double x) { return std::sin(x); }, -1e5, 1e5, 4e-7, true},
      {Op::cos, [](double x) { return std::cos(x); }, -1e5, 1e5, 4e-7, true},
      {Op::tanh, [](double x) { return std::tanh(x); }, -12, 12, 1e-6, false},
      {Op::logistic, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 8e-7, false}};
  std::mt19937_64 random(1);
  for (const HostTarget& target : targets())
    for (const MathCase& c : cases) {
      CAPTURE(kernel::op_info(c.op).name);
      CAPTURE(target.cpu);
      std::vector<float> x(64 * 1024);
      std::uniform_real_distribution<double> uniform(c.low, c.high);
      std::uniform_real_distribution<double> exponent(-30, std::log2(std::max(std::fabs(c.low), c.high)));
      for (size_t i = 0; i < x.size(); ++i) {
        const double size =
            i % 2 == 0 ? uniform(random) : std::exp2(exponent(random)) * (c.low < 0 && i % 4 == 1 ? -1 : 1);
        x[i] = static_cast<float>(std::clamp(size, c.low, c.high));
      }
      const auto y = map_unary(c.op, x, target);
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = c.exact(x[i]);
        worst = std::max(worst, std::fabs(y[i] - exact) / (c.absolute ? 1.0 : std::max(std::fabs(exact), 1e-37)));
      }
      CHECK(worst <= c.error);
    }
}

TEST_CASE("emit: special values") {
  const float inf = INFINITY, nan = NAN;
  std::vector<float> x(kLanes, 0.0f);
  const float special[] = {inf, -inf, nan, 0.0f, -0.0f, 200.0f, -200.0f, 1e-42f, -1.0f, 88.72283f};
  std::copy(std::begin(special), std::end(special), x.begin());
  for (const HostTarget& target : targets()) {
    const auto exp = map_unary(Op::exp, x, target);
    CHECK(exp[0] == inf);
    CHECK(exp[1] == 0.0f);
    CHECK(std::isnan(exp[2]));
    CHECK(exp[3] == 1.0f);
    CHECK(exp[5] == inf);
    CHECK(exp[6] == 0.0f);
    CHECK(std::isfinite(exp[9]));
    const auto log = map_unary(Op::log, x, target);
    CHECK(log[0] == inf);
    CHECK(std::isnan(log[1]));
    CHECK(std::isnan(log[2]));
    CHECK(log[3] == -inf);
    CHECK(log[4] == -inf);
    CHECK(log[7] == doctest::Approx(std::log(1e-42f)));
    CHECK(std::isnan(log[8]));
    const auto tanh = map_unary(Op::tanh, x, target);
    CHECK(tanh[0] == 1.0f);
    CHECK(tanh[1] == -1.0f);
    CHECK(std::isnan(tanh[2]));
    CHECK(std::signbit(tanh[4]));
    const auto logistic = map_unary(Op::logistic, x, target);
    CHECK(logistic[0] == 1.0f);
    CHECK(logistic[1] == 0.0f);
    CHECK(logistic[3] == 0.5f);
  }
}

TEST_CASE("emit: f32 to bf16 rounds to nearest even for every class of value") {
  std::mt19937 random(2);
  std::vector<float> x(256 * kLanes);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (uint32_t i = 0; i < 256; ++i) x[i] = std::bit_cast<float>((i << 24) | 0x00008000u | (i & 1) << 16);  // ties
  for (const HostTarget& target : targets()) {
    const auto n = static_cast<int64_t>(x.size());
    KernelBuilder b("round", kernel::Target::host);
    const auto in = b.global("x", Dtype::f32, {n});
    const auto out = b.global("y", Dtype::bf16, {n});
    b.set_grid(1);
    b.begin_role("main");
    b.loop("i", 0, n, kLanes, [&](Index i) { b.store(b.cast(b.load(in, {i}, {kLanes}), Dtype::bf16), out, {i}); });
    std::vector<uint16_t> y(x.size());
    run(b.finish(), target, {x.data(), y.data()});
    size_t different = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (y[i] != bf16_from_f32(x[i]) && !(std::isnan(x[i]) && std::isnan(f32_from_bf16(y[i])))) ++different;
    CHECK(different == 0);
  }
}

TEST_CASE("emit: products and sums are not contracted") {
  // a * b + c with a = b = 1 + 2^-12, c = -(1 + 2^-11): rounding the product first gives 0, fma gives 2^-24.
  for (const HostTarget& target : targets()) {
    KernelBuilder b("contract", kernel::Target::host);
    const auto in = b.global("x", Dtype::f32, {3, kLanes});
    const auto out = b.global("y", Dtype::f32, {2, kLanes});
    b.set_grid(1);
    b.begin_role("main");
    const Value a = b.load(in, {0, 0}, {kLanes}), f = b.load(in, {1, 0}, {kLanes}), c = b.load(in, {2, 0}, {kLanes});
    b.store(b.pointwise(Op::add, {b.pointwise(Op::mul, {a, f}), c}), out, {0, 0});
    b.store(b.pointwise(Op::fma, {a, f, c}), out, {1, 0});
    std::vector<float> x(3 * kLanes), y(2 * kLanes);
    std::fill_n(x.begin(), 2 * kLanes, 1.0f + 0x1p-12f);
    std::fill_n(x.begin() + 2 * kLanes, kLanes, -(1.0f + 0x1p-11f));
    run(b.finish(), target, {x.data(), y.data()});
    CHECK(y[0] == 0.0f);
    CHECK(y[kLanes] == 0x1p-24f);
  }
}

TEST_CASE("emit: counts stop loads and stores, loops carry, branches choose, tasks are told apart") {
  for (const HostTarget& target : targets())
    for (int64_t n : {1, 5, 63, 64, 65, 130}) {
      CAPTURE(n);
      KernelBuilder b("sum", kernel::Target::host);
      const auto in = b.global("x", Dtype::f32, {2, n});
      const auto out = b.global("y", Dtype::f32, {2, n});
      const auto sums = b.global("s", Dtype::f32, {2});
      b.set_grid(2);
      b.begin_role("main");
      const Index task = b.task();
      const auto total = b.loop("i", 0, n, kLanes, {b.constant(0.0, Dtype::f32, {kLanes})},
                                [&](Index i, const std::vector<Value>& carried) {
                                  const Value x = b.load_first(in, {task, i}, {kLanes}, Index(n) - i);
                                  b.store_first(b.pointwise(Op::neg, {x}), out, {task, i}, Index(n) - i);
                                  return std::vector<Value>{b.pointwise(Op::add, {carried[0], x})};
                                });
      const auto chosen = b.branch(
          equal(task, 0), [&] { return std::vector<Value>{b.reduce(Op::reduce_sum, total[0])}; },
          [&] { return std::vector<Value>{b.reduce(Op::reduce_max, total[0])}; });
      b.store(chosen[0], sums, {task});
      std::vector<float> x(static_cast<size_t>(2 * n)), y(x.size() + 1, 7.0f), s(2);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
      run(b.finish(), target, {x.data(), y.data(), s.data()}, 2);
      for (size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == -x[i]);
      CHECK(y.back() == 7.0f);
      float sum = 0, largest = 0;
      for (int64_t i = 0; i < n; ++i) sum += x[static_cast<size_t>(i)];
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        float of_lane = 0;
        for (int64_t i = lane; i < n; i += kLanes) of_lane += x[static_cast<size_t>(n + i)];
        largest = std::max(largest, of_lane);
      }
      CHECK(s[0] == sum);
      CHECK(s[1] == largest);
    }
}

TEST_CASE("emit: random bits are the graph's Philox, beyond 2^32 elements too") {
  for (const HostTarget& target : targets()) {
    KernelBuilder b("bits", kernel::Target::host);
    const auto out = b.global("y", Dtype::i32, {2, kLanes});
    b.set_grid(1);
    b.begin_role("main");
    const auto word = [&](uint32_t bits) {
      return b.constant(static_cast<double>(static_cast<int32_t>(bits)), Dtype::i32);
    };
    const Value seed = word(0x80000001u), stream = word(77), step = word(3);
    b.store(b.random_bits(seed, stream, step, Index(5), {kLanes}), out, {0, 0});
    b.store(b.random_bits(seed, stream, step, Index(int64_t{1} << 35), {kLanes}), out, {1, 0});
    std::vector<uint32_t> y(2 * kLanes);
    run(b.finish(), target, {y.data()});
    for (uint64_t i = 0; i < kLanes; ++i) {
      REQUIRE(y[i] == philox_word(0x80000001u, 77, 3, 5 + i));
      REQUIRE(y[kLanes + i] == philox_word(0x80000001u, 77, 3, (uint64_t{1} << 35) + i));
    }
  }
}

TEST_CASE("emit: the same kernel gives the same object") {
  KernelBuilder b("same", kernel::Target::host);
  const auto out = b.global("y", Dtype::f32, {kLanes});
  b.set_grid(1);
  b.begin_role("main");
  b.store(b.pointwise(Op::exp, {b.load(out, {0}, {kLanes})}), out, {0});
  const kernel::Kernel made = b.finish();
  CHECK(emit_host(made, detect_host_target())->object == emit_host(made, detect_host_target())->object);
}

}  // namespace stepc::emit_test
