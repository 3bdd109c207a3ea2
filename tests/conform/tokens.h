// The numbers of tokens that conformance tests run: around the sizes of warps and tiles.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/gpu.h"

namespace stepc::test {

// The emulator takes its time; with STEPC_CONFORM=all it runs what a card runs.
inline bool conform_all() {
  const char* const wanted = std::getenv("STEPC_CONFORM");
  return on_card() || (wanted && std::string(wanted) == "all");
}

inline std::vector<int64_t> token_counts() {
  if (conform_all()) return {1, 2, 31, 33, 127, 129, 1000, 1023};
  return {1, 2, 31, 33};
}

// Of what is costly.
inline std::vector<int64_t> few_token_counts() {
  if (conform_all()) return token_counts();
  return {33};
}

}  // namespace stepc::test
