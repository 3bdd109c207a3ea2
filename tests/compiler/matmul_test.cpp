// Contractions on this machine against the graph evaluator: operand orders, dtypes, odd sizes, with AVX-512
// (where the machine has it) and without.
#include "compiler/schedule/host/matmul.h"

#include <doctest/doctest.h>

#include <cstring>

#include "compiler/emit/host.h"
#include "ir/graph/builder.h"
#include "ir/graph/evaluate.h"

namespace stepc {
namespace {

using host::MatmulProblem;

// Deterministic values in [-1, 1), exact in bf16.
double sample(uint32_t seed, int64_t i) {
  return static_cast<double>(philox_word(seed, 1, 0, static_cast<uint64_t>(i)) >> 25) / 64.0 - 1.0;
}

std::vector<char> to_bytes(const Tensor& tensor) {
  const auto size = static_cast<size_t>(dtype_bytes(tensor.type.dtype));
  std::vector<char> bytes(tensor.data.size() * size);
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    const auto f32 = static_cast<float>(tensor.data[i]);
    const uint16_t bf16 = bf16_from_f32(f32);
    std::memcpy(bytes.data() + i * size, tensor.type.dtype == Dtype::f32 ? static_cast<const void*>(&f32) : &bf16,
                size);
  }
  return bytes;
}

double element(const std::vector<char>& bytes, Dtype dtype, size_t i) {
  if (dtype == Dtype::bf16) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    return static_cast<double>(f32_from_bf16(bits));
  }
  float value = 0;
  std::memcpy(&value, bytes.data() + 4 * i, 4);
  return static_cast<double>(value);
}

Tensor make_tensor(uint32_t seed, Dtype dtype, Shape shape) {
  Tensor tensor{{dtype, std::move(shape)}, {}};
  const int64_t count = numel(tensor.type.shape);
  for (int64_t i = 0; i < count; ++i) tensor.data.push_back(sample(seed, i));
  return tensor;
}

std::vector<char> run(const kernel::Kernel& kernel, const HostTarget& target, int64_t tasks,
                      const std::vector<Tensor>& operands, size_t result_bytes) {
  const auto code = emit_host(kernel, target);
  REQUIRE_MESSAGE(code.has_value(), code.error().text());
  HostLoader loader;
  const auto function = loader.load(code->object, kernel.name);
  REQUIRE_MESSAGE(function.has_value(), function.error().text());
  std::vector<std::vector<char>> data;
  for (const Tensor& operand : operands) data.push_back(to_bytes(operand));
  data.emplace_back(result_bytes, char(0x7f));  // large numbers where nothing is written
  std::vector<void*> buffers;
  for (auto& bytes : data) buffers.push_back(bytes.data());
  const auto scratch_bytes = static_cast<size_t>(kernel::shared_layout(kernel).total_bytes);
  std::vector<char> scratch(scratch_bytes + 64, char(0xff));  // NaN
  void* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
  for (int64_t task = 0; task < tasks; ++task) (*function)(buffers.data(), nullptr, task, aligned);
  return data.back();
}

// The largest error, relative to the largest magnitude of a row's sum of products.
double compare(const MatmulProblem& p, Dtype result, const HostTarget& target) {
  const auto shape = [&](bool transposed, int64_t rows, int64_t cols) {
    return transposed ? Shape{p.batch, cols, rows} : Shape{p.batch, rows, cols};
  };
  const Tensor a = make_tensor(1, p.a_dtype, shape(p.transpose_a, p.m, p.k));
  const Tensor b = make_tensor(2, p.b_dtype, shape(p.transpose_b, p.k, p.n));
  Module module;
  GraphBuilder graph(module, "main");
  ValueId a_id = graph.input("a", a.type), b_id = graph.input("b", b.type);
  if (p.math_dtype == Dtype::f32) a_id = graph.cast(a_id, Dtype::f32), b_id = graph.cast(b_id, Dtype::f32);
  graph.output("y", graph.matmul(a_id, b_id, result, p.transpose_a, p.transpose_b));
  TensorMap none;
  const auto expected = evaluate(module.programs[0], none, {{"a", a}, {"b", b}});
  REQUIRE_MESSAGE(expected.has_value(), expected.error().text());
  const std::vector<double>& wanted = expected->at("y").data;

  const host::MatmulConfig config = host::pick_matmul(p, target);
  const kernel::Kernel kernel = host::product_kernel(p, config, result);
  const auto bytes =
      run(kernel, target, config.tasks(p), {a, b}, wanted.size() * static_cast<size_t>(dtype_bytes(result)));
  double worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double error = std::fabs(element(bytes, result, i) - wanted[i]) / (1 + std::fabs(wanted[i]));
    worst = error <= worst ? worst : error;  // NaN counts
  }
  return worst;
}

struct Sizes {
  int64_t m, n, k, batch;
};

void check_orders(const HostTarget& target, Sizes sizes, Dtype operands, Dtype result) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      MatmulProblem p{sizes.m, sizes.n, sizes.k, sizes.batch, operands, operands, operands, transpose_a, transpose_b};
      CAPTURE(host::describe(p));
      CAPTURE(transpose_a);
      CAPTURE(transpose_b);
      CAPTURE(dtype_name(operands));
      CAPTURE(target.cpu);
      CHECK(compare(p, result, target) <= (result == Dtype::bf16 ? 0x1p-8 : 1e-5));
    }
}

const std::vector<Sizes> kSmall = {{1, 1, 1, 1},    {7, 31, 33, 3},  {33, 7, 127, 1}, {8, 32, 0, 2},
                                   {31, 127, 7, 0}, {5, 100, 64, 2}, {64, 4, 130, 1}, {40, 128, 4, 1}};

TEST_CASE("products of odd sizes in every operand order") {
  for (const HostTarget& target : {detect_host_target(), baseline_host_target()})
    for (const Sizes& sizes : kSmall)
      for (const Dtype operands : {Dtype::f32, Dtype::bf16}) check_orders(target, sizes, operands, Dtype::f32);
}

TEST_CASE("products rounded to bf16") {
  for (const HostTarget& target : {detect_host_target(), baseline_host_target()})
    for (const Dtype operands : {Dtype::f32, Dtype::bf16}) check_orders(target, {33, 71, 65, 2}, operands, Dtype::bf16);
}

TEST_CASE("several blocks in every direction") {
  for (const Dtype operands : {Dtype::f32, Dtype::bf16})
    check_orders(detect_host_target(), {273, 550, 1031, 1}, operands, Dtype::f32);
}

TEST_CASE("bf16 operands in an f32 product") {
  for (const HostTarget& target : {detect_host_target(), baseline_host_target()})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        MatmulProblem p{37, 41, 53, 2, Dtype::bf16, Dtype::bf16, Dtype::f32, transpose_a, transpose_b};
        CHECK(compare(p, Dtype::f32, target) <= 1e-5);
        p.b_dtype = Dtype::f32;
        CHECK(compare(p, Dtype::f32, target) <= 1e-5);
      }
}

}  // namespace
}  // namespace stepc
