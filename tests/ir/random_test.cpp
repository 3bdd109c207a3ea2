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

// From a plain transcription of the paper's formulas.
TEST_CASE("seed and stream are the key, step and index the counter") {
  const uint32_t words[] = {0x4236452e, 0xd5af937b, 0xe196fd49, 0x1dd16593, 0xbe4d29c6};
  for (uint64_t i = 0; i < 5; ++i) CHECK(philox_word(1, 2, 3, i) == words[i]);
  CHECK(philox_word(1, 2, 3, (uint64_t{1} << 34) + 5) == 0xa3a89751);
}

}  // namespace
}  // namespace stepc
