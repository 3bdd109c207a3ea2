#include <doctest/doctest.h>

#include "ir/graph/evaluate.h"

namespace stepc {
namespace {

TEST_CASE("Philox 4x32-10 gives the known answer of its authors for counter 0 and key 0") {
  CHECK(philox_word(0, 0, 0, 0) == 0x6627e8d5);
  CHECK(philox_word(0, 0, 0, 1) == 0xe169c58d);
  CHECK(philox_word(0, 0, 0, 2) == 0xbc57ac4c);
  CHECK(philox_word(0, 0, 0, 3) == 0x9b00dbd8);
}

}  // namespace
}  // namespace stepc
