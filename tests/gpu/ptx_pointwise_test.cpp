// Every pointwise op of every dtype is emitted and assembled for every architecture, and the text keeps what the
// numerics promise: no bf16 arithmetic, no fma that was not asked for.
#include <doctest/doctest.h>

#include "compiler/emit/nvptx.h"
#include "ir/kernel/builder.h"
#include "ir/kernel/print.h"
#include "ir/kernel/types.h"
#include "tests/support/golden.h"
#include "tests/support/ptxas.h"

namespace stepc::ptx_test {
namespace {

using kernel::Index;
using kernel::KernelBuilder;
using kernel::Op;
using kernel::Value;
using test::check_ptxas;

const std::vector<GpuTarget> kTargets{{"sm_80"}, {"sm_89"}, {"sm_90a"}};
constexpr std::array kDtypes{Dtype::f32, Dtype::bf16, Dtype::i32, Dtype::pred};

std::string ptx_of(const kernel::Kernel& kernel, const GpuTarget& target) {
  const auto code = emit_ptx(kernel, target);
  REQUIRE_MESSAGE(code, code.error().text());
  return code->ptx;
}

// y = op(x0, x1, ...) on one CTA's lanes.
std::optional<kernel::Kernel> pointwise_kernel(Op op, const std::vector<Dtype>& operands, Dtype declared) {
  const auto result = kernel::pointwise_dtype(op, operands, declared);
  if (!result) return std::nullopt;
  constexpr int64_t kLanes = 128 * 4;
  KernelBuilder b("op", kernel::Target::cuda);
  std::vector<kernel::BufferId> buffers;
  for (size_t i = 0; i < operands.size(); ++i)
    buffers.push_back(b.global(fmt::format("x{}", i), operands[i], {kLanes}));
  const auto out = b.global("y", *result, {kLanes});
  b.set_grid(1);
  b.begin_role("main", 4);
  std::vector<Value> values;
  for (auto buffer : buffers) values.push_back(b.load(buffer, {0}, {kLanes}));
  b.store(op == Op::cast ? b.cast(values[0], *result) : b.pointwise(op, values), out, {0});
  return b.finish();
}

}  // namespace

TEST_CASE("ptx: every pointwise op of every dtype is emitted and assembled") {
  std::string all;
  int kernels = 0;
  const auto visit = [&](Op op, const std::vector<Dtype>& operands, Dtype declared) {
    const auto made = pointwise_kernel(op, operands, declared);
    if (!made) return;
    ++kernels;
    CAPTURE(kernel::print_kernel(*made));
    for (const GpuTarget& target : kTargets) {
      const std::string ptx = ptx_of(*made, target);
      CHECK(ptx.find(".bf16 ") == std::string::npos);  // conversions are .bf16x2.f32
      const bool may_fuse = op == Op::fma || op == Op::exp || op == Op::log || op == Op::sin || op == Op::cos ||
                            op == Op::tanh || op == Op::logistic || op == Op::pow;
      if (!may_fuse) CHECK(ptx.find("fma.") == std::string::npos);
      if (target.arch == "sm_90a") check_ptxas(ptx, target.arch);
    }
  };
  for (int i = static_cast<int>(Op::neg); i <= static_cast<int>(Op::exp2); ++i) {
    const Op op = static_cast<Op>(i);
    if (!kernel::is_pointwise(op)) continue;
    const size_t arity = kernel::op_info(op).operands.size();
    for (Dtype a : kDtypes) {
      if (op == Op::cast) {
        for (Dtype to : kDtypes) visit(op, {a}, to);
      } else if (op == Op::select) {
        visit(op, {Dtype::pred, a, a}, a);
      } else {
        visit(op, std::vector<Dtype>(arity, a), a);
      }
    }
  }
  CHECK(kernels > 50);
}

TEST_CASE("ptx: products and sums are not contracted, and bf16 is rounded between them") {
  KernelBuilder b("contract", kernel::Target::cuda);
  const auto in = b.global("x", Dtype::f32, {3, 128});
  const auto out = b.global("y", Dtype::bf16, {128});
  b.set_grid(1);
  b.begin_role("main", 4);
  const Value product = b.pointwise(Op::mul, {b.load(in, {0, 0}, {128}), b.load(in, {1, 0}, {128})});
  const Value rounded = b.cast(b.cast(product, Dtype::bf16), Dtype::f32);
  b.store(b.cast(b.pointwise(Op::add, {rounded, b.load(in, {2, 0}, {128})}), Dtype::bf16), out, {0});
  const kernel::Kernel made = b.finish();
  for (const GpuTarget& target : kTargets) {
    const std::string ptx = ptx_of(made, target);
    CHECK(ptx.find("fma") == std::string::npos);
    CHECK(ptx.find("mul.rn.f32") != std::string::npos);
    CHECK(ptx.find("add.rn.f32") != std::string::npos);
    CHECK(ptx.find(".bf16 ") == std::string::npos);
    CHECK(ptx.find("cvt.rn.bf16x2.f32") != std::string::npos);
    check_ptxas(ptx, target.arch);
  }
}

TEST_CASE("ptx: 16-byte accesses, lines of the kernel's text, the launch bounds") {
  KernelBuilder b("square", kernel::Target::cuda);
  const auto in = b.global("x", Dtype::bf16, {1024, 2048});
  const auto out = b.global("y", Dtype::bf16, {1024, 2048});
  b.set_grid(1024);
  b.begin_role("main", 8);
  const Value x = b.cast(b.load(in, {b.task(), 0}, {2048}), Dtype::f32);
  b.store(b.cast(b.pointwise(Op::mul, {x, x}), Dtype::bf16), out, {b.task(), 0});
  const kernel::Kernel made = b.finish();
  const std::string ptx = ptx_of(made, {"sm_90a"});
  CHECK(ptx.find("ld.global.nc.v4") != std::string::npos);
  CHECK(ptx.find("st.global.v4") != std::string::npos);
  CHECK(ptx.find(".reqntid 256, 1, 1") != std::string::npos);
  CHECK(ptx.find(".file\t1 \"square.kir\"") != std::string::npos);
  // Line 7 is the load: head, two buffers, grid, an empty line, the role before it; the store is the last.
  CHECK(ptx.find(".loc\t1 7 1") != std::string::npos);
  CHECK(ptx.find(".loc\t1 11 1") != std::string::npos);
  check_ptxas(ptx, "sm_90a");
  test::check_golden("ptx/square.sm_90a.ptx", ptx);
}

TEST_CASE("ptx: what a result may be written over is not read as constant memory") {
  for (const bool overwritten : {false, true}) {
    KernelBuilder b("in_place", kernel::Target::cuda);
    const auto x = b.global("x", Dtype::f32, {4, 512});
    const auto y = b.global("y", Dtype::f32, {4, 512});
    b.set_grid(4);
    b.begin_role("main", 4);
    b.store(b.pointwise(Op::neg, {b.load(x, {b.task(), 0}, {512})}), y, {b.task(), 0});
    kernel::Kernel made = b.finish();
    made.buffers[0].overwritten = overwritten;
    const std::string ptx = ptx_of(made, {"sm_90a"});
    CHECK((ptx.find("ld.global.nc.v4") == std::string::npos) == overwritten);
    CHECK((ptx.find("ld.global.v4") != std::string::npos) == overwritten);
  }
}

TEST_CASE("ptx: places beyond 2^31 elements are reckoned in 64 bits, others in 32") {
  const auto copy = [](int64_t rows, int64_t columns) {
    KernelBuilder b("far", kernel::Target::cuda);
    const auto in = b.global("x", Dtype::bf16, {rows, columns});
    const auto out = b.global("y", Dtype::bf16, {rows, columns});
    b.set_grid(rows);
    b.begin_role("main", 4);
    b.store(b.load(in, {b.task(), 0}, {1024}), out, {b.task(), 0});
    return b.finish();
  };
  // The row's bytes, 3 * 2^33 at most, are a shift in 64 bits; up to 3 * 2^19 they are one in 32.
  const std::string far = ptx_of(copy(4, int64_t{1} << 32), {"sm_90a"});
  CHECK(far.find("shl.b64") != std::string::npos);
  const std::string near = ptx_of(copy(4, 1 << 18), {"sm_90a"});
  CHECK(near.find("shl.b64") == std::string::npos);
  check_ptxas(far, "sm_90a");
}

}  // namespace stepc::ptx_test
