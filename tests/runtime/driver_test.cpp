#include "runtime/cuda/driver.h"

#include <doctest/doctest.h>

#include <cstddef>

namespace stepc {
namespace {

// The layouts that libcuda reads.
static_assert(sizeof(CUlaunchConfig) == 56 && offsetof(CUlaunchConfig, sharedMemBytes) == 24);
static_assert(offsetof(CUlaunchConfig, hStream) == 32 && offsetof(CUlaunchConfig, attrs) == 40);
static_assert(offsetof(CUlaunchConfig, numAttrs) == 48);
static_assert(sizeof(CUlaunchAttribute) == 72 && offsetof(CUlaunchAttribute, value) == 8);
static_assert(sizeof(CUtensorMap) == 128 && alignof(CUtensorMap) == 64);
static_assert(sizeof(CUuuid) == 16 && sizeof(CUresult) == 4 && sizeof(CUdeviceptr) == 8);

TEST_CASE("a driver that is not there is one clear error") {
  const auto missing = open_driver("libstepc_no_such_driver.so.1");
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().exit_code() == 1);
  CHECK(missing.error().text().starts_with("there is no NVIDIA driver to open: libstepc_no_such_driver.so.1"));
}

TEST_CASE("a library that lacks a call is told by the call's symbol") {
  const auto other = open_driver("libm.so.6");
  REQUIRE_FALSE(other.has_value());
  CHECK(other.error().text() ==
        "libm.so.6 has no cuInit: the NVIDIA driver is too old; stepc needs one of CUDA 12.0 or later");
}

}  // namespace
}  // namespace stepc
