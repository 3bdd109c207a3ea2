// Accumulators of products under way: they go through loops as they are, and nothing else touches them.
#include <doctest/doctest.h>

#include "ir/kernel/parse.h"
#include "ir/kernel/print.h"

namespace stepc::kernel {
namespace {

std::string hopper_error(const std::string& body) {
  const std::string head =
      "kernel @k sm90\nglobal %x: bf16[64, 64]\nmap %m: %x box [64, 64] swizzle 128\n"
      "shared %a: bf16[64, 64] swizzle 128\nbarrier %full: 2 arrivals 1\n"
      "grid 2\nrole @main warps 4 {\n%zero: f32[64, 64] = constant {value=0}\n";
  const auto kernel = parse_kernel(head + body + "\n}\n", "k.kir");
  return kernel ? "no error" : kernel.error().text();
}

const std::string kProduct = "%first: f32[64, 64] = wgmma %zero, %a[0, 0], %a[0, 0] {k=64, a=\"k\", b=\"k\"}\n";

TEST_CASE("a product under way is carried by a loop and waited for after it") {
  const std::string loop =
      "for %k = 1 .. 4 carry (%acc: f32[64, 64] = %first) -> (%last: f32[64, 64]) {\n"
      "  %next: f32[64, 64] = wgmma %acc, %a[0, 0], %a[0, 0] {k=64, a=\"k\", b=\"k\"}\n"
      "  wgmma_wait {pending=1}\n  yield %next\n}\n";
  const std::string wait = "%sum: f32[64, 64] = wgmma_wait %last {pending=0}\n";
  CHECK(hopper_error(kProduct + loop + wait + "%twice: f32[64, 64] = add %sum, %sum") == "no error");
  CHECK(hopper_error(kProduct + loop + "%twice: f32[64, 64] = add %last, %last") ==
        "k.kir:15:1: add: %last is touched before its wgmma_wait");
  CHECK(hopper_error(kProduct + "%twice: f32[64, 64] = neg %first") ==
        "k.kir:10:1: neg: %first is touched before its wgmma_wait");
}

TEST_CASE("a loop whose accumulator starts complete hands on a complete one") {
  CHECK(hopper_error("for %k = 0 .. 4 carry (%acc: f32[64, 64] = %zero) -> (%last: f32[64, 64]) {\n"
                     "  %next: f32[64, 64] = wgmma %acc, %a[0, 0], %a[0, 0] {k=64, a=\"k\", b=\"k\"}\n"
                     "  yield %next\n}") ==
        "k.kir:11:3: yield: %next is carried on before its wgmma_wait, but %acc starts complete");
}

TEST_CASE("an accumulator that leaves a branch under way on one path is under way") {
  const std::string branch = kProduct +
                             "if task -> (%either: f32[64, 64]) {\n  yield %first\n} else {\n"
                             "  yield %zero\n}\n";
  CHECK(hopper_error(branch + "%done: f32[64, 64] = wgmma_wait %either {pending=0}") == "no error");
  CHECK(hopper_error(branch + "%minus: f32[64, 64] = neg %either") ==
        "k.kir:15:1: neg: %either is touched before its wgmma_wait");
}

TEST_CASE("columns of a tile, and what needs a cluster") {
  CHECK(hopper_error("%c: f32[64, 16] = columns %zero {first=48}") == "no error");
  CHECK(hopper_error("%c: f32[64, 16] = columns %zero {first=56}") ==
        "k.kir:9:1: columns: %c is f32[64, 16], expected columns of the f32[64, 64] of %zero from a multiple of 8 on, "
        "found 56");
  CHECK(hopper_error("arrive %full[0] {cluster=true}") == "k.kir:9:1: arrive: cluster in a kernel without clusters");
  CHECK(hopper_error("once {\ntma_load %m[0, 0], %a[0, 0], %full[0] {multicast=true}\n}") ==
        "k.kir:10:1: tma_load: multicast in a kernel without clusters");
}

TEST_CASE("a shared tile over another has its bytes") {
  const auto parsed = [](const std::string& declaration, const std::string& target) {
    return parse_kernel("kernel @k " + target + "\nshared %a: bf16[4, 64, 64] swizzle 128\nshared %f: f32[64]\n" +
                            declaration + "\ngrid 2\nrole @main warps 4 {\n}\n",
                        "k.kir");
  };
  const auto kernel = parsed("shared %o: f32[4, 64, 32] swizzle 128 over %a", "sm90");
  REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
  CHECK(print_kernel(*kernel).find("shared %o: f32[4, 64, 32] swizzle 128 over %a\n") != std::string::npos);
  const SharedLayout layout = shared_layout(*kernel);
  CHECK(layout.offset_bytes[2] == layout.offset_bytes[0]);
  CHECK(layout.total_bytes == 4 * 64 * 128 + 256);
  const auto error = [&](const std::string& declaration, const std::string& target = "sm90") {
    const auto wrong = parsed(declaration, target);
    return wrong ? "no error" : wrong.error().message;
  };
  CHECK(error("shared %o: f32[64] over %b") == "unknown buffer %b");
  CHECK(error("shared %o: f32[65] over %f") == "%o takes 260 bytes, more than the 256 of %f below it");
  CHECK(error("shared %o: f32[8, 8] swizzle 32 over %f") == "%o has a swizzle, but %f below it has none");
  CHECK(error("shared %o: f32[8] over %f\nshared %p: f32[8] over %o") ==
        "%p does not lie over a shared buffer with memory of its own");
  CHECK(error("shared %o: f32[8] over %f", "cuda") ==
        "%o lies over another buffer, which only shared ones of sm90 may");
}

TEST_CASE("copies are started by one thread, products by all") {
  CHECK(hopper_error("tma_load %m[0, 0], %a[0, 0], %full[0]") ==
        "k.kir:9:1: tma_load: outside `once`: one thread starts it");
  CHECK(hopper_error("progress_add") == "k.kir:9:1: progress_add: outside `once`: one thread starts it");
  CHECK(hopper_error("once {\nsync 1 {warps=4}\n}") ==
        "k.kir:10:1: sync: inside `once`: it takes all threads of the role");
}

}  // namespace
}  // namespace stepc::kernel
