// Portable products and copies: which tiles they take, and the boxes they touch.
#include <doctest/doctest.h>

#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"

namespace stepc::kernel {
namespace {

constexpr const char* kHead =
    "kernel @k cuda\nglobal %x: bf16[100, 200]\nglobal %y: f32[100, 200]\n"
    "shared %t: bf16[2, 64, 64] swizzle 128\nshared %f: f32[64, 68]\n"
    "grid 2\nrole @main warps 4 {\n";

Result<Kernel> with_body(const std::string& body) { return parse_kernel(kHead + body + "\n}\n", "k.kir"); }

std::string error_of(const std::string& body) {
  const auto kernel = with_body(body);
  return kernel ? "no error" : kernel.error().text();
}

std::string product(const std::string& a, const std::string& b, int k) {
  return fmt::format(
      "%zero: f32[64, 64] = constant {{value=0}}\n"
      "%acc: f32[64, 64] = mma_sync %zero, {}, {} {{k={}, a=\"k\", b=\"mn\"}}",
      a, b, k);
}

TEST_CASE("products of bf16 and of f32 tiles") {
  CHECK(error_of(product("%t[0, 0, 0]", "%t[0, 0, 0]", 64)) == "no error");
  CHECK(error_of(product("%f[0, 0]", "%f[0, 0]", 4)) == "no error");
  CHECK(error_of(product("%f[0, 0]", "%f[0, 0]", 6)) == "k.kir:9:1: mma_sync: k 6, expected a multiple of 4");
  CHECK(
      error_of(product("%f[0, 0]", "%t[0, 0, 0]", 64)) ==
      "k.kir:9:1: mma_sync: %t is bf16[2, 64, 64] with swizzle 128, expected f32 of 2 dimensions at least without one");
  CHECK(error_of(product("%t[0, 0, 0]", "%t[0, 0, 0]", 8)) == "k.kir:9:1: mma_sync: k 8, expected 16 to 1024");
}

TEST_CASE("f32 tiles have no panels") {
  CHECK(unproved_accesses(*with_body(product("%f[0, 0]", "%f[0, 4]", 64))).empty());
  CHECK(error_of(product("%f[0, 0]", "%f[0, 8]", 64)) ==
        "k.kir:9:1: mma_sync: out of bounds of %f[64, 68], dimension 1: 8 (8 to 8) and 63 more");
  // 128 columns of bf16 are two panels.
  CHECK(unproved_accesses(*with_body(product("%t[0, 0, 0]", "%t[0, 0, 0]", 64))).empty());
}

TEST_CASE("a copy may widen, and ends where its height and width say") {
  const auto copy = [](const std::string& from, const std::string& to, const std::string& counts) {
    return "copy_async " + from + "[task * 64, 0], " + to + ", " + counts + " {tile=[64, 64]}";
  };
  CHECK(error_of(copy("%x", "%t[0, 0, 0]", "64, 64")) == "no error");
  CHECK(error_of(copy("%x", "%f[0, 0]", "64, 64")) == "no error");
  CHECK(error_of(copy("%y", "%t[0, 0, 0]", "64, 64")) == "k.kir:8:1: copy_async: %t is bf16, expected the f32 of %y");
  CHECK(unproved_accesses(*with_body(copy("%x", "%t[0, 0, 0]", "100 - task * 64, 64"))).empty());
  CHECK(unproved_accesses(*with_body(copy("%x", "%t[0, 0, 0]", "64, 64"))).size() == 1);
}

}  // namespace
}  // namespace stepc::kernel
