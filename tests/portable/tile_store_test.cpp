// stmatrix where the hardware has no such instruction: a tile comes back from swizzled shared memory as it went in.
#include "ir/kernel/parse.h"
#include "tests/support/ptxas.h"
#include "tests/support/run_gpu.h"

namespace stepc {
namespace {

kernel::Kernel round_trip(const std::string& attributes) {
  const auto kernel = kernel::parse_kernel(
      "kernel @trip cuda\nglobal %x: bf16[64, 64]\nglobal %y: bf16[64, 64]\n"
      "shared %s: bf16[2, 64, 64] swizzle 128\ngrid 1\nrole @main warps 4 {\n"
      "%in: bf16[64, 64] = load %x[0, 0]\n"
      "stmatrix %in, %s[1, 0, 0]" +
          attributes +
          "\nsync_task\n"
          "%out: bf16[64, 64] = load %s[1, 0, 0]\nstore %out, %y[0, 0]\n}\n",
      "trip.kir");
  REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
  return *kernel;
}

TEST_CASE("a tile goes to shared memory and back on every architecture") {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    if (!test::gpu_runs(arch)) continue;
    const auto device = test::open_gpu();
    std::vector<uint16_t> in(64 * 64), out(64 * 64, 0);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
    const auto bytes = static_cast<int64_t>(in.size() * 2);
    const std::vector<DeviceAddress> buffers{device->allocate(bytes).value(), device->allocate(bytes).value()};
    REQUIRE(device->copy_in(buffers[0], in.data(), bytes).has_value());
    test::launch_kernel(*device, round_trip(""), {arch}, 1, buffers, {});
    REQUIRE(device->copy_out(out.data(), buffers[1], bytes).has_value());
    CHECK(in == out);
  }
}

TEST_CASE("what stmatrix cannot do without the instruction is an error") {
  const auto code = emit_ptx(round_trip(" {transposed=true}"), {"sm_80"});
  REQUIRE(!code.has_value());
  CHECK(code.error().text().find("transposed or wider than a panel needs sm_90") != std::string::npos);
}

}  // namespace
}  // namespace stepc
