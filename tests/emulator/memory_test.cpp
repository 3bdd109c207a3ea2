#include <doctest/doctest.h>

#include "runtime/emulator/cta.h"
#include "runtime/emulator/global_memory.h"

using namespace stepc::emulator;

TEST_CASE("device memory: only live allocations are found, and a miss names the nearest") {
  GlobalMemory memory(1000);
  const uint64_t a = memory.allocate(100);
  const uint64_t b = memory.allocate(600);
  REQUIRE(a != 0);
  REQUIRE(b != 0);
  CHECK(memory.allocate(301) == 0);
  CHECK(memory.used() == 700);

  REQUIRE(memory.find(a, 100));
  CHECK(memory.find(a, 100)->host[99] == 0xff);
  CHECK(memory.find(a + 99, 1));
  CHECK_FALSE(memory.find(a + 99, 2));
  CHECK_FALSE(memory.find(a + 100, 1));
  CHECK_FALSE(memory.find(a - 1, 1));
  CHECK(memory.find(b + 64, 16)->address == b);
  CHECK(memory.describe_miss(a + 104).starts_with("4 bytes past the end of the allocation of 100 bytes"));
  CHECK(memory.describe_miss(a - 8).starts_with("8 bytes before the allocation of 100 bytes"));
  CHECK(memory.describe_miss(12) == "no allocation is near");

  CHECK(memory.free(a));
  CHECK_FALSE(memory.free(a));
  CHECK_FALSE(memory.find(a, 1));
  CHECK(memory.allocate(301) != 0);
}
