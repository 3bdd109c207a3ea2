// The interpreter: what kernels compute, and what it refuses.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/kernel/builder.h"
#include "ir/kernel/interpret.h"
#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"
#include "test_paths.h"

namespace stepc::kernel {
namespace {

Kernel parsed(const std::string& text) {
  auto kernel = parse_kernel(text, "k.kir");
  REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
  return *std::move(kernel);
}

Tensor filled(Dtype dtype, Shape shape, double value = 0) {
  Tensor tensor{{dtype, shape}, {}};
  tensor.data.assign(static_cast<size_t>(numel(shape)), value);
  return tensor;
}

Tensor random_tensor(Dtype dtype, Shape shape, uint32_t seed) {
  Tensor tensor = filled(dtype, std::move(shape));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (double& x : tensor.data) x = dtype == Dtype::bf16 ? round_to_bf16(uniform(random)) : uniform(random);
  return tensor;
}

// The error of running a kernel with this body on x and y (f32[100]), ids (i32[4] = 0, 1, 2, 30) and scalar n.
std::string run_error(const std::string& body, const std::string& grid = "1", int64_t n = 1) {
  const Kernel kernel = parsed(
      "kernel @k host\nglobal %x: f32[100]\nglobal %ids: i32[4]\nglobal %y: f32[100]\nshared %s: f32[64]\n"
      "scalar %n {high=50}\ngrid " +
      grid + "\nrole @main {\n" + body + "\n}\n");
  Tensor x = random_tensor(Dtype::f32, {100}, 1), y = filled(Dtype::f32, {100});
  Tensor ids{{Dtype::i32, {4}}, {0, 1, 2, 30}};
  const Status status = interpret(kernel, {&x, &ids, &y}, {n});
  return status ? "no error" : status.error().text();
}

TEST_CASE("a loop carries a count") {
  KernelBuilder builder("triangle", Target::host);
  const BufferId y = builder.global("y", Dtype::f32, {10});
  builder.set_grid(1);
  builder.begin_role("main");
  const auto sum = builder.loop("i", 0, 4, 1, {builder.constant(0, Dtype::i32)}, [&](Index i, const auto& carried) {
    const Index count = builder.to_index(carried[0], {0, 6}, "count");
    builder.store(builder.constant(1, Dtype::f32), y, {count + i});
    return std::vector<Value>{builder.from_index(count + i)};
  });
  builder.store(builder.cast(sum[0], Dtype::f32), y, {9});
  Tensor result = filled(Dtype::f32, {10});
  REQUIRE(interpret(parsed(print_kernel(builder.finish())), {&result}, {}).has_value());
  CHECK(result.data == std::vector<double>{1, 1, 0, 1, 0, 0, 1, 0, 0, 6});
}

TEST_CASE("the gradient of rmsnorm from docs/kernels") {
  std::ifstream file(std::string(STEPC_SOURCE_DIR) + "/docs/kernels/rmsnorm_grad.host.kir");
  std::stringstream stream;
  stream << file.rdbuf();
  std::string text = stream.str();
  const auto replace_all = [&](const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  replace_all("[4096, 256]", "[128, 256]");  // two tasks instead of 64
  replace_all("[64, 256]", "[2, 256]");
  replace_all("grid 64", "grid 2");
  Tensor x = random_tensor(Dtype::bf16, {128, 256}, 1), w = random_tensor(Dtype::f32, {256}, 2);
  Tensor dy = random_tensor(Dtype::bf16, {128, 256}, 3), dx = filled(Dtype::bf16, {128, 256});
  Tensor dw = filled(Dtype::f32, {2, 256});
  const Status status = interpret(parsed(text), {&x, &w, &dy, &dx, &dw});
  REQUIRE_MESSAGE(status.has_value(), status.error().text());
  std::vector<double> dw_wanted(512);
  double worst = 0;
  for (size_t row = 0; row < 128; ++row) {
    double squares = 0, dots = 0;
    for (size_t c = 0; c < 256; ++c) {
      const size_t i = row * 256 + c;
      squares += x.data[i] * x.data[i];
      dots += x.data[i] * dy.data[i] * w.data[c];
    }
    const double rstd = 1 / std::sqrt(squares / 256 + 1e-5);
    for (size_t c = 0; c < 256; ++c) {
      const size_t i = row * 256 + c;
      const double wanted = dy.data[i] * w.data[c] * rstd - x.data[i] * dots / 256 * rstd * rstd * rstd;
      worst = std::max(worst, std::abs(dx.data[i] - wanted) / (std::abs(wanted) + 1e-3));
      dw_wanted[row / 64 * 256 + c] += dy.data[i] * x.data[i] * rstd;
    }
  }
  CHECK(worst < 1.0 / 250);  // bf16
  for (size_t i = 0; i < 512; ++i) CHECK(dw.data[i] == doctest::Approx(dw_wanted[i]).epsilon(1e-5));
}

TEST_CASE("products of packed panels") {
  constexpr int64_t kRows = 5, kCols = 21, kDepth = 7, kPanel = 8;
  for (const bool is_bf16 : {false, true})
    for (const bool transposed : {false, true})
      for (const bool a_is_panel : {false, true}) {
        CAPTURE(is_bf16);
        CAPTURE(transposed);
        CAPTURE(a_is_panel);
        const Dtype dtype = is_bf16 ? Dtype::bf16 : Dtype::f32;
        KernelBuilder builder("product", Target::host);
        const int64_t units = is_bf16 ? 4 : 7;
        const auto panels = [&](int64_t count) {
          return is_bf16 ? Shape{count, units, kPanel, 2} : Shape{count, units, kPanel};
        };
        // One more column than the depth, of zeros: an odd depth of bf16 reads it.
        const BufferId a = builder.global("a", dtype, {kRows, kDepth + 1});
        const BufferId b = builder.global("b", dtype, transposed ? Shape{kCols, kDepth} : Shape{kDepth, kCols});
        const BufferId y = builder.global("y", Dtype::f32, {kRows, kCols});
        const BufferId b_panels = builder.shared("b_panels", dtype, panels(3));
        const BufferId a_panels = builder.shared("a_panels", dtype, panels(1));
        builder.set_grid(1);
        builder.begin_role("main");
        const auto start = [&](BufferId id, Index panel) {
          return builder.ref(id, is_bf16 ? std::vector<Index>{panel, 0, 0, 0} : std::vector<Index>{panel, 0, 0});
        };
        builder.pack(builder.ref(b, {0, 0}), start(b_panels, 0), kDepth, kCols, transposed);
        builder.pack(builder.ref(a, {0, 0}), start(a_panels, 0), kDepth, kRows, true);
        builder.loop("n", 0, kCols, kPanel, [&](Index n) {
          const Value zero = builder.constant(0, Dtype::f32, {kRows, kPanel});
          const Ref from = a_is_panel ? start(a_panels, 0) : builder.ref(a, {0, 0});
          const Value acc = builder.mma(zero, from, start(b_panels, n / kPanel), kDepth, a_is_panel ? "panel" : "rows");
          builder.store_first(acc, y, {0, n}, kCols - n);
        });
        Tensor a_data = random_tensor(dtype, {kRows, kDepth + 1}, 1);
        for (size_t m = 0; m < kRows; ++m) a_data.data[m * (kDepth + 1) + kDepth] = 0;
        Tensor b_data = random_tensor(dtype, {kDepth, kCols}, 2);
        Tensor y_data = filled(Dtype::f32, {kRows, kCols});
        const Status status = interpret(builder.finish(), {&a_data, &b_data, &y_data});
        REQUIRE_MESSAGE(status.has_value(), status.error().text());
        for (size_t m = 0; m < kRows; ++m)
          for (size_t n = 0; n < kCols; ++n) {
            double wanted = 0;
            for (size_t k = 0; k < kDepth; ++k)
              wanted += a_data.data[m * (kDepth + 1) + k] * b_data.data[transposed ? n * kDepth + k : k * kCols + n];
            CHECK(y_data.data[m * kCols + n] == doctest::Approx(wanted).epsilon(1e-5));
          }
      }
}

TEST_CASE("control, permutations and random bits") {
  const Kernel kernel = parsed(R"(kernel @k host
global %y: i32[8]
scalar %n {low=1, high=9}
grid 2
role @main {
  %one: i32[] = constant {value=1}
  %zero: i32[] = constant {value=0}
  for %i = 0 .. %n carry (%a: i32[] = %zero, %b: i32[] = %one) -> (%f: i32[], %g: i32[]) {
    %c: i32[] = add %a, %b
    yield %b, %c
  }
  if equal(task, 0) -> (%r: i32[]) {
    yield %f
  } else {
    yield %g
  }
  %wide: i32[4] = splat %r
  %lane: i32[4] = lane
  %back: i32[4] = permute %lane {lanes=[3, 2, 1, 0]}
  %sum: i32[4] = add %wide, %back
  store %sum, %y[task * 4]
}
)");
  Tensor y = filled(Dtype::i32, {8});
  REQUIRE(interpret(kernel, {&y}, {9}).has_value());
  CHECK(y.data == std::vector<double>{37, 36, 35, 34, 58, 57, 56, 55});
  CHECK(interpret(kernel, {&y}, {10}).error().text() == "@k, task 0: %n is 10, expected a multiple of 1 from 1 to 9");
  CHECK(interpret(kernel, {&y}, {}).error().text() == "@k has 1 scalars, found 0");
  CHECK(interpret(kernel, {}, {9}).error().text() == "@k has more globals than the 0 given");
}

TEST_CASE("mistakes that only running finds") {
  CHECK(run_error("%a: f32[16] = load %x[task * 16]\nstore %a, %y[task * 16]", "6") == "no error");
  CHECK(run_error("%a: f32[16] = load %x[task * 16]", "7") ==
        "k.kir:9:1: @k, task 6: %a: f32[16] = load %x[task * 16]: index 100 in dimension 0 of %x[100]");
  CHECK(run_error("%a: f32[16] = load %x[task * 16], 100 - task * 16\nstore %a, %y[task * 16], 4", "7") == "no error");
  CHECK(run_error("%a: f32[4] = load %s[0]\n%b: f32[4] = neg %a\nstore %b, %y[0]") ==
        "k.kir:11:1: @k, task 0: store %b, %y[0]: stores an undefined lane to element 0 of %y");
  CHECK(run_error("%a: f32[4] = load %s[0]\nstore %a, %s[4]") == "no error");
  CHECK(run_error("%a: f32[4] = load %x[0]\nstore %a, %y[task]", "2") ==
        "k.kir:10:1: @k, task 1: store %a, %y[task]: writes element 1 of %y, which task 0 touches");
  CHECK(run_error("%a: f32[4] = load %y[task]\nstore %a, %y[task]", "1") == "no error");
  CHECK(run_error("%a: f32[4] = load %y[task]\nstore %a, %y[task]", "2") ==
        "k.kir:9:1: @k, task 1: %a: f32[4] = load %y[task]: reads element 1 of %y, which task 0 writes");
  CHECK(run_error("%a: f32[1] = load %y[0]\nstore %a, %y[task]", "2") ==
        "k.kir:9:1: @k, task 1: %a: f32[1] = load %y[0]: reads element 0 of %y, which task 0 writes");
  CHECK(run_error("%i: index = load_index %ids[3] {low=0, high=3}") ==
        "k.kir:9:1: @k, task 0: %i: index = load_index %ids[3] {low=0, high=3}: %i is 30, expected a multiple of 1 "
        "from 0 to 3");
  CHECK(run_error("%o: i32[] = load %ids[3]\n%i: index = to_index %o {low=0, high=3}") ==
        "k.kir:10:1: @k, task 0: %i is 30, expected a multiple of 1 from 0 to 3");
  CHECK(run_error("%o: i32[4] = load %ids[0]\n%a: f32[4] = gather %x[70], %o") ==
        "k.kir:10:1: @k, task 0: %a: f32[4] = gather %x[70], %o: offset 30 from element 70 of %x[100]");
  CHECK(run_error("%o: i32[4] = load %ids[0]\n%a: f32[4] = load %x[0]\nscatter %a, %y[50], %o") == "no error");
  CHECK(run_error("%o: i32[4] = load %ids[0]\n%a: f32[4] = load %x[0]\nscatter %a, %y[70], %o, 3") == "no error");
  CHECK(run_error("%o: i32[4] = load %ids[0]\n%a: f32[4] = load %x[0]\nscatter %a, %y[70], %o") ==
        "k.kir:11:1: @k, task 0: scatter %a, %y[70], %o: offset 30 from element 70 of %y[100]");
  CHECK(run_error("%o: i32[4] = load %ids[0]\n%r: i32[4] = rem %o, %o") ==
        "k.kir:10:1: @k, task 0: %r: i32[4] = rem %o, %o: element 0 of the divisor is 0");
  CHECK(run_error("%i: i32[] = from_index 9000000000 * %n") ==
        "k.kir:9:1: @k, task 0: %i: i32[] = from_index 9000000000 * %n: 9000000000 is no i32");
}

}  // namespace
}  // namespace stepc::kernel
