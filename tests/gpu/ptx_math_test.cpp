// Emitted arithmetic on the GPU of tests against plain C++ in double: declared errors, special values, rounding.
#include <bit>
#include <cmath>
#include <random>

#include "ir/kernel/builder.h"
#include "tests/support/run_gpu.h"

namespace stepc {
namespace {

using kernel::Index;
using kernel::KernelBuilder;
using kernel::Op;
using kernel::Value;

constexpr int64_t kLanes = 128 * 4;
const GpuTarget kTarget{"sm_90a"};

// Runs a kernel over `inputs`, each f32[n], and gives back its result of `bytes` an element.
template <class T>
std::vector<T> run(const kernel::Kernel& made, const std::vector<std::vector<float>>& inputs, int64_t tasks) {
  const auto device = test::open_gpu();
  std::vector<DeviceAddress> addresses;
  for (const auto& input : inputs) {
    const auto bytes = static_cast<int64_t>(input.size() * sizeof(float));
    addresses.push_back(device->allocate(bytes).value());
    REQUIRE(device->copy_in(addresses.back(), input.data(), bytes).has_value());
  }
  std::vector<T> result(inputs[0].size());
  const auto bytes = static_cast<int64_t>(result.size() * sizeof(T));
  addresses.push_back(device->allocate(bytes).value());
  test::launch_kernel(*device, made, kTarget, tasks, addresses, {});
  REQUIRE(device->copy_out(result.data(), addresses.back(), bytes).has_value());
  return result;
}

using Body = std::function<Value(KernelBuilder&, const std::vector<Value>&)>;

template <class T = float>
std::vector<T> map(const std::vector<std::vector<float>>& inputs, Dtype dtype, const Body& body) {
  const auto n = static_cast<int64_t>(inputs[0].size());
  KernelBuilder b("map", kernel::Target::cuda);
  std::vector<kernel::BufferId> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) buffers.push_back(b.global(fmt::format("x{}", i), Dtype::f32, {n}));
  const auto out = b.global("y", dtype, {n});
  b.set_grid(n / kLanes);
  b.begin_role("main", 4);
  std::vector<Value> values;
  for (auto buffer : buffers) values.push_back(b.load(buffer, {b.task() * kLanes}, {kLanes}));
  b.store(body(b, values), out, {b.task() * kLanes});
  return run<T>(b.finish(), inputs, n / kLanes);
}

std::vector<float> map_unary(Op op, const std::vector<float>& x) {
  return map({x}, Dtype::f32, [op](KernelBuilder& b, const std::vector<Value>& v) { return b.pointwise(op, {v[0]}); });
}

struct MathCase {
  Op op;
  double (*exact)(double);
  double low, high;
  double error;
  bool absolute;
};

TEST_CASE("ptx: transcendental functions keep their declared errors") {
  const std::vector<MathCase> cases = {
      {Op::exp, [](double x) { return std::exp(x); }, -87.3, 88.7, 4e-7, false},
      {Op::exp2, [](double x) { return std::exp2(x); }, -125, 127, 4.8e-7, false},
      {Op::log, [](double x) { return std::log(x); }, 1e-38, 1e38, 4e-7, false},
      {Op::rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-30, 1e30, 4e-7, false},
      {Op::sin, [](double x) { return std::sin(x); }, -1e5, 1e5, 4e-7, true},
      {Op::cos, [](double x) { return std::cos(x); }, -1e5, 1e5, 4e-7, true},
      {Op::tanh, [](double x) { return std::tanh(x); }, -12, 12, 1e-6, false},
      {Op::logistic, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 8e-7, false}};
  std::mt19937_64 random(1);
  for (const MathCase& c : cases) {
    CAPTURE(kernel::op_info(c.op).name);
    std::vector<float> x(16 * kLanes);
    std::uniform_real_distribution<double> uniform(c.low, c.high);
    std::uniform_real_distribution<double> exponent(-30, std::log2(std::max(std::fabs(c.low), c.high)));
    for (size_t i = 0; i < x.size(); ++i) {
      const double size =
          i % 2 == 0 ? uniform(random) : std::exp2(exponent(random)) * (c.low < 0 && i % 4 == 1 ? -1 : 1);
      x[i] = static_cast<float>(std::clamp(size, c.low, c.high));
    }
    const auto y = map_unary(c.op, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = c.exact(x[i]);
      worst = std::max(worst, std::fabs(y[i] - exact) / (c.absolute ? 1.0 : std::max(std::fabs(exact), 1e-37)));
    }
    CHECK(worst <= c.error);
  }
}

TEST_CASE("ptx: special values") {
  const float inf = INFINITY, nan = NAN;
  std::vector<float> x(kLanes, 0.0f);
  const float special[] = {inf, -inf, nan, 0.0f, -0.0f, 200.0f, -200.0f, 1e-42f, -1.0f, 88.72283f};
  std::copy(std::begin(special), std::end(special), x.begin());
  const auto exp = map_unary(Op::exp, x);
  CHECK(exp[0] == inf);
  CHECK(exp[1] == 0.0f);
  CHECK(std::isnan(exp[2]));
  CHECK(exp[3] == 1.0f);
  CHECK(exp[5] == inf);
  CHECK(exp[6] == 0.0f);
  CHECK(std::isfinite(exp[9]));
  const auto log = map_unary(Op::log, x);
  CHECK(log[0] == inf);
  CHECK(std::isnan(log[1]));
  CHECK(std::isnan(log[2]));
  CHECK(log[3] == -inf);
  CHECK(log[7] == doctest::Approx(std::log(1e-42f)));
  CHECK(std::isnan(log[8]));
  const auto tanh = map_unary(Op::tanh, x);
  CHECK(tanh[0] == 1.0f);
  CHECK(tanh[1] == -1.0f);
  CHECK(std::isnan(tanh[2]));
  CHECK(std::signbit(tanh[4]));
  const auto logistic = map_unary(Op::logistic, x);
  CHECK(logistic[0] == 1.0f);
  CHECK(logistic[1] == 0.0f);
  CHECK(std::isnan(logistic[2]));
  CHECK(logistic[3] == 0.5f);
  CHECK(logistic[5] == 1.0f);
  CHECK(logistic[6] == 0.0f);
}

TEST_CASE("ptx: f32 to bf16 rounds to nearest even for every class of value") {
  std::mt19937 random(2);
  std::vector<float> x(16 * kLanes);
  for (float& each : x) each = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (uint32_t i = 0; i < 256; ++i) x[i] = std::bit_cast<float>((i << 24) | 0x00008000u | (i & 1) << 16);  // ties
  const auto y = map<uint16_t>({x}, Dtype::bf16,
                               [](KernelBuilder& b, const std::vector<Value>& v) { return b.cast(v[0], Dtype::bf16); });
  size_t different = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (y[i] != bf16_from_f32(x[i]) && !(std::isnan(x[i]) && std::isnan(f32_from_bf16(y[i])))) ++different;
  CHECK(different == 0);
}

TEST_CASE("ptx: a product is rounded before it is added to, unless fma is asked for") {
  // a * b + c with a = b = 1 + 2^-12, c = -(1 + 2^-11): rounding the product first gives 0, fma gives 2^-24.
  const std::vector<float> a(kLanes, 1.0f + 0x1p-12f), c(kLanes, -(1.0f + 0x1p-11f));
  const auto apart = map({a, a, c}, Dtype::f32, [](KernelBuilder& b, const std::vector<Value>& v) {
    return b.pointwise(Op::add, {b.pointwise(Op::mul, {v[0], v[1]}), v[2]});
  });
  const auto fused = map({a, a, c}, Dtype::f32, [](KernelBuilder& b, const std::vector<Value>& v) {
    return b.pointwise(Op::fma, {v[0], v[1], v[2]});
  });
  CHECK(apart[0] == 0.0f);
  CHECK(fused[0] == 0x1p-24f);
}

TEST_CASE("ptx: warps reduce together, in loops too, and every thread has the result") {
  for (int64_t n : {1, 5, 31, 32, 33, 200, 256, 1000, 2048}) {
    CAPTURE(n);
    KernelBuilder b("reduce", kernel::Target::cuda);
    const auto in = b.global("x", Dtype::f32, {3, n});
    const auto out = b.global("y", Dtype::f32, {3, n});
    b.set_grid(1);
    b.begin_role("main", 8);
    b.loop("i", 0, 3, 1, [&](Index i) {
      const Value x = b.load(in, {i, 0}, {n});
      const Value sum = b.reduce(Op::reduce_sum, x), most = b.reduce(Op::reduce_max, x);
      b.store(b.splat(b.pointwise(Op::add, {sum, most}), {n}), out, {i, 0});
    });
    const kernel::Kernel made = b.finish();
    std::vector<float> x(static_cast<size_t>(3 * n));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 10;
    const auto y = run<float>(made, {x}, 1);
    for (int64_t row = 0; row < 3; ++row) {
      float sum = 0, most = -INFINITY;
      for (int64_t i = 0; i < n; ++i) sum += x[static_cast<size_t>(row * n + i)];
      for (int64_t i = 0; i < n; ++i) most = std::max(most, x[static_cast<size_t>(row * n + i)]);
      for (int64_t i = 0; i < n; ++i) REQUIRE(y[static_cast<size_t>(row * n + i)] == sum + most);
    }
  }
}

TEST_CASE("ptx: counts stop loads and stores at any alignment") {
  for (int64_t n : {1, 7, 127, 511, 512, 513, 1000}) {
    CAPTURE(n);
    KernelBuilder b("counted", kernel::Target::cuda);
    const auto in = b.global("x", Dtype::f32, {2 * n});
    const auto out = b.global("y", Dtype::f32, {2 * n});
    b.set_grid(1);
    b.begin_role("main", 4);
    for (int64_t row : {0, 1})
      b.loop("i", 0, n, kLanes, [&](Index i) {
        const Value x = b.load_first(in, {i + row * n}, {kLanes}, Index(n) - i);
        b.store_first(b.pointwise(Op::neg, {x}), out, {i + row * n}, Index(n) - i);
      });
    std::vector<float> x(static_cast<size_t>(2 * n));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
    const auto y = run<float>(b.finish(), {x}, 1);
    for (size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == -x[i]);
  }
}

}  // namespace
}  // namespace stepc
