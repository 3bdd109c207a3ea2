#include <doctest/doctest.h>

#include "compiler/plan/roofline.h"
#include "ir/graph/builder.h"

namespace stepc {
namespace {

TEST_CASE("a kernel's floor is the larger of its two roofs") {
  Module module{"m", {}, {}};
  GraphBuilder b(module, "p");
  const ValueId x = b.input("x", {Dtype::bf16, {1000, 1000}});
  const ValueId once = b.matmul(x, x, Dtype::f32), twice = b.matmul(x, x, Dtype::f32);
  b.output("y", b.unary(Op::neg, once));
  b.output("z", twice);
  Program& program = b.program();
  program.groups = {{"a", Template::matmul, {NodeId{1}}},
                    {"b", Template::matmul, {NodeId{2}}},
                    {"c", Template::pointwise, {NodeId{3}}}};
  const DevicePeaks peaks{"toy", 1e12, 1e10, 1e9};
  const auto rows = roofline(program, peaks);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].kernels == "forward matmul(m=1000, n=1000, k=1000, batch=1)");
  CHECK(rows[0].count == 2);
  CHECK(rows[0].flops == 4e9);
  CHECK(rows[0].compute_ms == doctest::Approx(4.0));
  CHECK(rows[0].memory_ms == doctest::Approx(12.0));  // x once and the result, 6 MB each
  CHECK(rows[0].floor_ms == doctest::Approx(12.0));
  CHECK(rows[1].floor_ms == doctest::Approx(8.0));
  CHECK(roofline_report(program, peaks, 1) ==
        "roofline of program @p on toy (1.0 TFLOP/s bf16, 0.0 TFLOP/s f32, 0.00 TB/s)\n"
        "  count   floor ms compute ms  memory ms        GFLOP        GB  bound    kernels\n"
        "      2     12.000      4.000     12.000          4.0      0.01  memory   forward matmul(m=1000, n=1000, "
        "k=1000, batch=1)\n"
        "      1      8.000      0.100      8.000          0.0      0.01  memory   all others\n"
        "      3     20.000      4.100     20.000          4.0      0.02  memory   total\n");
  CHECK(device_peaks("sm_90a")->matrix_flops_per_s == 989.4e12);
  CHECK(!device_peaks("sm_20"));
}

}  // namespace
}  // namespace stepc
